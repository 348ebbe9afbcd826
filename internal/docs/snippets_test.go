package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// given are the variables that a page's Go code may use without saying where they come from.
const given = `ctx context.Context, client *redis.Client, store lease.Store,
	limiter, perUser *hybrid.Limiter, key *hybrid.Key, w http.ResponseWriter, r *http.Request, mux *http.ServeMux,
	secret []byte, apiKey string, t *testing.T`

// imports are the packages of the pages' Go code by the names that it has for them.
var imports = map[string]string{
	"hmac": "crypto/hmac", "sha256": "crypto/sha256", "hex": "encoding/hex",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "math": "math",
	"netip": "net/netip", "os": "os", "slog": "log/slog", "strconv": "strconv", "strings": "strings",
	"time":  "time",
	"redis": "github.com/redis/go-redis/v9", "redis_rate": "github.com/go-redis/redis_rate/v10",
	"rate": "golang.org/x/time/rate", "lease": module + "/lease", "redisbucket": module + "/redisbucket",
	"testing": "testing", "synctest": "testing/synctest", "httptest": "net/http/httptest",
	"hybridtest": module + "/hybrid/hybridtest", "memory": module + "/lease/memory",
	"hybrid": module + "/hybrid", "xtime": module + "/hybrid/xtime",
	"httplimit": module + "/hybrid/httplimit", "rules": module + "/hybrid/httplimit/rules",
	"rpclimit": module + "/hybrid/rpclimit", "hybridotel": module + "/hybrid/hybridotel",
}

const module = "github.com/yuzhi-go/yuzhi"

// TestGoCodeOfThePagesCompiles, each block by itself: declarations as a file, statements as the
// body of a function. (That of the migration guides is run: TestGuideCodeIsRun.)
func TestGoCodeOfThePagesCompiles(t *testing.T) {
	r, set := read(t), token.NewFileSet()
	var files []*ast.File
	for _, page := range r.pages() {
		for _, b := range r.blocks(page, "go") {
			if strings.HasPrefix(page, "docs/from-") {
				continue
			}
			file, err := complete(set, b.text, fmt.Sprintf("//line %s:%d\n", page, b.line))
			testkit.Check(t, err == nil, "%v", err)
			if err == nil {
				files = append(files, file)
			}
		}
	}
	testkit.Must(t, len(files) > 0, "the pages have no Go code, or mark it otherwise")
	compiled := compiledPackages(t, files)
	check := types.Config{
		Error: func(err error) { t.Error(err) },
		Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
			if compiled[path] == "" {
				return nil, errors.New("there is no package " + path)
			}
			return os.Open(compiled[path])
		}),
	}
	for _, file := range files {
		check.Check("p", set, []*ast.File{file}, nil) // Error has the error
	}
}

// complete makes a file of a block: it adds the package, the imports, a function around statements,
// and a use of each variable that they declare. The line directive says where the block stands.
func complete(set *token.FileSet, block, line string) (*ast.File, error) {
	parse := func(source string) (*ast.File, error) { return parser.ParseFile(set, "", source, 0) }
	if strings.HasPrefix(block, "package ") {
		return parse(line + block)
	}
	text, used := line+block, map[string]bool{}
	file, err := parse("package p\n" + text)
	if err != nil {
		head, tail := "func _("+given+") {\n{\n"+line, "}\n}\n"
		if file, err = parse("package p\n" + head + block + tail); err != nil {
			return nil, err
		}
		var uses strings.Builder
		for _, s := range file.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.BlockStmt).List {
			if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
				for _, left := range a.Lhs {
					fmt.Fprintf(&uses, "_ = %s\n", left.(*ast.Ident).Name)
				}
			}
		}
		text = head + block + strings.ReplaceAll(uses.String(), "_ = _\n", "") + tail
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && imports[id.Name] != "" {
				used[id.Name] = true
			}
		}
		return true
	})
	header := "package p\n"
	if len(file.Imports) == 0 {
		for _, name := range slices.Sorted(maps.Keys(used)) {
			header += fmt.Sprintf("import %s %q\n", name, imports[name])
		}
	}
	return parse(header + text)
}

// compiledPackages has the compiler's file of each package that files import.
func compiledPackages(t *testing.T, files []*ast.File) map[string]string {
	t.Helper()
	paths := map[string]bool{}
	for _, f := range files {
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			paths[name] = true
		}
	}
	arguments := []string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}"}
	list := exec.Command("go", slices.AppendSeq(arguments, maps.Keys(paths))...)
	list.Dir = root
	out, err := list.CombinedOutput()
	testkit.Must(t, err == nil, "%v\n%s", err, out)
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[name] = file
	}
	return compiled
}

// TestRulesOfThePagesAreValid: the rules that pages show in YAML.
func TestRulesOfThePagesAreValid(t *testing.T) {
	r, found := read(t), 0
	for _, page := range r.pages() {
		for _, b := range r.blocks(page, "yaml") {
			if strings.Contains(b.text, "\nroutes:") {
				found++
				_, err := rules.Parse(page, []byte(b.text))
				testkit.NoErr(t, err)
			}
		}
	}
	testkit.Check(t, found > 0, "no page has rules in YAML")
}

// TestTheProgramOfTheREADMERuns takes the first program out of the page, which has at most 25 lines,
// and runs it as it stands, in a module of its own. It starts a Redis where none answers.
func TestTheProgramOfTheREADMERuns(t *testing.T) {
	program := read(t).blocks("README.md", "go")[0].text
	testkit.Check(t, strings.HasPrefix(program, "package main\n") && strings.Count(program, "\n") <= 25,
		"the page does not begin with a program of at most 25 lines:\n%s", program)
	testkit.LongOnly(t) // TestGoCodeOfThePagesCompiles has that it compiles
	dir, binary := t.TempDir(), filepath.Join(t.TempDir(), "program"+exe)
	repository, err := filepath.Abs(root)
	testkit.NoErr(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	testkit.NoErr(t, err)
	for file, text := range map[string]string{
		"main.go": program,
		"go.sum":  string(sums),
		"go.mod": fmt.Sprintf("module program\ngo 1.26.0\nrequire %s v0.0.0\nreplace %s => %q\n",
			module, module, repository),
	} {
		testkit.NoErr(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", binary, ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	testkit.Must(t, err == nil, "%v: %s", err, out)

	// The first request is denied where its call takes longer than CallTimeout.
	testkit.Eventually(t, `the program prints "served"`, func() bool {
		server := miniredis.NewMiniRedis()
		if server.StartAddr("localhost:6379") == nil { // otherwise there is one
			defer server.Close()
		}
		out, err := exec.Command(binary).CombinedOutput()
		testkit.Must(t, err == nil, "%v: %s", err, out)
		return string(out) == "served\n"
	})
}
