package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// light are the packages that a program may import without bringing a heavy module into its build.
var light = []string{"clock", "lease", "lease/memory", "redisbucket", "hybrid", "hybrid/xtime",
	"hybrid/rpclimit", "hybrid/httplimit", "hybrid/httplimit/rules", "hybrid/hybridotel"}

// TestLightPackagesBringWhatTheTableSays compares what each light package brings into the build of a module
// that has nothing else with the table in CONTRIBUTING.md.
func TestLightPackagesBringWhatTheTableSays(t *testing.T) {
	table := brought(t)
	testkit.Check(t, len(table) == len(light), "the table has %d packages, want %d", len(table), len(light))
	root, err := filepath.Abs("../..")
	testkit.NoErr(t, err)
	// Given a module that imports each light package from a package of its own,
	dir := t.TempDir()
	write := func(name, text string) {
		testkit.NoErr(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		testkit.NoErr(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", fmt.Sprintf("module empty\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %q\n",
		module, root))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	testkit.NoErr(t, err)
	write("go.sum", string(sums))
	for _, p := range light {
		write(p+"/main.go", fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", module+"/"+p))
	}
	// when Go lists what these link,
	list := exec.Command("go", "list", "-mod=mod", "-deps", "-json=ImportPath,Deps,Module", "./...")
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	testkit.Must(t, err == nil, "%v\n%s", err, &stderr)
	modules, deps := map[string]string{}, map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			ImportPath string
			Deps       []string
			Module     struct{ Path string }
		}
		testkit.NoErr(t, d.Decode(&p))
		modules[p.ImportPath], deps[p.ImportPath] = p.Module.Path, p.Deps
	}
	// then it is what the table says.
	for _, p := range light {
		var brings []string
		for _, dep := range deps["empty/"+p] {
			if m := modules[dep]; m != "" && m != module && !slices.Contains(brings, m) {
				brings = append(brings, m)
			}
		}
		slices.Sort(brings)
		testkit.Check(t, slices.Equal(brings, table[p]), "%s brings\n%v, CONTRIBUTING.md says\n%v",
			p, brings, table[p])
	}
}

// brought reads the modules that each package brings from the table in CONTRIBUTING.md. A row has packages,
// then modules; a package among the modules stands for all that it brings itself.
func brought(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	testkit.NoErr(t, err)
	_, section, found := strings.Cut(string(page), "\n## What the packages bring\n")
	testkit.Must(t, found, "CONTRIBUTING.md has no section on what the packages bring")
	section, _, _ = strings.Cut(section, "\n## ")
	row, code := regexp.MustCompile(`(?m)^\| (.*`+"`"+`.*) \| (.*) \|$`), regexp.MustCompile("`([^`]+)`")
	table := map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		var modules []string
		for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
			if isStandard(m[1]) { // it has no host: a package of an earlier row
				modules = append(modules, table[m[1]]...)
			} else {
				modules = append(modules, m[1])
			}
		}
		slices.Sort(modules)
		for _, p := range code.FindAllStringSubmatch(cells[1], -1) {
			table[p[1]] = modules
		}
	}
	return table
}
