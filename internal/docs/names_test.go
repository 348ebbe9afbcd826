package docs

import (
	"cmp"
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

// export is an exported name of a package, as "Type.Name" that of a method or a field.
type export struct {
	name     string
	comment  string // of a method of an interface, and of a field that its type's names, or that one
	function bool
}

// exports are the exported names of the package in a folder.
func exports(t *testing.T, folder string) (all []export) {
	t.Helper()
	for _, file := range sources(t, folder) {
		ast.FileExports(file)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d) + "." + name
				}
				if ast.IsExported(name) {
					all = append(all, export{name: name, comment: d.Doc.Text(), function: true})
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					all = append(all, exportsOf(s, d.Doc.Text())...)
				}
			}
		}
	}
	return all
}

// exportsOf are the exported names of one part of a declaration, which has a comment of its own.
func exportsOf(s ast.Spec, comment string) (all []export) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			all = append(all, export{name: id.Name, comment: comment + s.Doc.Text() + s.Comment.Text()})
		}
	case *ast.TypeSpec:
		comment += s.Doc.Text()
		all = append(all, export{name: s.Name.Name, comment: comment})
		members := &ast.FieldList{}
		face, isFace := s.Type.(*ast.InterfaceType)
		if isFace {
			members = face.Methods
		} else if structure, ok := s.Type.(*ast.StructType); ok {
			members = structure.Fields
		}
		for _, f := range members.List {
			for _, id := range f.Names {
				own := f.Doc.Text() + f.Comment.Text()
				if own == "" && (isFace || regexp.MustCompile(`\b`+id.Name+`\b`).MatchString(comment)) {
					own = comment
				}
				all = append(all, export{name: s.Name.Name + "." + id.Name, comment: own})
			}
		}
	}
	return all
}

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
		for _, e := range exports(t, path.Join(root, folder)) {
			typ, member, _ := strings.Cut(e.name, ".")
			message := folder == "lease" && typ != "Limit" && typ != "Policy"
			if member != "" && !e.function && message {
				continue
			}
			begins := !e.function || regexp.MustCompile(`^`+cmp.Or(member, typ)+`\b`).MatchString(e.comment)
			testkit.Check(t, e.comment != "" && begins, "%s of %s has no comment, or one that begins otherwise",
				e.name, folder)
		}
	}
}
