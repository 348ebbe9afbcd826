package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// workflow is the part of a GitHub workflow that the test needs.
type workflow struct {
	Permissions map[string]string
	Concurrency map[string]any
	Jobs        map[string]struct {
		Steps []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// TestTheWorkflowRunsWhatIsThere: its scripts and packages exist, it may only read, each action has a
// version, and .golangci.yml is for the linter that it installs.
func TestTheWorkflowRunsWhatIsThere(t *testing.T) {
	const file = ".github/workflows/ci.yml"
	var w workflow
	text, err := os.ReadFile(filepath.Join(root, file))
	testkit.NoErr(t, err)
	testkit.NoErr(t, yaml.Unmarshal(text, &w))
	testkit.Check(t, len(w.Permissions) == 1 && w.Permissions["contents"] == "read", "may %v", w.Permissions)
	testkit.Check(t, w.Concurrency["group"] != nil, "there is no concurrency group")
	var runs []string
	linter := ""
	for name, job := range w.Jobs {
		for _, s := range job.Steps {
			testkit.Check(t, (s.Uses == "") != (s.Run == ""), "a step of %s runs %q and uses %q",
				name, s.Run, s.Uses)
			pinned := regexp.MustCompile(`@v?[0-9a-f][0-9a-f.]*$`).MatchString(s.Uses)
			testkit.Check(t, s.Uses == "" || pinned, "%s has no version", s.Uses)
			if strings.HasPrefix(s.Uses, "golangci/") {
				linter, _ = s.With["version"].(string)
			}
			if s.Run == "" {
				continue
			}
			runs = append(runs, s.Run)
			for _, complaint := range read(t).check(file, s.Run) {
				t.Errorf("%s: %s", s.Run, complaint)
			}
			if strings.HasPrefix(s.Run, ".ci/") {
				info, err := os.Stat(filepath.Join(root, s.Run))
				testkit.Check(t, err == nil && info.Mode().IsRegular(), "%s: %v", s.Run, err)
			}
		}
	}
	for _, want := range []string{".ci/run", ".ci/lint", "go build ./...", "go vet ./...", "go test ./..."} {
		testkit.Check(t, slices.Contains(runs, want), "no job runs %s", want)
	}
	rules, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	testkit.NoErr(t, err)
	testkit.Check(t, linter != "" && strings.Contains(string(rules), "golangci-lint "+linter+","),
		"the workflow installs golangci-lint %q, and .golangci.yml is for another one", linter)
}

// TestFormsAreValidYAML reads the settings of GitHub and of the linter, and the fields of the issue forms.
func TestFormsAreValidYAML(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github/ISSUE_TEMPLATE/*.yml"))
	testkit.NoErr(t, err)
	others := []string{filepath.Join(root, ".github/dependabot.yml"), filepath.Join(root, ".golangci.yml")}
	for _, file := range append(forms, others...) {
		text, err := os.ReadFile(file)
		testkit.NoErr(t, err)
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes map[string]any
			}
		}
		testkit.Must(t, yaml.Unmarshal(text, &form) == nil, "%s is not YAML", file)
		if !slices.Contains(forms, file) || filepath.Base(file) == "config.yml" {
			continue
		}
		complete := form.Name != "" && form.Description != "" && len(form.Body) > 0
		testkit.Check(t, complete, "%s has no name or body", file)
		for _, f := range form.Body {
			labelled := f.Type == "markdown" || f.ID != "" && f.Attributes["label"] != nil
			testkit.Check(t, labelled, "%s: a %s has no id or label", file, f.Type)
		}
	}
}
