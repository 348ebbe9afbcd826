package yuzhi_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// given are the variables that a page's Go code may use without saying where they come from.
const given = `ctx context.Context, client *redis.Client, store lease.Store, limiter, perUser *hybrid.Limiter, key *hybrid.Key,
	w http.ResponseWriter, r *http.Request, mux *http.ServeMux, secret []byte, apiKey string`

// imports are the packages of the pages' Go code by the names that it has for them.
var imports = map[string]string{
	"hmac": "crypto/hmac", "sha256": "crypto/sha256", "hex": "encoding/hex",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "math": "math",
	"netip": "net/netip", "os": "os", "slog": "log/slog", "strconv": "strconv", "strings": "strings", "time": "time",
	"redis": "github.com/redis/go-redis/v9", "redis_rate": "github.com/go-redis/redis_rate/v10", "rate": "golang.org/x/time/rate",
	"hybrid": module + "/hybrid", "xtime": module + "/hybrid/xtime", "lease": module + "/lease", "redisbucket": module + "/redisbucket",
	"httplimit": module + "/hybrid/httplimit", "rules": module + "/hybrid/httplimit/rules",
	"rpclimit": module + "/hybrid/rpclimit", "hybridotel": module + "/hybrid/hybridotel",
}

const module = "github.com/yuzhi-go/yuzhi"

var goBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$")

// TestGoCodeOfThePagesCompiles, each block by itself: declarations as a file, statements as the
// body of a function. (That of the migration guides is run: TestGuideCodeIsRun.)
func TestGoCodeOfThePagesCompiles(t *testing.T) {
	texts := readRepository(t).texts
	places := map[string]string{} // by the name of the block's package
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	folder := t.TempDir()
	packages := []string{}
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		if path.Ext(page) != ".md" || strings.HasPrefix(page, "docs/from-") {
			continue
		}
		for _, m := range goBlock.FindAllStringSubmatchIndex(texts[page], -1) {
			place := fmt.Sprintf("%s:%d", page, strings.Count(texts[page][:m[2]], "\n")+1)
			source, err := compilable(texts[page][m[2]:m[3]])
			if err != nil {
				t.Errorf("%s: %v", place, err)
				continue
			}
			name := fmt.Sprint("block", len(places)+1)
			places[name] = place
			file := filepath.Join(folder, name+".go")
			testkit.NoErr(t, os.WriteFile(file, []byte(source), 0o600))
			virtual, err := filepath.Abs(filepath.Join("docs", name, "block.go"))
			testkit.NoErr(t, err)
			overlay.Replace[virtual] = file
			packages = append(packages, "./docs/"+name)
		}
	}
	testkit.Must(t, len(packages) > 0, "the pages have no Go code, or mark it otherwise")
	list := filepath.Join(folder, "overlay.json")
	data, err := json.Marshal(overlay)
	testkit.NoErr(t, err)
	testkit.NoErr(t, os.WriteFile(list, data, 0o600))
	out, err := exec.Command("go", append([]string{"build", "-overlay", list}, packages...)...).CombinedOutput()
	said := regexp.MustCompile(`block\d+\b`).ReplaceAllStringFunc(string(out), func(name string) string {
		return name + " (" + places[name] + ")"
	})
	testkit.Check(t, err == nil, "%v\n%s", err, said)
}

// TestRulesOfThePagesAreValid: the rules that pages show in YAML.
func TestRulesOfThePagesAreValid(t *testing.T) {
	found := 0
	for page, text := range readRepository(t).texts {
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if path.Ext(page) == ".md" && strings.Contains(m[1], "\nroutes:") {
				found++
				_, err := rules.Parse(page, []byte(m[1]))
				testkit.NoErr(t, err)
			}
		}
	}
	testkit.Check(t, found > 0, "no page has rules in YAML")
}

// compilable makes a file of a block: it adds the package, the imports, a function around
// statements, and a use of each variable that they declare.
func compilable(block string) (string, error) {
	if strings.HasPrefix(block, "package ") {
		return block, nil
	}
	fset := token.NewFileSet()
	text := block
	file, err := parser.ParseFile(fset, "", "package p\n"+text, 0)
	if err != nil {
		text = "func _(" + given + ") {\n{\n" + block + "}\n}\n"
		if file, err = parser.ParseFile(fset, "", "package p\n"+text, 0); err != nil {
			return "", err
		}
		var uses strings.Builder
		body := file.Decls[0].(*ast.FuncDecl).Body.List[0].(*ast.BlockStmt)
		for _, s := range body.List {
			if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
				for _, left := range a.Lhs {
					if id := left.(*ast.Ident); id.Name != "_" {
						fmt.Fprintf(&uses, "_ = %s\n", id.Name)
					}
				}
			}
		}
		text = strings.TrimSuffix(text, "}\n}\n") + uses.String() + "}\n}\n"
	}
	used := map[string]bool{}
	if strings.HasPrefix(text, "func _("+given) {
		for _, name := range []string{"context", "redis", "lease", "hybrid", "http"} {
			used[name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && imports[id.Name] != "" {
				used[id.Name] = true
			}
		}
		return true
	})
	var header strings.Builder
	header.WriteString("package p\n")
	if len(file.Imports) == 0 {
		for _, name := range slices.Sorted(maps.Keys(used)) {
			fmt.Fprintf(&header, "import %s %q\n", name, imports[name])
		}
	}
	return header.String() + text, nil
}
