// Package yamlfile reads YAML and JSON files into Go values and reports every mistake with its place.
//
// A Reader is strict: an unknown, repeated or missing field, a value of another kind, a tag, a merge key, and
// a text that its type refuses are mistakes. A Reader continues after a mistake. A Format describes files of
// one kind. A path names a value in a file, such as policy.target, limits[0] or routes["/a"].cost.
package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// TextMax is the most bytes of a file, and ValuesMax the most values, with aliases expanded: nested aliases
// make very many values from a small file.
const TextMax, ValuesMax = 1 << 20, 200_000

// Place is a position in a file: line and column, counted from 1, the column in characters.
type Place struct{ Line, Column int }

var start = Place{1, 1}

// Problem is one mistake in a file.
type Problem struct {
	File string // empty if the text is not from a file
	Place
	Text  string // text of the mistake, after the value's path
	cause error
}

func (p *Problem) Error() string {
	if p.File == "" {
		return p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

func (p *Problem) Unwrap() error { return p.cause }

// Reader reads one file.
type Reader struct {
	File   string
	Places map[string]Place // place of every value of the file, by path
	Zeros  map[string]Place // place of every scalar whose read value is zero, by path

	format   *Format
	cause    error
	problems []*Problem
	unread   map[string]bool // paths that could not be read, or that an unknown name probably meant
	around   map[string]bool // all paths above the paths in unread
	left     int             // number of values that the file may still have
}

// NewReader returns a Reader of a file. Every Problem wraps cause.
func (f *Format) NewReader(file string, cause error) *Reader {
	return &Reader{
		File: file, Places: map[string]Place{}, Zeros: map[string]Place{},
		format: f, cause: cause, unread: map[string]bool{}, around: map[string]bool{}, left: ValuesMax,
	}
}

// Add records a mistake in the value at path. The Problem wraps cause.
func (r *Reader) Add(path string, at Place, text string, cause error) {
	if path != "" {
		text = path + ": " + text
	}
	r.problems = append(r.problems, &Problem{r.File, at, text, cause})
}

// Bad records that the value at path could not be read.
func (r *Reader) Bad(path string, at Place, format string, args ...any) {
	r.Add(path, at, fmt.Sprintf(format, args...), r.cause)
	r.skip(path)
}

func (r *Reader) skip(path string) {
	r.unread[path] = true
	for path != "" {
		path = parent(path)
		r.around[path] = true
	}
}

// Complete reports whether the Reader could read all values so far.
func (r *Reader) Complete() bool { return len(r.unread) == 0 }

// Unread reports whether the value at path, or a value within it, could not be read. An unread value is zero,
// and its validation would report a false mistake.
func (r *Reader) Unread(path string) bool {
	for at := path; ; at = parent(at) {
		if r.unread[at] {
			return true
		}
		if at == "" {
			return r.around[path]
		}
	}
}

// PlaceOf returns the place of the value at path, or of the nearest enclosing value in the file.
func (r *Reader) PlaceOf(path string) Place {
	for ; path != ""; path = parent(path) {
		if at, ok := r.Places[path]; ok {
			return at
		}
	}
	return start
}

// Problems returns all mistakes in the order of their places.
func (r *Reader) Problems() []*Problem {
	slices.SortStableFunc(r.problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

// Read parses text, the value at path, into v, which must be settable. Read reports whether text is a YAML
// document. Mistakes in the document are Problems.
func (r *Reader) Read(path string, text []byte, v reflect.Value) bool {
	n := r.document(path, text)
	if n != nil {
		r.value(path, n, v, Field{})
	}
	return n != nil
}

var indentedByTab = regexp.MustCompile(`^ *\t`)

// document parses text as one YAML document, and returns nil after a mistake.
func (r *Reader) document(path string, text []byte) *yaml.Node {
	if len(text) > TextMax {
		r.Bad(path, start, "the file has more than %d bytes", TextMax)
		return nil
	}
	var all []yaml.Node
	err := yaml.Load(text, &all, yaml.WithV4Defaults(), yaml.WithAllDocuments())
	end, readable := readableUntil(text)
	e, isSyntax := errors.AsType[*yaml.LoadError](err)
	switch {
	case err != nil && !readable:
		r.Bad(path, end, "there is a byte that is not text in UTF-8")
	case isSyntax:
		at := Place{e.Mark.Line, e.Mark.Column}
		if at.Line > end.Line || at.Line == 0 {
			at = end // a token is missing at the end of the file
		}
		message := strings.TrimSuffix(e.Message+" ("+e.ContextMsg+")", " ()")
		lines := strings.Split(string(text), "\n")
		isTab := strings.Contains(e.Message, "cannot start any token") && at.Line <= len(lines)
		if isTab && indentedByTab.MatchString(lines[at.Line-1]) {
			message = "the line begins with a tab; YAML takes spaces only"
		}
		r.Bad(path, at, "%s", message)
	case err != nil:
		r.Bad(path, start, "%v", err)
	case len(all) > 1:
		r.Bad(path, Place{all[1].Line, all[1].Column}, "there is more than one document")
	case len(all) == 1 && len(all[0].Content) == 1:
		n := all[0].Content[0]
		if !isNull(n) || path != "" && n.Value != "" { // null at a path clears the section
			return n
		}
		fallthrough
	default:
		r.Bad(path, start, "is empty")
	}
	return nil
}

// readableUntil returns the place of the first byte that YAML does not accept as text, or the end. The YAML
// package reports no place for a byte that is not text.
func readableUntil(text []byte) (at Place, all bool) {
	at = start
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		control := c < ' ' && !strings.ContainsRune("\t\n\r", c) || c >= 0x7f && c < 0xa0 && c != 0x85
		if control || c == utf8.RuneError && n == 1 {
			return at, false
		}
		at.Column++
		if c == '\n' {
			at = Place{at.Line + 1, 1}
		}
		text = text[n:]
	}
	return at, true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func (r *Reader) value(path string, n *yaml.Node, v reflect.Value, f Field) {
	at := Place{n.Line, n.Column}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.left--; r.left < 0 {
		if r.left == -1 {
			r.Bad("", at, "the file has more than %d values, counting those of aliases", ValuesMax)
		}
		return
	}
	kind, scalar, isText := v.Kind(), r.format.IsScalar(v.Type()), n.Kind == yaml.ScalarNode && !isNull(n)
	isSection := n.Kind == yaml.MappingNode || isNull(n) // a section's fields may all be commented out
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		r.Bad(path, at, "has the tag %s; tags are not read", n.ShortTag())
	case isNull(n) && !scalar && (kind == reflect.Pointer || kind == reflect.Slice && !f.Required):
		v.SetZero()
	case kind == reflect.Pointer && !isNull(n):
		v.Set(reflect.New(v.Type().Elem()))
		r.value(path, n, v.Elem(), f)
	case scalar && isText:
		if err := r.format.SetScalar(v, n.Value, n.Style == 0, f.Want); err != nil {
			r.Bad(path, at, "%v", err)
		} else if v.IsZero() {
			r.Zeros[path] = at
		}
	case kind == reflect.Slice && !scalar && isText && f.Lone:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		r.value(path, n, v.Index(0), Field{})
	case kind == reflect.Slice && !scalar && n.Kind == yaml.SequenceNode:
		r.list(path, n, v)
	case kind == reflect.Struct && !scalar && isSection:
		r.fields(path, n, v)
	case kind == reflect.Map && isSection:
		if !isNull(n) {
			v.Set(reflect.MakeMap(v.Type()))
		}
		r.pairs(path, n, func(name, here string, _ Place, value *yaml.Node) {
			item := reflect.New(v.Type().Elem()).Elem()
			r.value(here, value, item, Field{})
			v.SetMapIndex(reflect.ValueOf(name), item)
		})
	default:
		is := fmt.Sprintf("is %.60q", n.Value)
		switch {
		case isNull(n):
			is = "has no value"
		case n.Kind == yaml.MappingNode:
			is = "is a mapping"
		case n.Kind == yaml.SequenceNode:
			is = "is a list"
		}
		r.Bad(path, at, "%s, must be %s", is, cmp.Or(f.Want, r.format.Want(v.Type())))
	}
}

func (r *Reader) list(path string, n *yaml.Node, v reflect.Value) {
	if len(n.Content) > 0 { // an empty list becomes nil
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	}
	for i, item := range n.Content {
		here := Index(path, i)
		r.Places[here] = Place{item.Line, item.Column}
		r.value(here, item, v.Index(i), Field{})
	}
}

func (r *Reader) fields(path string, n *yaml.Node, v reflect.Value) {
	t := v.Type()
	r.pairs(path, n, func(name, here string, at Place, value *yaml.Node) {
		if f, ok := r.format.FieldOf(t, name); ok {
			r.value(here, value, v.FieldByIndex(f.Index), r.format.field(t, name))
			return
		}
		message, guess := r.format.Unknown(path, name, t)
		r.Bad(here, at, "%s", message)
		if guess != "" {
			r.skip(guess)
		}
	})
	for _, name := range r.format.names(t) {
		f, here := r.format.field(t, name), Join(path, name)
		if _, ok := r.Places[here]; !ok && f.Required && !r.Unread(here) {
			r.Bad(here, Place{n.Line, n.Column}, "is missing, must be %s", f.Want)
		}
	}
}

// pairs calls each for every entry of a mapping, with the entry's name, path and place.
func (r *Reader) pairs(path string, n *yaml.Node, each func(name, here string, at Place, value *yaml.Node)) {
	first := map[string]int{} // line of the first entry of each name
	for pair := range slices.Chunk(n.Content, 2) {
		key, value, at := pair[0], pair[1], Place{pair[0].Line, pair[0].Column}
		here := Join(path, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			r.Bad(path, at, "has a name that is not a word")
		case key.Tag == "!!merge":
			r.Bad(path, at, "has a merge key, which is not read; use an alias for a value as a whole")
		case first[key.Value] > 0:
			r.Bad(here, at, "occurs twice, first in line %d", first[key.Value])
		default:
			first[key.Value] = key.Line
			r.Places[here] = at
			if value.Kind == yaml.ScalarNode {
				r.Places[here] = Place{value.Line, value.Column}
			}
			each(key.Value, here, at, value)
		}
	}
}
