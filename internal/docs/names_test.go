package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// public are the folders of the packages that users import.
var public = []string{"clock", "lease", "lease/memory", "redisbucket", "hybrid", "hybrid/xtime",
	"hybrid/httplimit", "hybrid/httplimit/rules", "hybrid/rpclimit", "hybrid/hybridotel"}

// receiver is the name of the type that a method belongs to.
func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name
}

// sources are the files of a package, without its tests.
func sources(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	testkit.NoErr(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			name := path.Join(folder, e.Name())
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			testkit.NoErr(t, err)
			files = append(files, file)
		}
	}
	return files
}

// TestEveryExportedNameHasAComment: that of a function begins with its name. A group of constants,
// variables or aliases may share one, and a field may be named by its type's, which also does for
// the methods of an interface. The fields of package lease's messages need none: docs/protocol.md
// has their meaning.
func TestEveryExportedNameHasAComment(t *testing.T) {
	for _, folder := range public {
		for _, file := range sources(t, path.Join(root, folder)) {
			ast.FileExports(file)
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					begins := regexp.MustCompile(`^` + d.Name.Name + `\b`).MatchString(d.Doc.Text())
					testkit.Check(t, begins || d.Recv != nil && !ast.IsExported(receiver(d)),
						"%s of %s has no comment that begins with it", d.Name.Name, folder)
				case *ast.GenDecl:
					for _, s := range d.Specs {
						for _, name := range uncommented(s, d.Doc.Text(), folder == "lease") {
							t.Errorf("%s of %s has no comment", name, folder)
						}
					}
				}
			}
		}
	}
}

// uncommented returns the names of one part of a declaration, which has a comment of its own, that have
// none. Messages are types whose fields need none.
func uncommented(s ast.Spec, comment string, messages bool) (names []string) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		if comment+s.Doc.Text()+s.Comment.Text() == "" {
			for _, id := range s.Names {
				names = append(names, id.Name)
			}
		}
	case *ast.TypeSpec:
		if comment += s.Doc.Text(); comment == "" {
			names = append(names, s.Name.Name)
		}
		structure, ok := s.Type.(*ast.StructType)
		if !ok || messages && s.Name.Name != "Limit" && s.Name.Name != "Policy" {
			return names
		}
		for _, f := range structure.Fields.List {
			for _, id := range f.Names {
				named := regexp.MustCompile(`\b` + id.Name + `\b`).MatchString(comment)
				if !named && f.Doc.Text()+f.Comment.Text() == "" {
					names = append(names, s.Name.Name+"."+id.Name)
				}
			}
		}
	}
	return names
}
