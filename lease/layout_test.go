package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/yuzhi-go/yuzhi"

// listed is what the rules need of `go list -json`.
type listed struct {
	ImportPath string
	Dir        string
	Imports    []string // of everything but tests
	Deps       []string
	GoFiles    []string
}

func (p listed) folder() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// list runs `go list` for the whole module; packages that do not compile at the moment are listed
// all the same.
func list(t *testing.T) []listed {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Imports,Deps,GoFiles", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// under says whether path is folder or below it.
func under(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func isStandard(path string) bool { return !strings.Contains(strings.Split(path, "/")[0], ".") }

// arrows say which folders of this module each folder may import directly.
var arrows = []struct {
	folder string
	may    []string
}{
	{"clock", nil},
	{"lease", []string{"clock"}},
	{"redisbucket", []string{"clock", "lease"}},
	{"hybrid", []string{"clock", "lease", "hybrid"}},
	{"internal/redistest", []string{"internal/testkit"}},
	{"internal/stamps", []string{"sim/audit"}},
	{"internal/testkit", []string{"clock"}},
	{"sim/cmd", []string{"clock", "lease", "hybrid", "redisbucket", "sim", "internal/stamps"}},
	{"sim/random", nil},
	{"sim/audit", nil},
	{"sim/rival", []string{"lease"}},
	{"sim/scenario", []string{"lease", "sim/scenario", "sim/random"}},
	{"sim/arrival", []string{"sim/scenario", "sim/random"}},
	{"sim/report", []string{"sim/scenario"}},
	{"sim/engine", []string{"clock", "lease", "sim/scenario", "sim/arrival", "sim/audit", "sim/report", "sim/rival", "sim/random"}},
	{"sim", []string{"clock", "lease", "sim"}},
}

// foreign are the modules that the folders outside sim may import directly.
var foreign = map[string][]string{
	"clock":              nil,
	"lease":              nil,
	"redisbucket":        {"github.com/redis/go-redis/v9", "golang.org/x/sync", "github.com/puzpuzpuz/xsync/v4"},
	"hybrid":             {"github.com/redis/go-redis/v9", "golang.org/x/sync", "github.com/puzpuzpuz/xsync/v4"},
	"internal/redistest": {"github.com/alicebob/miniredis/v2"},
	"internal/stamps":    {"golang.org/x/sys"},
	"hybrid/hybridotel":  {"go.opentelemetry.io/otel"},
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range list(t) {
		for _, rule := range arrows {
			if !under(p.folder(), rule.folder) {
				continue
			}
			for _, i := range p.Imports {
				inside, ok := strings.CutPrefix(i, module+"/")
				if !ok || slices.ContainsFunc(rule.may, func(m string) bool { return under(inside, m) }) {
					continue
				}
				t.Errorf("%s imports %s; it may import %v of this module", p.folder(), inside, rule.may)
			}
			break // the first, most specific rule
		}
	}
}

func TestHybridAndRedisbucketNeverMeet(t *testing.T) {
	for _, p := range list(t) {
		for _, dep := range p.Deps {
			inside, ok := strings.CutPrefix(dep, module+"/")
			if ok && (under(p.folder(), "hybrid") && under(inside, "redisbucket") || under(p.folder(), "redisbucket") && under(inside, "hybrid")) {
				t.Errorf("%s depends on %s; lease.Store joins them", p.folder(), inside)
			}
		}
	}
}

func TestForeignModulesStayWhereTheyBelong(t *testing.T) {
	for _, p := range list(t) {
		if p.folder() == "" || under(p.folder(), "sim") {
			continue
		}
		best := ""
		for folder := range foreign {
			if under(p.folder(), folder) && len(folder) > len(best) {
				best = folder
			}
		}
		for _, i := range p.Imports {
			if isStandard(i) || under(i, module) {
				continue
			}
			if !slices.ContainsFunc(foreign[best], func(f string) bool { return under(i, f) }) {
				t.Errorf("%s imports %s directly; outside sim only %v may be there", p.folder(), i, foreign[best])
			}
		}
	}
}

// workbench are the modules that the simulator and its command need and that no program which uses
// the limiter may link.
var workbench = []string{
	"github.com/spf13/cobra", "go.yaml.in/yaml/v4", "gonum.org/v1", "github.com/HdrHistogram/hdrhistogram-go",
	"github.com/schollz/progressbar/v3", "github.com/alicebob/miniredis/v2",
}

func TestTheWorkbenchIsLinkedBelowSimOnly(t *testing.T) {
	used := map[string]bool{}
	for _, p := range list(t) {
		for _, dep := range p.Deps {
			i := slices.IndexFunc(workbench, func(m string) bool { return under(dep, m) })
			switch {
			case i < 0:
			case under(p.folder(), "sim"):
				used[workbench[i]] = true
			case under(p.folder(), "internal/redistest"): // what tests of others are made with
			default:
				t.Errorf("%s links %s", p.folder(), dep)
			}
		}
	}
	for _, m := range workbench {
		if !used[m] {
			t.Errorf("nothing below sim links %s: it can go, from here and from go.mod", m)
		}
	}
}

// TestLeaseIsPure: time comes in as an argument and randomness as a seed, and nothing runs by
// itself, so that the simulator runs the very code that production runs.
func TestLeaseIsPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	readsTheClock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			switch {
			case path == "math/rand", path == "math/rand/v2", path == "crypto/rand", path == "os", path == "net", path == "runtime",
				path == "context" && name != "store.go", !isStandard(path) && path != module+"/clock":
				t.Errorf("%s imports %s", set.Position(i.Pos()), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(readsTheClock, n.Sel.Name) {
					t.Errorf("%s uses time.%s", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}
