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
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/yuzhi-go/yuzhi"

// listed is what the rules need of `go list -json`.
type listed struct {
	ImportPath string
	Imports    []string // of everything but tests
	Deps       []string
}

func (p listed) folder() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// list is what `go list` says of the whole module; packages that do not compile at the moment are
// listed all the same.
var list = sync.OnceValues(func() (all []listed, err error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		var p listed
		if err = d.Decode(&p); err == nil {
			all = append(all, p)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
})

func packages(t *testing.T) []listed {
	t.Helper()
	all, err := list()
	if err != nil || len(all) == 0 {
		t.Fatalf("go list: %d packages, %v", len(all), err)
	}
	return all
}

// under says whether path is folder or below it.
func under(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func isStandard(path string) bool { return !strings.Contains(strings.Split(path, "/")[0], ".") }

// arrows say which packages of this module each package may import directly. A package that is not
// listed has the rule of the nearest folder above it.
var arrows = map[string][]string{
	"clock":       nil,
	"lease":       {"clock"},
	"redisbucket": {"clock", "lease"},
	"hybrid":      {"clock", "lease", "hybrid"},

	"internal/faults":    nil,
	"internal/redistest": {"internal/testkit"},
	"internal/stamps":    {"sim/audit"},
	"internal/testkit":   {"clock"},

	"sim":          {"sim/engine", "sim/report", "sim/scenario"},
	"sim/random":   nil,
	"sim/audit":    nil,
	"sim/rival":    {"lease"},
	"sim/scenario": {"lease", "sim/random", "sim/scenario", "sim/scenario/trace"},
	"sim/arrival":  {"sim/scenario", "sim/random"},
	"sim/report":   {"sim/scenario"},
	"sim/engine": {"clock", "lease", "sim/scenario", "sim/arrival", "sim/audit", "sim/report",
		"sim/rival", "sim/random"},
	"sim/search": {"lease", "sim", "sim/random", "sim/scenario/file"},
	"sim/view":   {"lease", "sim", "sim/search"},

	"sim/cmd/leasesim": {
		"redisbucket", "sim", "sim/rival", "sim/scenario/file", "sim/scenario/trace", "sim/search",
		"sim/view",
		"sim/cmd/leasesim/internal/live",
	},
	"sim/cmd/leasesim/internal": {
		"hybrid", "lease", "redisbucket", "internal/stamps", "sim", "sim/audit", "sim/report",
		"sim/scenario/file",
	},
}

// foreign are the modules that the folders outside sim may import directly.
var foreign = map[string][]string{
	"clock": nil,
	"lease": nil,
	"redisbucket": {"github.com/redis/go-redis/v9", "golang.org/x/sync",
		"github.com/puzpuzpuz/xsync/v4"},
	"hybrid": {"github.com/redis/go-redis/v9", "golang.org/x/sync",
		"github.com/puzpuzpuz/xsync/v4"},
	"internal/redistest": {"github.com/alicebob/miniredis/v2"},
	"internal/stamps":    {"golang.org/x/sys"},
	"hybrid/hybridotel":  {"go.opentelemetry.io/otel"},
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range packages(t) {
		rule := p.folder()
		for _, ok := arrows[rule]; !ok && rule != "."; _, ok = arrows[rule] {
			rule = path.Dir(rule)
		}
		for _, i := range p.Imports {
			inside, ok := strings.CutPrefix(i, module+"/")
			if ok && !slices.Contains(arrows[rule], inside) {
				t.Errorf("%s imports %s; it may import %v of this module", p.folder(), inside, arrows[rule])
			}
		}
	}
	for folder := range arrows {
		if !slices.ContainsFunc(packages(t), func(p listed) bool { return under(p.folder(), folder) }) {
			t.Errorf("there is a rule for %s, and no such package", folder)
		}
	}
}

func TestHybridAndRedisbucketNeverMeet(t *testing.T) {
	for _, p := range packages(t) {
		for _, dep := range p.Deps {
			inside, ok := strings.CutPrefix(dep, module+"/")
			meets := under(p.folder(), "hybrid") && under(inside, "redisbucket") ||
				under(p.folder(), "redisbucket") && under(inside, "hybrid")
			if ok && meets {
				t.Errorf("%s depends on %s; lease.Store joins them", p.folder(), inside)
			}
		}
	}
}

func TestForeignModulesStayWhereTheyBelong(t *testing.T) {
	for _, p := range packages(t) {
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
				t.Errorf("%s imports %s directly; outside sim only %v may be there", p.folder(), i,
					foreign[best])
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
	for _, p := range packages(t) {
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
	readsTheClock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer",
		"NewTicker"}
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
			case path == "math/rand", path == "math/rand/v2", path == "crypto/rand", path == "os",
				path == "net", path == "runtime",
				path == "context" && name != "store.go", !isStandard(path) && path != module+"/clock":
				t.Errorf("%s imports %s", set.Position(i.Pos()), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && x.Name == "time" && slices.Contains(readsTheClock, n.Sel.Name) {
					t.Errorf("%s uses time.%s", set.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}
