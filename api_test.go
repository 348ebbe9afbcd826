package yuzhi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var (
	apiSection = regexp.MustCompile("(?m)^## `([a-z/]+)`")
	apiRow     = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	codeSpan   = regexp.MustCompile("`([^`]+)`")
)

// TestTheAPIPageNamesEveryExportedName: docs/api.md says of each exported name why it is as it is,
// and names none that is not there. A name without a type belongs to the type that was named last,
// if that has it. In package lease the methods and fields of the types that users meet count; the
// others are for this module's own shells.
func TestTheAPIPageNamesEveryExportedName(t *testing.T) {
	text, err := os.ReadFile("docs/api.md")
	testkit.NoErr(t, err)
	page := string(text)
	sections := apiSection.FindAllStringSubmatchIndex(page, -1)
	packages := []string{"hybrid", "hybrid/xtime", "hybrid/httplimit", "hybrid/httplimit/rules", "hybrid/rpclimit",
		"hybrid/hybridotel", "redisbucket", "lease"}
	testkit.Must(t, len(sections) == len(packages), "docs/api.md has %d sections, want one each of %v", len(sections), packages)
	for i, section := range sections {
		folder, end := page[section[2]:section[3]], len(page)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		testkit.Must(t, slices.Contains(packages, folder), "docs/api.md has a section about %s", folder)
		exported, named := exportedNames(t, folder), map[string]bool{}
		if folder == "lease" {
			users := []string{"Limit", "Policy", "MemoryStore", "Store", "Pinger", "Router"}
			maps.DeleteFunc(exported, func(name string, _ bool) bool {
				typ, _, member := strings.Cut(name, ".")
				return member && !slices.Contains(users, typ)
			})
		}
		for _, row := range apiRow.FindAllStringSubmatch(page[section[0]:end], -1) {
			current := ""
			for _, span := range codeSpan.FindAllStringSubmatch(row[1], -1) {
				name := span[1]
				if typ, _, ok := strings.Cut(name, "."); ok {
					current = typ
				} else if exported[current+"."+name] && !named[current+"."+name] {
					name = current + "." + name
				}
				testkit.Check(t, exported[name], "docs/api.md: %s has no %s", folder, name)
				testkit.Check(t, !named[name], "docs/api.md names %s of %s twice", name, folder)
				named[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(exported)) {
			testkit.Check(t, named[name], "docs/api.md does not name %s of %s", name, folder)
		}
	}
}

// TestEveryFileHasItsLine: the package comments say of each file what it holds.
func TestEveryFileHasItsLine(t *testing.T) {
	for _, folder := range []string{"hybrid", "hybrid/httplimit", "hybrid/httplimit/rules", "hybrid/rpclimit",
		"hybrid/hybridotel", "lease", "redisbucket"} {
		text, err := os.ReadFile(path.Join(folder, "doc.go"))
		testkit.NoErr(t, err)
		entries, err := os.ReadDir(folder)
		testkit.NoErr(t, err)
		for _, e := range entries {
			name := e.Name()
			source := path.Ext(name) == ".lua" || path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
			testkit.Check(t, !source || name == "doc.go" || regexp.MustCompile(`\b`+regexp.QuoteMeta(name)).Match(text),
				"the comment of package %s does not say what %s holds", folder, name)
		}
	}
}

// exportedNames are a package's exported constants, variables, functions and types, and as
// "Type.Name" the exported methods and fields.
func exportedNames(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	add := func(typ string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names[strings.TrimPrefix(typ+"."+id.Name, ".")] = true
			}
		}
	}
	for _, file := range sources(t, folder) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if typ := receiver(d); typ == "" || ast.IsExported(typ) {
					add(typ, d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add("", s.Names...)
					case *ast.TypeSpec:
						add("", s.Name)
						if fields := members(s); fields != nil && s.Name.IsExported() {
							for _, f := range fields.List {
								add(s.Name.Name, f.Names...)
							}
						}
					}
				}
			}
		}
	}
	return names
}

// sources are the files of a package, without its tests.
func sources(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	testkit.NoErr(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), path.Join(folder, e.Name()), nil, parser.ParseComments)
			testkit.NoErr(t, err)
			files = append(files, file)
		}
	}
	return files
}

// receiver is the type that a method belongs to; empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, _ := typ.(*ast.Ident)
	return id.Name
}

// members are the fields of a struct or the methods of an interface.
func members(s *ast.TypeSpec) *ast.FieldList {
	switch typ := s.Type.(type) {
	case *ast.StructType:
		return typ.Fields
	case *ast.InterfaceType:
		return typ.Methods
	}
	return nil
}
