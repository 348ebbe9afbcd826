// Package mutant builds tests together with mutations of the tested source. A mutation removes one rule from
// the source, and a test must then fail. All mutations are compiled into one binary: each mutated function
// gets a body for each mutation, and an environment variable selects the body that runs.
package mutant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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

// A Mutation removes one rule from the source by edits of the source's text.
type Mutation struct {
	Name  string
	Edits []Edit
}

// An Edit is a text and its replacement. The text must occur exactly once in the module's Go files without
// tests.
type Edit [2]string

// Source has the text of a module's Go files without test files, by path.
type Source map[string]string

// Read returns the source of the module that contains the working directory.
func Read(t testing.TB) Source {
	t.Helper()
	source := Source{}
	root := testkit.ModuleRoot()
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

// apply returns the changed text of the files that m changes. An edit may replace text that an earlier edit
// of m has inserted.
func (s Source) apply(m Mutation) (Source, error) {
	after := maps.Clone(s)
	for _, e := range m.Edits {
		found, n := "", 0
		for path, text := range after {
			if c := strings.Count(text, e[0]); c > 0 {
				found, n = path, n+c
			}
		}
		if n != 1 {
			return nil, fmt.Errorf("%q: %q occurs %d times in the module, must occur once", m.Name, e[0], n)
		}
		after[found] = strings.Replace(after[found], e[0], e[1], 1)
	}
	maps.DeleteFunc(after, func(path, text string) bool { return text == s[path] })
	return after, nil
}

// withSwitches returns the changed files, with all mutations compiled in. A function that mutations 2 and 5
// change begins with a switch, whose cases 2 and 5 contain the mutated bodies.
func (s Source) withSwitches(mutations []Mutation) (Source, error) {
	cases := map[string]map[int]string{} // mutated bodies by path and index of the declaration
	var errs []error
	var numbers strings.Builder
	for i, m := range mutations {
		fmt.Fprintf(&numbers, "\t%q: %d,\n", m.Name, i+1)
		changed, err := s.apply(m)
		errs = append(errs, err)
		for path, text := range changed {
			if cases[path] == nil {
				cases[path] = map[int]string{}
			}
			if err := addCases(cases[path], i+1, s[path], text); err != nil {
				errs = append(errs, fmt.Errorf("%q, %s: %w", m.Name, filepath.Base(path), err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := Source{}
	for path := range cases {
		file, between, err := parse(s[path])
		if err != nil {
			return nil, err
		}
		at := file.FileStart
		for j, d := range file.Decls {
			if body := cases[path][j]; body != "" {
				begins := d.(*ast.FuncDecl).Body.Lbrace + 1
				out[path] += between(at, begins) + "\n\tswitch mutant__running {" + body + "\n\t}\n"
				at = begins
			}
		}
		out[path] += between(at, file.FileEnd)
		out[filepath.Join(filepath.Dir(path), "mutant__running.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar mutant__running = map[string]int{\n%s}[os.Getenv(%q)]\n",
			file.Name.Name, &numbers, variable)
	}
	return out, nil
}

// parse returns the parsed file, and a function that returns the text between two positions in the file.
func parse(text string) (file *ast.File, between func(from, to token.Pos) string, err error) {
	file, err = parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	return file, func(from, to token.Pos) string { return text[from-file.FileStart : to-file.FileStart] }, err
}

// addCases adds the function bodies in which the file text, mutated by mutation i, differs from source.
func addCases(cases map[int]string, i int, source, text string) error {
	old, oldText, err := parse(source)
	if err != nil {
		return err
	}
	mutated, newText, err := parse(text)
	if err != nil {
		return err
	}
	if len(old.Decls) != len(mutated.Decls) {
		return errors.New("a mutation may not add or remove a declaration")
	}
	for j, d := range old.Decls {
		now := mutated.Decls[j]
		if oldText(d.Pos(), d.End()) == newText(now.Pos(), now.End()) {
			continue
		}
		was, ok := d.(*ast.FuncDecl)
		is, ok2 := now.(*ast.FuncDecl)
		if !ok || !ok2 || oldText(was.Pos(), was.Body.Lbrace) != newText(is.Pos(), is.Body.Lbrace) {
			return fmt.Errorf("a mutation may change the bodies of functions only, not %.60q",
				oldText(d.Pos(), d.End()))
		}
		cases[j] += fmt.Sprintf("\n\tcase %d:\n\t\t%s", i, newText(is.Body.Lbrace, is.End()))
		if is.Type.Results == nil {
			cases[j] += "\n\t\treturn"
		}
	}
	return nil
}

// Tests has the tests of one package, built with mutations.
type Tests struct{ binary string }

// Build builds the tests of the package pkg, such as "./hybrid", with the mutations. Build fails t if the
// text of an edit does not occur exactly once or the mutated source does not compile.
func (s Source) Build(t testing.TB, pkg string, mutations []Mutation) Tests {
	t.Helper()
	switched, err := s.withSwitches(mutations)
	testkit.NoErr(t, err)
	dir := t.TempDir()
	overlay := map[string]string{}
	for path, text := range switched {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		testkit.NoErr(t, os.WriteFile(file, []byte(text), 0o600))
		overlay[path] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	testkit.NoErr(t, err)
	listFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants.test")
	testkit.NoErr(t, os.WriteFile(listFile, list, 0o600))
	compile := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+listFile, "-o="+binary, pkg)
	compile.Dir = testkit.ModuleRoot()
	out, err := compile.CombinedOutput()
	testkit.Must(t, err == nil, "the edited source does not compile: %v\n%s", err, out)
	return Tests{binary}
}

// Fails runs the tests whose names match the regular expression test, under the named mutation, and fails t
// unless a test fails. A panic does not count as a failure. Fails returns the output.
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
