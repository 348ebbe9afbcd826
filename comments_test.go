package yuzhi_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryExportedNameHasAComment that says what it promises. That of a function begins with
// its name. A group of constants, variables or aliases may share one, and what a type's comment
// names of its fields needs none of its own; nor do methods of interfaces, and the fields of
// package lease's messages, whose meaning is the protocol's.
func TestEveryExportedNameHasAComment(t *testing.T) {
	for _, folder := range []string{
		"clock", "hybrid", "hybrid/xtime", "hybrid/httplimit", "hybrid/httplimit/rules",
		"hybrid/rpclimit", "hybrid/hybridotel", "redisbucket", "lease",
	} {
		for _, file := range sources(t, folder) {
			for _, d := range file.Decls {
				for _, name := range uncommented(d, folder != "lease") {
					t.Errorf("%s of %s has no comment, or one that begins otherwise", name, folder)
				}
			}
		}
	}
}

// uncommented are the exported names of a declaration that no comment is about. Of fields those of
// Limit and Policy count, which users set, and of other types where fields says so.
func uncommented(d ast.Decl, fields bool) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		typ := receiver(d)
		if d.Name.IsExported() && (typ == "" || ast.IsExported(typ)) && !regexp.MustCompile("^"+d.Name.Name+`\b`).MatchString(d.Doc.Text()) {
			names = append(names, strings.TrimPrefix(typ+"."+d.Name.Name, "."))
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, s.Names[0].Name)
				}
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
					names = append(names, s.Name.Name)
				}
				structure, ok := s.Type.(*ast.StructType)
				if !ok || !s.Name.IsExported() || !fields && !slices.Contains([]string{"Limit", "Policy"}, s.Name.Name) {
					continue
				}
				about := d.Doc.Text() + s.Doc.Text()
				for _, f := range structure.Fields.List {
					for _, id := range f.Names {
						said := f.Doc != nil || f.Comment != nil || regexp.MustCompile(`\b`+id.Name+`\b`).MatchString(about)
						if id.IsExported() && !said {
							names = append(names, s.Name.Name+"."+id.Name)
						}
					}
				}
			}
		}
	}
	return names
}
