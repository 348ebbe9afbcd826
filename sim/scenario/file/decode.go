package file

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// valuesMax bounds what one file may say: aliases of aliases can say very much in few bytes.
const valuesMax = 200_000

// decoder is one file on its way to a scenario.
type decoder struct {
	file    string
	errs    []*Error
	at      map[string]position // of every path that the file has
	unknown []string            // paths that could not be read, or that an unknown name may have meant
	left    int                 // values that may still come
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, at: map[string]position{}, left: valuesMax}
}

func place(n *yaml.Node) position { return position{n.Line, n.Column} }

// bad reports an error at p.
func (d *decoder) bad(path string, p position, format string, args ...any) {
	d.add(path, p, fmt.Sprintf(format, args...), nil)
	d.unknown = append(d.unknown, path)
}

func (d *decoder) add(path string, p position, message string, cause error) {
	e := &Error{File: d.file, Path: path, Message: message, cause: cause}
	if d.file != "" {
		e.Line, e.Column = max(p.line, 1), max(p.column, 1)
	}
	d.errs = append(d.errs, e)
}

func (d *decoder) err() error { return inOrder(d.errs) }

// document is the one document of a text; nil after an error.
func (d *decoder) document(text []byte) *yaml.Node {
	if len(text) > textMax {
		d.bad("", position{}, "the file has more than %d bytes", textMax)
		return nil
	}
	if at := unprintable(text); at >= 0 {
		d.bad("", placeOf(text, at), "there is a byte that is not text in UTF-8")
		return nil
	}
	var all []yaml.Node
	err := yaml.Load(text, &all, yaml.WithV4Defaults(), yaml.WithAllDocuments())
	switch {
	case err != nil:
		d.syntax(text, err)
		return nil
	case len(all) > 1:
		d.bad("", place(&all[1]), "there is more than one document; a file is one scenario")
		return nil
	case len(all) == 0 || len(all[0].Content) == 0:
		d.bad("", position{}, "is empty")
		return nil
	}
	root := all[0].Content[0]
	if isNull(root) && root.Value == "" {
		d.bad("", position{}, "is empty")
		return nil
	}
	return root
}

// unprintable is where the first byte is that YAML does not take as text, or -1. The YAML package
// refuses it too, but does not say where it is.
func unprintable(text []byte) int {
	for i, r := range string(text) {
		_, n := utf8.DecodeRune(text[i:])
		control := r < ' ' && !strings.ContainsRune("\t\n\r", r) || r >= 0x7f && r < 0xa0 && r != 0x85
		if control || r == utf8.RuneError && n == 1 {
			return i
		}
	}
	return -1
}

// placeOf is the position of a byte of text.
func placeOf(text []byte, at int) position {
	before := text[:at]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return position{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(line) + 1}
}

// syntax reports an error of the YAML package about text.
func (d *decoder) syntax(text []byte, err error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		d.bad("", position{}, "%v", err)
		return
	}
	message := e.Message
	if e.ContextMsg != "" {
		message += " (" + e.ContextMsg + ")"
	}
	p, end := position{e.Mark.Line, e.Mark.Column}, placeOf(text, len(text))
	if p.line > end.line {
		p = end // what is missing at the end
	}
	d.bad("", p, "%s", message)
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// value reads n into v.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	p := place(n)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.bad(path, p, "the file says too much: more than %d values", valuesMax)
		}
		return
	}
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		d.bad(path, p, "has the tag %s; a scenario has none", n.ShortTag())
	case v.Kind() == reflect.Pointer:
		v.SetZero()
		if !isNull(n) {
			v.Set(reflect.New(v.Type().Elem()))
			d.value(path, n, v.Elem())
		}
	case isScalar(v.Type()):
		if n.Kind != yaml.ScalarNode || isNull(n) {
			d.bad(path, p, "%s, must be %s", is(n), want(v.Type()))
		} else if err := setScalar(v, n.Value, n.Style == 0); err != nil {
			d.bad(path, p, "%v", err)
		}
	case isNull(n): // a section whose fields are all commented out
		v.SetZero()
	case v.Kind() == reflect.Slice:
		d.list(path, n, v)
	default:
		d.mapping(path, n, v)
	}
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.bad(path, place(n), "%s, must be a list, like [%s]", is(n), example(v.Type().Elem()))
		return
	}
	if len(n.Content) == 0 {
		v.SetZero() // so that an empty list is equal to none
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", path, i)
		d.at[path] = place(item)
		d.value(path, item, v.Index(i))
		if d.left < 0 {
			return
		}
	}
}

func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.bad(path, place(n), "%s, must be %s", is(n), want(v.Type()))
		return
	}
	first := map[string]int{} // line of a name
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		f, ok := fieldOf(v.Type(), name)
		line, again := first[name]
		switch here := join(path, clip(name)); {
		case key.Kind != yaml.ScalarNode:
			d.bad(path, place(key), "has a field whose name is not a word")
		case key.Tag == "!!merge":
			d.bad(here, place(key), "merge keys are not read; use an alias for a value as a whole")
		case again:
			d.bad(here, place(key), "is there twice, first in line %d", line)
		case !ok:
			guess := meant(name, namesOf(v.Type()))
			d.bad(here, place(key), "unknown field%s", didYouMean(guess))
			if guess != "" {
				d.unknown = append(d.unknown, join(path, guess))
			}
		default:
			d.at[here] = place(key)
			if value.Kind == yaml.ScalarNode {
				d.at[here] = place(value)
			}
			d.value(here, value, v.Field(f.index))
		}
		first[name] = key.Line
	}
}

// is says what n is, for a message.
func is(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "is a mapping"
	case n.Kind == yaml.SequenceNode:
		return "is a list"
	case isNull(n):
		return "has no value"
	}
	return fmt.Sprintf("is %q", clip(n.Value))
}

// example is an element of a list, for a message.
func example(t reflect.Type) string {
	if _, like, ok := strings.Cut(want(t), "like "); ok {
		return like
	}
	return "..."
}

// clip keeps messages short.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// position is that of a path, or of the nearest section around it that the file has.
func (d *decoder) position(path string) position {
	for path != "" {
		if p, ok := d.at[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return position{1, 1}
}

// validate adds what Scenario.Validate finds wrong, except where that follows from an error that is
// reported already.
func (d *decoder) validate(s scenario.Scenario) {
	joined, ok := s.Validate().(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		v, ok := errors.AsType[*scenario.Violation](err)
		if !ok {
			d.add("", position{}, err.Error(), err)
		} else if !d.follows(v) {
			d.add(v.Path, d.position(v.Path), v.Message, v)
		}
	}
}

// follows reports whether v is about a field that could not be read, or about several fields while
// there is one that could not.
func (d *decoder) follows(v *scenario.Violation) bool {
	return v.Together && len(d.unknown) > 0 || slices.ContainsFunc(d.unknown, v.FollowsFrom)
}
