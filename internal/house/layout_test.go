package house

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const module = "github.com/yuzhi-go/yuzhi"

// listed holds the part of `go list -json` that the rules need.
type listed struct {
	ImportPath, Dir string
	Export          string // a file with what the compiler knows of the package
	GoFiles         []string
	Imports         []string // of everything but tests
	Deps            []string
	DepOnly         bool // of a package that is not below the module's root
}

func (p listed) folder() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// listOnce runs `go list` on the whole module and all that it depends on, once for all tests.
var listOnce = sync.OnceValues(func() (all []listed, err error) {
	cmd := exec.Command("go", "list", "-e", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,Imports,Deps,DepOnly", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		var p listed
		err = d.Decode(&p)
		all = append(all, p)
	}
	return all, err
})

// packages lists the packages of the module.
func packages(t *testing.T) (own []listed) {
	t.Helper()
	all, err := listOnce()
	testkit.NoErr(t, err)
	own = slices.DeleteFunc(slices.Clone(all), func(p listed) bool { return p.DepOnly })
	testkit.Must(t, len(own) > 0, "go list names no package")
	return own
}

// exported lists the packages of the module and all that they depend on, by their paths.
func exported(t *testing.T) map[string]listed {
	t.Helper()
	all, err := listOnce()
	testkit.NoErr(t, err)
	byPath := map[string]listed{}
	for _, p := range all {
		byPath[p.ImportPath] = p
	}
	return byPath
}

// under says whether path is folder or below it.
func under(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func isStandard(path string) bool { return !strings.Contains(strings.Split(path, "/")[0], ".") }

// allowed returns the rule of folder, or else that of the nearest folder above it.
func allowed(rules map[string][]string, folder string) []string {
	for ; folder != "." && folder != ""; folder = path.Dir(folder) {
		if all, ok := rules[folder]; ok {
			return all
		}
	}
	return nil
}

// arrows say which packages of this module each package may import directly.
var arrows = map[string][]string{
	"clock":        nil,
	"lease":        {"clock", "internal/exact", "internal/keyhash", "internal/violation"},
	"redisbucket":  {"clock", "lease", "internal/exact", "internal/keyhash", "internal/protocol", "internal/violation"},
	"lease/memory": {"clock", "lease", "internal/protocol"},
	// Of redisbucket one file knows: see TestOneFileOfHybridKnowsRedis.
	"hybrid": {"clock", "lease", "lease/memory", "hybrid", "hybrid/internal/events", "hybrid/internal/outage", "redisbucket",
		"internal/hook", "internal/keyhash", "internal/node", "internal/pool", "internal/protocol", "internal/safetext", "internal/violation"},

	"hybrid/hybridotel":         {"hybrid", "lease", "lease/memory", "redisbucket"},
	"hybrid/xtime":              {"hybrid", "internal/safetext"},
	"hybrid/hybridtest":         {"lease", "internal/protocol", "internal/testkit"},
	"hybrid/internal/admission": {"hybrid"},
	"hybrid/internal/events":    nil,
	"hybrid/internal/outage":    {"clock", "lease", "hybrid/internal/events", "internal/safetext"},
	"hybrid/rpclimit":           {"hybrid", "hybrid/internal/admission"},
	"hybrid/httplimit":          {"hybrid", "lease", "hybrid/internal/admission"},
	"hybrid/httplimit/rules": {"hybrid", "hybrid/httplimit", "lease", "internal/safetext",
		"internal/violation", "internal/yamlfile"},

	"internal/exact":     nil,
	"internal/keyhash":   nil,
	"internal/faults":    nil,
	"internal/house":     nil,
	"internal/mutant":    {"internal/testkit"},
	"internal/node":      {"clock", "internal/protocol", "lease"},
	"internal/pool":      {"clock"},
	"internal/protocol":  {"clock", "lease", "internal/exact", "internal/pool"},
	"internal/redistest": {"internal/testkit"},
	"internal/hook":      nil,
	"internal/safetext":  nil,
	"internal/stamps":    {"sim/audit"},
	"internal/testkit":   {"clock"},
	"internal/violation": nil,
	"internal/yamlfile":  {"internal/violation"},

	"sim":        {"sim/engine", "sim/report", "sim/scenario"},
	"sim/random": nil,
	"sim/audit":  {"lease", "internal/exact"},
	"sim/rival":  {"lease", "internal/exact", "internal/violation"},
	"sim/scenario": {"lease", "internal/protocol", "sim/random", "sim/rival", "sim/scenario",
		"sim/scenario/trace", "internal/violation"},
	"sim/arrival":       {"sim/scenario", "sim/random"},
	"sim/scenario/file": {"lease", "sim/scenario", "sim/scenario/trace", "internal/violation", "internal/yamlfile"},
	"sim/report":        {"sim/scenario"},
	"sim/engine": {"clock", "lease", "internal/node", "internal/pool", "internal/protocol", "sim/scenario",
		"sim/arrival", "sim/audit", "sim/report", "sim/rival", "sim/random"},
	"sim/search": {"lease", "internal/protocol", "sim", "sim/random", "sim/report", "sim/scenario/file"},
	"sim/view":   {"lease", "sim", "sim/rival", "sim/search"},

	"sim/cmd/leasesim": {
		"lease", "redisbucket", "sim", "sim/rival", "sim/scenario/file", "sim/scenario/trace", "sim/search",
		"sim/view", "internal/safetext",
		"sim/cmd/leasesim/internal/live", "sim/cmd/leasesim/internal/ui",
	},

	"sim/cmd/leasesim/internal": {
		"hybrid", "lease", "redisbucket", "internal/hook", "internal/stamps", "sim", "sim/audit", "sim/rival", "sim/scenario/file",
		"sim/view", "internal/violation",
	},
	"sim/cmd/leasesim/internal/ui": {
		"lease", "internal/violation", "sim", "sim/rival", "sim/scenario", "sim/scenario/file", "sim/search", "sim/view",
	},
}

// storeClient are the modules of the Redis client and of its callers.
var storeClient = []string{"github.com/redis/go-redis/v9", "golang.org/x/sync"}

// foreign are the modules that the folders outside sim may import directly.
var foreign = map[string][]string{
	"clock":                  nil,
	"lease":                  nil,
	"redisbucket":            storeClient,
	"hybrid":                 storeClient,
	"internal/redistest":     {"github.com/alicebob/miniredis/v2"},
	"internal/stamps":        {"golang.org/x/sys"},
	"internal/yamlfile":      {"go.yaml.in/yaml/v4"},
	"hybrid/httplimit":       nil,
	"hybrid/httplimit/rules": {"go.yaml.in/yaml/v4"},
	"hybrid/hybridotel":      {"go.opentelemetry.io/otel"},
	"hybrid/xtime":           {"golang.org/x/time"},
}

// workbench are the modules that the simulator and its command need and that no program which uses
// the limiter links, but for those that use a package to which foreign allows one.
var workbench = []string{
	"github.com/spf13/cobra", "go.yaml.in/yaml/v4", "gonum.org/v1", "github.com/HdrHistogram/hdrhistogram-go",
	"github.com/alicebob/miniredis/v2",
}

func TestImportsFollowTheArrows(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		folder, sim := p.folder(), under(p.folder(), "sim")
		for _, i := range p.Imports {
			inside, ok := strings.CutPrefix(i, module+"/")
			may := allowed(arrows, folder)
			testkit.Check(t, !ok || slices.Contains(may, inside), "%s imports %s; it may import %v of this module",
				folder, inside, may)
			if !ok && !isStandard(i) && folder != "" && !sim {
				may = allowed(foreign, folder)
				testkit.Check(t, slices.ContainsFunc(may, func(f string) bool { return under(i, f) }),
					"%s imports %s directly; outside sim only %v may be there", folder, i, may)
			}
		}
	}
	for folder := range arrows {
		testkit.Check(t, slices.ContainsFunc(all, func(p listed) bool { return under(p.folder(), folder) }),
			"there is a rule for %s, and no such package", folder)
	}
}

func TestNobodyLinksWhatHeMustNot(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		folder := p.folder()
		for _, dep := range p.Deps {
			inside, _ := strings.CutPrefix(dep, module+"/")
			meets := under(folder, "redisbucket") && under(inside, "hybrid")
			testkit.Check(t, !meets, "%s depends on %s; lease.Store joins them", folder, inside)
			telemetry := under(dep, "go.opentelemetry.io")
			testkit.Check(t, !telemetry || under(folder, "hybrid/hybridotel"), "%s links %s", folder, dep)
			sdk := under(dep, "go.opentelemetry.io/otel/sdk")
			testkit.Check(t, !sdk, "%s links %s, which is the program's business", folder, dep)
			i := slices.IndexFunc(workbench, func(m string) bool { return under(dep, m) })
			switch {
			case i < 0:
			case under(folder, "sim"):
				used[workbench[i]] = true
			default: // such as rules, which reads YAML and is a package of its own for that
				testkit.Check(t, slices.Contains(allowed(foreign, folder), workbench[i]), "%s links %s", folder, dep)
			}
		}
	}
	for _, m := range workbench {
		testkit.Check(t, used[m], "nothing below sim links %s: it can go, from here and from go.mod", m)
	}
}

// TestOneFileOfHybridKnowsRedis: lease.Store joins the limiter and Redis, but for the set-up in
// three lines.
func TestOneFileOfHybridKnowsRedis(t *testing.T) {
	set, files := sources(t, "../../hybrid")
	for name, file := range files {
		for _, i := range file.Imports {
			knows := strings.Contains(i.Path.Value, "redis")
			testkit.Check(t, !knows || name == "redis.go", "%s imports %s", set.Position(i.Pos()), i.Path.Value)
		}
	}
}

// sources are the files of a package but for tests, by their names.
func sources(t *testing.T, folder string) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	set, files := token.NewFileSet(), map[string]*ast.File{}
	entries, err := os.ReadDir(folder)
	testkit.NoErr(t, err)
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files[name], err = parser.ParseFile(set, path.Join(folder, name), nil, parser.ParseComments)
			testkit.NoErr(t, err)
		}
	}
	testkit.Must(t, len(files) > 0, "there is no source")
	return set, files
}

// TestTheProtocolIsPure: time comes in as an argument and randomness as a seed, and no goroutine is
// started, so that the simulator runs the very code that production runs.
func TestTheProtocolIsPure(t *testing.T) {
	for _, folder := range pureToo[1:] {
		set, files := sources(t, "../../"+folder)
		// They tell from which stripe a goroutine takes.
		delete(files, "pin_runtime.go")
		delete(files, "pin_portable.go")
		pure(t, set, files)
	}
}

// pureToo are the packages of this module that pure code may import.
var pureToo = []string{"clock", "lease", "internal/exact", "internal/keyhash", "internal/pool", "internal/protocol",
	"internal/violation"}

func pure(t *testing.T, set *token.FileSet, files map[string]*ast.File) {
	impure := []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "runtime"}
	readsTheClock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer",
		"NewTicker"}
	for name, file := range files {
		for _, i := range file.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			inside, ours := strings.CutPrefix(path, module+"/")
			pure := !slices.Contains(impure, path) && (path != "context" || name == "store.go") &&
				(isStandard(path) || ours && slices.Contains(pureToo, inside))
			testkit.Check(t, pure, "%s imports %s", set.Position(i.Pos()), path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", set.Position(n.Pos()))
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				reads := ok && x.Name == "time" && slices.Contains(readsTheClock, n.Sel.Name)
				testkit.Check(t, !reads, "%s uses time.%s", set.Position(n.Pos()), n.Sel.Name)
			}
			return true
		})
	}
}
