package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestTheWayOfARequestIsThere: every method that docs/request.md names is in the file that it names before.
func TestTheWayOfARequestIsThere(t *testing.T) {
	cited := regexp.MustCompile("`([\\w/]+\\.go)`|`(\\w+)\\.(\\w+)`")
	file, found, methods := "", 0, map[string]map[string]bool{}
	for _, m := range cited.FindAllStringSubmatch(read(t).texts["docs/request.md"], -1) {
		if m[1] != "" {
			file = m[1]
			if methods[file] == nil {
				methods[file] = methodsOf(t, "../../"+file)
			}
			continue
		}
		if m[3] == "lua" {
			continue
		}
		found++
		testkit.Check(t, methods[file][m[2]+"."+m[3]], "%s has no method %s.%s", file, m[2], m[3])
	}
	testkit.Check(t, found > 30, "docs/request.md names %d methods", found)
}

// methodsOf are the methods of a file, each with its type.
func methodsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	testkit.NoErr(t, err)
	all := map[string]bool{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil {
			continue
		}
		typ := fn.Recv.List[0].Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if generic, ok := typ.(*ast.IndexExpr); ok {
			typ = generic.X
		}
		all[typ.(*ast.Ident).Name+"."+fn.Name.Name] = true
	}
	return all
}
