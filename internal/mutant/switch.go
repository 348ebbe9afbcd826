package mutant

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// withSwitches returns the files that differ from s where all mutations are compiled in.
//
// A function f that mutations 2 and 5 change becomes f__0, which is as it was, f__2 and f__5. f calls
// the one whose mutation runs.
func (s Source) withSwitches(mutations []Mutation) (Source, error) {
	files := map[string]*switchedFile{}
	var errs []error
	for i, m := range mutations {
		changed, err := s.apply(m)
		errs = append(errs, err)
		for path, text := range changed {
			if files[path] == nil {
				f, err := newSwitchedFile(s[path])
				if err != nil {
					return nil, err
				}
				files[path] = f
			}
			if err := files[path].add(i+1, text); err != nil {
				errs = append(errs, fmt.Errorf("%q, %s: %w", m.Name, filepath.Base(path), err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	var numbers strings.Builder
	for i, m := range mutations {
		fmt.Fprintf(&numbers, "\t%q: %d,\n", m.Name, i+1)
	}
	out := Source{}
	for path, f := range files {
		out[path] = f.text()
		out[filepath.Join(filepath.Dir(path), "mutant__running.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar mutant__running = map[string]int{\n%s}[os.Getenv(%q)]\n",
			f.file.Name.Name, &numbers, variable)
	}
	return out, nil
}

// switchedFile is one source file with the functions that mutations change.
type switchedFile struct {
	source   string
	file     *ast.File
	set      *token.FileSet
	variants map[string][]variant // by the function's key
}

// variant is a function as the mutation of that number has it.
type variant struct {
	number int
	text   string
}

func newSwitchedFile(source string) (*switchedFile, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	return &switchedFile{source: source, file: file, set: set, variants: map[string][]variant{}}, err
}

// add notes the functions of the file that mutation i, which makes the file text, changes.
func (f *switchedFile) add(i int, text string) error {
	other, err := newSwitchedFile(text)
	if err != nil {
		return err
	}
	if len(other.file.Decls) != len(f.file.Decls) {
		return errors.New("a mutation may not add or remove a declaration")
	}
	for j, d := range f.file.Decls {
		o := other.file.Decls[j]
		if f.of(d) == other.of(o) {
			continue
		}
		was, ok := d.(*ast.FuncDecl)
		is, ok2 := o.(*ast.FuncDecl)
		if !ok || !ok2 || f.header(was) != other.header(is) {
			return fmt.Errorf("a mutation may change the bodies of functions only, not %.60q", f.of(d))
		}
		key := f.header(was)
		f.variants[key] = append(f.variants[key], variant{i, other.renamed(is, fmt.Sprintf("__%d", i))})
	}
	return nil
}

// of is the text of a node.
func (f *switchedFile) of(n ast.Node) string { return f.between(n.Pos(), n.End()) }

func (f *switchedFile) between(from, to token.Pos) string {
	return f.source[f.set.Position(from).Offset:f.set.Position(to).Offset]
}

// header is the text of a function up to its body.
func (f *switchedFile) header(d *ast.FuncDecl) string { return f.between(d.Type.Func, d.Type.End()) }

// renamed is the text of a function whose name ends in suffix.
func (f *switchedFile) renamed(d *ast.FuncDecl, suffix string) string {
	return f.between(d.Type.Func, d.Name.End()) + suffix + f.between(d.Name.End(), d.End())
}

// text is the file with every function that a mutation changes switched.
func (f *switchedFile) text() string {
	var out, more bytes.Buffer
	at := f.file.FileStart
	for _, decl := range f.file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok || f.variants[f.header(d)] == nil {
			continue
		}
		out.WriteString(f.between(at, d.Type.Func))
		out.WriteString(f.renamed(d, "__0"))
		at = d.End()
		more.WriteString(f.dispatch(d))
		for _, v := range f.variants[f.header(d)] {
			more.WriteString("\n" + v.text + "\n")
		}
	}
	out.WriteString(f.between(at, f.file.FileEnd))
	return out.String() + more.String()
}

// dispatch is the function that calls the variant of d whose mutation runs.
func (f *switchedFile) dispatch(d *ast.FuncDecl) string {
	var params, args []string
	for _, p := range d.Type.Params.List {
		for range max(1, len(p.Names)) {
			name := fmt.Sprintf("p%d__", len(params))
			params = append(params, name+" "+f.of(p.Type))
			if _, variadic := p.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			args = append(args, name)
		}
	}
	receiver, callee := "", d.Name.Name
	if d.Recv != nil {
		receiver, callee = "(r__ "+f.of(d.Recv.List[0].Type)+") ", "r__."+callee
	}
	call := callee + "__%d(" + strings.Join(args, ", ") + ")"
	results, types := "", ""
	if d.Type.Results != nil {
		results, call = f.of(d.Type.Results), "return "+call
	} else {
		call += "; return"
	}
	if d.Type.TypeParams != nil {
		types = f.of(d.Type.TypeParams)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nfunc %s%s%s(%s) %s {\n\tswitch mutant__running {\n",
		receiver, d.Name.Name, types, strings.Join(params, ", "), results)
	for _, v := range f.variants[f.header(d)] {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t"+call+"\n", v.number, v.number)
	}
	fmt.Fprintf(&b, "\t}\n\t"+call+"\n}\n", 0)
	return b.String()
}
