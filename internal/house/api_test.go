package house

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestTheAPIStaysSmall counts the exported names that a user of hybrid meets, those of its aliases included,
// and what lease has beyond them for the author of a Store. Methods and fields count.
func TestTheAPIStaysSmall(t *testing.T) {
	all, seen := exported(t), map[types.Type]bool{}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) }
	from := importer.ForCompiler(token.NewFileSet(), "gc", lookup)
	names := map[string]bool{}
	for _, p := range []struct {
		folder string
		most   int
	}{{"hybrid", 219}, {"lease", 119}} {
		pkg, err := from.Import(module + "/" + p.folder)
		testkit.NoErr(t, err)
		n := 0
		for _, name := range pkg.Scope().Names() {
			o := pkg.Scope().Lookup(name)
			if !o.Exported() {
				continue
			}
			if !names[name] {
				n++
			}
			names[name] = true
			if typ, ok := o.(*types.TypeName); ok && !seen[types.Unalias(typ.Type())] {
				seen[types.Unalias(typ.Type())] = true
				n += members(types.Unalias(typ.Type()))
			}
		}
		t.Logf("%s: %d exported names, must be at most %d", p.folder, n, p.most)
		testkit.Check(t, n <= p.most, "%s exports %d names, must be at most %d", p.folder, n, p.most)
	}
}

// members counts the exported methods and fields that typ declares.
func members(typ types.Type) (n int) {
	named, ok := typ.(*types.Named)
	if !ok {
		return 0
	}
	for m := range named.Methods() {
		if m.Exported() {
			n++
		}
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if f.Exported() {
				n++
			}
		}
	case *types.Interface:
		n += u.NumMethods()
	}
	return n
}
