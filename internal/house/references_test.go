package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// bound limits how much the files of one package depend on each other. Tests are left out.
type bound struct {
	references float64 // mean number of the package's other files that a file uses
	cycle      int     // files that use each other, directly or through others
	methods    int     // of one type, those of what it embeds included
	spread     int     // files that the methods of one type are in
	lines      int     // of a file
}

// bounds has every package above 1,000 lines, and holds it where it is. Wanted are 4, 6, 60 and 4. A file uses
// another one where it names a declaration, a method or a field of it.
var bounds = map[string]bound{
	"lease":                          {references: 2, cycle: 4, methods: 60, spread: 4, lines: 700},
	"internal/protocol":              {references: 4, cycle: 4, methods: 60, spread: 4, lines: 700},
	"hybrid":                         {references: 4, cycle: 6, methods: 60, spread: 4, lines: 700},
	"hybrid/httplimit":               {references: 2, cycle: 4, methods: 60, spread: 4, lines: 700},
	"hybrid/httplimit/rules":         {references: 2.5, cycle: 6, methods: 60, spread: 4, lines: 700},
	"redisbucket":                    {references: 4, cycle: 4, methods: 60, spread: 4, lines: 700},
	"sim/engine":                     {references: 4, cycle: 6, methods: 60, spread: 4, lines: 700},
	"sim/view":                       {references: 3.2, cycle: 2, methods: 60, spread: 4, lines: 700},
	"sim/search":                     {references: 3, cycle: 4, methods: 60, spread: 4, lines: 700},
	"sim/scenario":                   {references: 3, cycle: 3, methods: 60, spread: 4, lines: 700},
	"sim/rival":                      {references: 2.5, cycle: 4, methods: 60, spread: 4, lines: 700},
	"sim/cmd/leasesim":               {references: 2.5, cycle: 1, methods: 60, spread: 4, lines: 700},
	"sim/cmd/leasesim/internal/live": {references: 3, cycle: 2, methods: 60, spread: 4, lines: 700},
}

// TestEveryLargePackageIsBounded leaves out what is generated, and modules of their own.
func TestEveryLargePackageIsBounded(t *testing.T) {
	for _, p := range packages(t) {
		lines := 0
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			testkit.NoErr(t, err)
			lines += bytes.Count(text, []byte("\n"))
		}
		_, bounded := bounds[p.folder()]
		testkit.Check(t, bounded || lines <= 1000, "%s has %d lines and no bounds", p.folder(), lines)
	}
}

func TestFilesOfAPackageStandApart(t *testing.T) {
	all := exported(t)
	for folder, most := range bounds {
		p := uses(t, all, folder)
		t.Logf("%-18s %v", folder, p)
		testkit.Check(t, p.mean() <= most.references,
			"%s: a file uses %.1f others of its package, must be at most %.1f\n%s",
			folder, p.mean(), most.references, p.listed())
		cycle := p.largestCycle()
		testkit.Check(t, len(cycle) <= most.cycle, "%s: %d files use each other, must be at most %d: %v",
			folder, len(cycle), most.cycle, cycle)
		for typ, files := range p.methods {
			testkit.Check(t, len(files) <= most.spread,
				"%s: the methods of %s are in %d files, must be at most %d: %v",
				folder, typ, len(files), most.spread, slices.Sorted(maps.Keys(files)))
		}
		for typ, n := range p.methodsOf {
			testkit.Check(t, n <= most.methods, "%s: %s has %d methods, must be at most %d", folder, typ, n,
				most.methods)
		}
		for file, n := range p.lines {
			testkit.Check(t, n <= most.lines, "%s/%s has %d lines, must be at most %d", folder, file, n, most.lines)
		}
	}
}

// bucketSide are the files of internal/protocol that the bucket consists of.
var bucketSide = []string{
	"bucket.go", "bucket_change.go", "bucket_dump.go", "bucket_grant.go", "fair.go", "kind.go", "kind_bucket.go",
	"kind_window.go", "limits.go", "ring.go",
}

// TestTheBucketUsesNothingOfTheClient: the reference of the Lua scripts stands without the process's side.
func TestTheBucketUsesNothingOfTheClient(t *testing.T) {
	p := uses(t, exported(t), "internal/protocol")
	for _, file := range bucketSide {
		testkit.Must(t, p.uses[file] != nil, "internal/protocol has no file %s", file)
		for other, names := range p.uses[file] {
			testkit.Check(t, slices.Contains(bucketSide, other), "%s uses %v of %s, which is the client's",
				file, slices.Sorted(maps.Keys(names)), other)
		}
	}
}

// used tells which files of a package use which others, and what of them.
type used struct {
	uses    map[string]map[string]map[string]bool // by file, other file, and name
	methods map[string]map[string]bool            // files, by the type whose methods they have
	lines   map[string]int

	methodsOf map[string]int // by type, with those of what it embeds
}

// uses reads the package in folder.
func uses(t *testing.T, all map[string]listed, folder string) used {
	t.Helper()
	set, files := sources(t, filepath.Join("../..", folder))
	u := used{
		map[string]map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]int{}, map[string]int{},
	}
	fileOf := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	for name, file := range files {
		if !slices.Contains(all[module+"/"+folder].GoFiles, name) { // by its build tags
			delete(files, name)
			continue
		}
		u.uses[name], u.lines[name] = map[string]map[string]bool{}, set.File(file.FileStart).LineCount()
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) }
	info := types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	pkg, err := config.Check(folder, set, slices.Collect(maps.Values(files)), &info)
	testkit.NoErr(t, err)
	for id, o := range info.Uses {
		from, to := fileOf(id.Pos()), ""
		if o.Pkg() != pkg || !sharedByFiles(o) {
			continue
		}
		if to = fileOf(o.Pos()); from == to {
			continue
		}
		if u.uses[from][to] == nil {
			u.uses[from][to] = map[string]bool{}
		}
		u.uses[from][to][o.Name()] = true
	}
	for _, name := range pkg.Scope().Names() {
		if o, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && !types.IsInterface(o.Type()) {
			u.methodsOf[name] = types.NewMethodSet(types.NewPointer(o.Type())).Len()
		}
	}
	for id, o := range info.Defs {
		f, ok := o.(*types.Func)
		if !ok || f.Signature().Recv() == nil || types.IsInterface(f.Signature().Recv().Type()) {
			continue
		}
		typ := types.TypeString(f.Signature().Recv().Type(), func(*types.Package) string { return "" })
		typ = strings.TrimPrefix(typ, "*")
		if u.methods[typ] == nil {
			u.methods[typ] = map[string]bool{}
		}
		u.methods[typ][fileOf(id.Pos())] = true
	}
	return u
}

// sharedByFiles reports whether o is a declaration of a package, a method or a field, and not local.
func sharedByFiles(o types.Object) bool {
	switch o := o.(type) {
	case *types.Var:
		return o.IsField() || o.Parent() == o.Pkg().Scope()
	case *types.Func:
		return true
	default:
		return o.Parent() == o.Pkg().Scope()
	}
}

func (u used) mean() float64 {
	n := 0
	for _, others := range u.uses {
		n += len(others)
	}
	return float64(n) / float64(max(1, len(u.uses)))
}

// largestCycle returns the largest set of files each of which reaches every other one.
func (u used) largestCycle() (largest []string) {
	reach := map[string]map[string]bool{}
	for file := range u.uses {
		reach[file] = map[string]bool{}
		for next := []string{file}; len(next) > 0; next = next[1:] {
			for other := range u.uses[next[0]] {
				if !reach[file][other] {
					reach[file][other] = true
					next = append(next, other)
				}
			}
		}
	}
	for file := range u.uses {
		var cycle []string
		for other := range reach[file] {
			if reach[other][file] {
				cycle = append(cycle, other)
			}
		}
		if len(cycle) > len(largest) {
			largest = cycle
		}
	}
	slices.Sort(largest)
	return largest
}

// listed names the files that each file uses.
func (u used) listed() string {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(u.uses)) {
		fmt.Fprintf(&b, "%s: %v\n", file, slices.Sorted(maps.Keys(u.uses[file])))
	}
	return b.String()
}

func (u used) String() string {
	return fmt.Sprintf("%d files, %.1f references a file, %d files in the largest cycle", len(u.uses), u.mean(),
		len(u.largestCycle()))
}
