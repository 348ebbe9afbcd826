package rules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// place is where something stands in a file. Both count from 1, the column in characters.
type place struct{ line, column int }

// reader is one file on its way to a table.
type reader struct {
	file   string
	found  []problem
	unread map[string]bool  // paths that could not be read, whose value is therefore not to be judged
	around map[string]bool  // the paths around these
	places map[string]place // by path
	left   int              // values that may still come
}

type problem struct {
	place
	text string
}

func (r *reader) bad(path []string, at place, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.found = append(r.found, problem{at, textOf(path, text)})
}

// unreadable is bad for what could not be read.
func (r *reader) unreadable(path []string, at place, format string, args ...any) {
	r.bad(path, at, format, args...)
	r.unread[textOf(path, "")] = true
	for n := range path {
		r.around[textOf(path[:n], "")] = true
	}
}

// unreadAround reports whether what is at path, or something in it, could not be read.
func (r *reader) unreadAround(path []string) bool {
	for n := range len(path) + 1 {
		if r.unread[textOf(path[:n], "")] {
			return true
		}
	}
	return r.around[textOf(path, "")]
}

// placeOf is the place of a path, or of the nearest thing around it that the file has.
func (r *reader) placeOf(path []string) place {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if at, ok := r.places[textOf(path, "")]; ok {
			return at
		}
	}
	return place{1, 1}
}

// told is how many mistakes of a file are told, and toldLength how long each is at most: what a large
// file has wrong would fill a log.
const told, toldLength = 10, 400

// err joins what is wrong, in the order of places: the first of it, and how much more there is.
func (r *reader) err() error {
	slices.SortStableFunc(r.found, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	var all []error
	for _, p := range r.found[:min(told, len(r.found))] {
		if text := []rune(p.text); len(text) > toldLength {
			p.text = string(text[:toldLength]) + "…"
		}
		all = append(all, fmt.Errorf("%w: %s:%d:%d: %s", ErrInvalid, r.file, p.line, p.column, p.text))
	}
	if more := len(r.found) - told; more > 0 {
		all = append(all, fmt.Errorf("%w: %s: %d more mistakes", ErrInvalid, r.file, more))
	}
	return errors.Join(all...)
}

// word is a part of a path that needs no quotes.
var word = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// textOf is a message about what is at path.
func textOf(path []string, message string) string {
	var b strings.Builder
	for _, part := range path {
		switch {
		case strings.HasPrefix(part, "[") && strings.HasSuffix(part, "]"):
			b.WriteString(part)
		case !word.MatchString(part):
			fmt.Fprintf(&b, "[%q]", part)
		default:
			b.WriteString("." + part)
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	return strings.TrimPrefix(b.String(), ".") + message
}

// document is the one document of a text; nil after an error.
func (r *reader) document(text []byte) *yaml.Node {
	if len(text) > textMax {
		r.bad(nil, place{1, 1}, "the file has more than %d bytes", textMax)
		return nil
	}
	var all []yaml.Node
	err := yaml.Load(text, &all, yaml.WithV4Defaults(), yaml.WithAllDocuments())
	e, isSyntax := errors.AsType[*yaml.LoadError](err)
	switch {
	case isSyntax:
		at := place{max(e.Mark.Line, 1), max(e.Mark.Column, 1)}
		r.bad(nil, at, "%s", strings.TrimSuffix(e.Message+" ("+e.ContextMsg+")", " ()"))
	case err != nil:
		r.bad(nil, place{1, 1}, "%v", err)
	case len(all) > 1:
		r.bad(nil, place{all[1].Line, all[1].Column}, "there is more than one document")
	case len(all) == 0 || len(all[0].Content) == 0 || isNull(all[0].Content[0]):
		r.bad(nil, place{1, 1}, "is empty; rules: {} would be no rules")
	default:
		return all[0].Content[0]
	}
	return nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// field is one that a mapping may have.
type field struct {
	name     string
	required string // what it must be, where it must be there
	read     func(path []string, n *yaml.Node)
}

// fields reads a mapping that has no other fields than these.
func (r *reader) fields(path []string, n *yaml.Node, all ...field) {
	there := map[string]bool{}
	ok := r.mapping(path, n, func(name string, path []string, at place, value *yaml.Node) {
		there[name] = true
		if i := slices.IndexFunc(all, func(f field) bool { return f.name == name }); i >= 0 {
			all[i].read(path, value)
			return
		}
		var names []string
		for _, f := range all {
			names = append(names, f.name)
		}
		r.bad(path, at, "is unknown, must be one of %s", strings.Join(names, ", "))
	})
	for _, f := range all {
		if ok && f.required != "" && !there[f.name] {
			here := append(slices.Clip(path), f.name)
			r.unreadable(here, place{n.Line, n.Column}, "is missing, must be %s", f.required)
		}
	}
}

// mapping calls each for every pair. A section without a value is empty.
func (r *reader) mapping(
	path []string, n *yaml.Node, each func(name string, path []string, at place, value *yaml.Node),
) (ok bool) {
	n, ok = r.resolve(path, n)
	if ok && isNull(n) {
		return true
	}
	if !ok || n.Kind != yaml.MappingNode {
		r.kind(path, n, ok, "a mapping")
		return false
	}
	first := map[string]int{} // line of a name
	for pair := range slices.Chunk(n.Content, 2) {
		key, value, at := pair[0], pair[1], place{pair[0].Line, pair[0].Column}
		here := append(slices.Clip(path), key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			r.unreadable(path, at, "has a name that is not a word; merge keys are not read")
		case first[key.Value] > 0:
			r.bad(here, at, "is there twice, first in line %d", first[key.Value])
		default:
			first[key.Value] = key.Line
			r.places[textOf(here, "")] = at
			if value.Kind == yaml.ScalarNode {
				r.places[textOf(here, "")] = place{value.Line, value.Column}
			}
			each(key.Value, here, at, value)
		}
	}
	return true
}

// list calls each for every element.
func (r *reader) list(path []string, n *yaml.Node, want string, each func([]string, *yaml.Node)) {
	n, ok := r.resolve(path, n)
	if !ok || n.Kind != yaml.SequenceNode {
		r.kind(path, n, ok, want)
		return
	}
	for i, item := range n.Content {
		here := append(slices.Clip(path), fmt.Sprintf("[%d]", i))
		r.places[textOf(here, "")] = place{item.Line, item.Column}
		each(here, item)
	}
}

// errOther says that a text is not what it must be, and no more.
var errOther = errors.New("another kind of text")

// scalar reads a text. Where plain is true it must stand without quotes, as a number does.
func (r *reader) scalar(path []string, n *yaml.Node, want string, plain bool, set func(text string) error) {
	n, ok := r.resolve(path, n)
	if !ok || n.Kind != yaml.ScalarNode || isNull(n) {
		r.kind(path, n, ok, want)
		return
	}
	at := place{n.Line, n.Column}
	if plain && n.Style != 0 {
		r.unreadable(path, at, "is the text %.60q, must be %s", n.Value, want)
		return
	}
	switch err := set(n.Value); {
	case err == errOther:
		r.unreadable(path, at, "is %.60q, must be %s", n.Value, want)
	case err != nil:
		r.unreadable(path, at, "is %.60q: %v", n.Value, err)
	}
}

// json reads a number or a truth value. To JSON 010 is none, which is 8 to some and 10 to others.
func (r *reader) json(path []string, n *yaml.Node, want string, into any) {
	r.scalar(path, n, want, true, func(text string) error {
		if json.Unmarshal([]byte(text), into) != nil {
			return errOther
		}
		return nil
	})
}

// resolve is what an alias stands for. It is not ok, and has said so, where the file says too much
// or has tags.
func (r *reader) resolve(path []string, n *yaml.Node) (*yaml.Node, bool) {
	at := place{n.Line, n.Column}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.left--; r.left == -1 {
		r.unreadable(nil, at, "the file says too much: more than %d values", valuesMax)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.unreadable(path, at, "has the tag %s; rules have none", n.ShortTag())
		return n, false
	}
	return n, r.left >= 0
}

// kind says that n is of another kind than what is wanted, unless resolve was not ok with it.
func (r *reader) kind(path []string, n *yaml.Node, ok bool, want string) {
	if !ok {
		return
	}
	is := fmt.Sprintf("is %.60q", n.Value)
	switch {
	case isNull(n):
		is = "has no value"
	case n.Kind == yaml.MappingNode:
		is = "is a mapping"
	case n.Kind == yaml.SequenceNode:
		is = "is a list"
	}
	r.unreadable(path, place{n.Line, n.Column}, "%s, must be %s", is, want)
}
