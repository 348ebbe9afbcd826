package lease

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryExportedNameHasItsUser: the package comment says for whom each exported name is, so that
// none is there by accident.
func TestEveryExportedNameHasItsUser(t *testing.T) {
	set := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if path == "pin_portable.go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(set, files, module+"/lease")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	add := func(values []*doc.Value, functions []*doc.Func) {
		for _, v := range values {
			names = append(names, v.Names...)
		}
		for _, f := range functions {
			names = append(names, f.Name)
		}
	}
	add(slices.Concat(p.Consts, p.Vars), p.Funcs)
	for _, typ := range p.Types {
		names = append(names, typ.Name)
		add(slices.Concat(typ.Consts, typ.Vars), typ.Funcs)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
	_, table, _ := strings.Cut(p.Doc, "# What is exported, and for whom")
	var listed []string
	for _, line := range regexp.MustCompile(`(?m)^\t.*`).FindAllString(table, -1) {
		listed = append(listed, strings.Fields(line)...)
	}
	for _, name := range names {
		if !slices.Contains(listed, name) {
			t.Errorf("doc.go does not say who uses %s", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(names, name) {
			t.Errorf("doc.go names %s, which is not there", name)
		}
	}
}
