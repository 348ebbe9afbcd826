// Package mutant builds tests together with mutations of the source they test. A mutation takes one
// rule out of the source, and a test must then fail. All mutations are compiled into one binary: each
// function that any of them changes is there once as it is and once for each mutation, and an
// environment variable says which one runs. Only tests import this package.
package mutant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// variable is the environment variable that names the mutation to run.
const variable = "YUZHI_MUTANT"

// Running returns the name of the mutation that this process runs, or "".
func Running() string { return os.Getenv(variable) }

// A Mutation is one rule taken out of the source by edits of its text.
type Mutation struct {
	Name  string
	Edits []Edit
}

// An Edit is a text and its replacement. The text must occur exactly once in the module's Go files
// other than tests, whichever package it is in.
type Edit [2]string

// Source is the text of a module's Go files other than tests, by path.
type Source map[string]string

// Read returns the source of the module that the working directory is in.
func Read(t testing.TB) Source {
	t.Helper()
	source := Source{}
	root := moduleRoot(t)
	testkit.NoErr(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (nested == nil || d.Name() == "testdata" || d.Name()[0] == '.') {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			source[path] = string(text)
			return err
		}
		return nil
	}))
	return source
}

func moduleRoot(t testing.TB) string {
	dir, err := os.Getwd()
	testkit.NoErr(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		testkit.Must(t, parent != dir, "there is no go.mod above the working directory")
		dir = parent
	}
}

// apply returns the files that m changes, as m changes them. A later edit may look for what an
// earlier one wrote.
func (s Source) apply(m Mutation) (Source, error) {
	changed := Source{}
	for _, e := range m.Edits {
		found, n := "", 0
		for path, text := range s {
			if now, ok := changed[path]; ok {
				text = now
			}
			if c := strings.Count(text, e[0]); c > 0 {
				found, n = path, n+c
			}
		}
		if n != 1 {
			return nil, fmt.Errorf("%q: %q occurs %d times in the module, must be once", m.Name, e[0], n)
		}
		text, ok := changed[found]
		if !ok {
			text = s[found]
		}
		changed[found] = strings.Replace(text, e[0], e[1], 1)
	}
	return changed, nil
}

// Tests are the tests of one package, built with mutations.
type Tests struct{ binary string }

// Build builds the tests of the package pkg, a path such as "./hybrid" below the module's root, with
// the mutations. An edit that does not fit exactly once, or does not compile, would test nothing: then
// t fails.
func (s Source) Build(t testing.TB, pkg string, mutations []Mutation) Tests {
	t.Helper()
	switched, err := s.withSwitches(mutations)
	testkit.NoErr(t, err)
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range switched {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay.Replace)))
		testkit.NoErr(t, os.WriteFile(file, []byte(text), 0o600))
		overlay.Replace[path] = file
	}
	list, err := json.Marshal(overlay)
	testkit.NoErr(t, err)
	listFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants.test")
	testkit.NoErr(t, os.WriteFile(listFile, list, 0o600))
	compile := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+listFile, "-o="+binary, pkg)
	compile.Dir = moduleRoot(t)
	out, err := compile.CombinedOutput()
	testkit.Must(t, err == nil, "the edited source does not compile: %v\n%s", err, out)
	return Tests{binary}
}

// Fails runs the tests whose names match the regular expression test, under the named mutation, and
// expects that one of them fails. A panic, or a test that is not there, notices no rule. It returns
// what the tests printed.
func (b Tests) Fails(t testing.TB, mutation, test string, args ...string) string {
	t.Helper()
	cmd := exec.Command(b.binary, append(args, "-test.run=^("+test+")$")...)
	cmd.Env = append(os.Environ(), variable+"="+mutation)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	failed := regexp.MustCompile(`(?m)^--- FAIL: (` + test + `) `)
	testkit.Must(t, errors.As(err, &exit) && failed.Match(out) && !bytes.Contains(out, []byte("panic:")),
		"%s did not notice %q: %v\n%s", test, mutation, err, out)
	return string(out)
}
