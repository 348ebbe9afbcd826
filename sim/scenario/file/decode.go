package file

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// place is where something stands in a file. Both count from 1, the column in characters.
type place struct{ line, column int }

// problem is one thing that is wrong, and where.
type problem struct {
	place        // none in an assignment
	text  string // "file:line:column: path: message", without the parts that are not there
	cause error  // ErrInvalid, and what else errors.Is finds
}

func (p *problem) Error() string { return p.text }
func (p *problem) Unwrap() error { return p.cause }

// valuesMax bounds what one file may say: aliases of aliases can say very much in few bytes.
const valuesMax = 200_000

// decoder is one file on its way to a scenario.
type decoder struct {
	file     string
	problems []*problem
	unread   []string         // paths that could not be read, or that an unknown name may have meant
	places   map[string]place // of every path that the file has
	zeros    map[string]place // of every path whose value was read and is zero
	left     int              // values that may still come
}

func newDecoder(file string) *decoder {
	return &decoder{file: file, places: map[string]place{}, zeros: map[string]place{}, left: valuesMax}
}

// bad reports that what is at path could not be read.
func (d *decoder) bad(path string, at place, format string, args ...any) {
	d.add(path, at, fmt.Sprintf(format, args...), ErrInvalid)
	d.unread = append(d.unread, path)
}

func (d *decoder) add(path string, at place, text string, cause error) {
	if path != "" {
		text = path + ": " + text
	}
	if d.file != "" {
		text = fmt.Sprintf("%s:%d:%d: %s", d.file, at.line, at.column, text)
	}
	d.problems = append(d.problems, &problem{at, text, cause})
}

// err joins the problems in the order of their places.
func (d *decoder) err() error {
	slices.SortStableFunc(d.problems, func(a, b *problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	var all []error
	for _, p := range d.problems {
		all = append(all, p)
	}
	return errors.Join(all...)
}

// placeOf is the place of a path, or of the nearest section around it that the file has.
func (d *decoder) placeOf(path string) place {
	for path != "" {
		if at, ok := d.places[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return place{1, 1}
}

// validate adds what Scenario.Validate finds wrong, except where that follows from a field that
// could not be read: it has its default now, and other fields cannot be compared with it.
func (d *decoder) validate(s scenario.Scenario) {
	err := s.Validate()
	if len(d.unread) > 0 {
		err = s.ValidateFields()
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		_, text, _ := strings.Cut(err.Error(), scenario.ErrInvalidScenario.Error()+": ")
		path, message, _ := strings.Cut(text, ": ")
		follows := func(unread string) bool { return unread == "" || strings.HasPrefix(path+".", unread+".") }
		if !slices.ContainsFunc(d.unread, follows) {
			d.add(path, d.placeOf(path), message, errors.Join(ErrInvalid, err))
		}
	}
}

// keepZeros sees that a zero which was given is one in s, where its field's zero value means
// something else: whoever varies a field from zero on would see the figures of the default in that
// row. A distribution can be nothing but zero; other fields are refused.
func (d *decoder) keepZeros(s *scenario.Scenario) {
	for _, means := range Differences(*s, s.Defaults()) {
		if at, ok := d.zeros[means.Path]; ok {
			d.keepZero(at, means, reflect.ValueOf(s).Elem())
		}
		workload, isLoad := strings.CutSuffix(means.Path, "load")
		if at, ok := d.zeros[workload+"rate"]; ok && isLoad { // neither says how many requests there are
			d.bad(workload+"rate", at, meansDefault, "0/s", "a load of "+means.Second)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(policyDefaults)) {
		if at, ok := d.zeros[path]; ok {
			d.bad(path, at, meansDefault, "0", policyDefaults[path])
		}
	}
}

const meansDefault = "is %s, which means its default here: %s; leave it out, or give another value"

func (d *decoder) keepZero(at place, means Difference, root reflect.Value) {
	if dist, ok := valueAt(root, means.Path).Addr().Interface().(*scenario.DurationDist); ok {
		*dist = scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform}}
		return
	}
	d.bad(means.Path, at, meansDefault, means.First, means.Second)
}

// givenZeros are the paths of the zeros that were given.
func (d *decoder) givenZeros() []string { return slices.Sorted(maps.Keys(d.zeros)) }

// forgetZeros forgets the zeros at path and below it, which is given anew.
func (d *decoder) forgetZeros(path string) {
	maps.DeleteFunc(d.zeros, func(zero string, _ place) bool {
		below, ok := strings.CutPrefix(zero, path)
		return ok && (below == "" || strings.ContainsAny(below[:1], ".["))
	})
}

// policyDefaults say what the zeros mean that are none in a lease.Policy.
var policyDefaults = map[string]string{
	"policy.target": "100ms, or less where the burst is small", "policy.ttl": "4 targets, or 2 call timeouts",
	"policy.min_batch": "1", "policy.max_batch": "what the limit can give", "policy.weight": "1",
	"policy.calls_per_second": "3125, and fewer where the burst allows it", "policy.max_overshoot": "10",
}

// indent is one that has a tab.
var indent = regexp.MustCompile(`^ *\t`)

// document is the one document of a text for what is at path; nil after an error.
func (d *decoder) document(path string, text []byte) *yaml.Node {
	if len(text) > textMax {
		d.bad(path, place{1, 1}, "the file has more than %d bytes", textMax)
		return nil
	}
	end, readable := readableUntil(text)
	var all []yaml.Node
	err := yaml.Load(text, &all, yaml.WithV4Defaults(), yaml.WithAllDocuments())
	e, isSyntax := errors.AsType[*yaml.LoadError](err)
	switch {
	case !readable:
		d.bad(path, end, "there is a byte that is not text in UTF-8")
	case isSyntax:
		at := place{e.Mark.Line, e.Mark.Column}
		if at.line > end.line || at.line == 0 {
			at = end // what is missing at the end
		}
		message := strings.TrimSuffix(e.Message+" ("+e.ContextMsg+")", " ()")
		if lines := strings.Split(string(text), "\n"); at.line <= len(lines) && indent.FindString(lines[at.line-1]) != "" {
			message = "the line begins with a tab; YAML takes spaces only"
		}
		d.bad(path, at, "%s", message)
	case err != nil:
		d.bad(path, place{1, 1}, "%v", err)
	case len(all) > 1:
		d.bad(path, place{all[1].Line, all[1].Column}, "there is more than one document; a file is one scenario")
	case len(all) == 0 || len(all[0].Content) == 0 || isNull(all[0].Content[0]) && all[0].Content[0].Value == "":
		d.bad(path, place{1, 1}, "is empty")
	default:
		return all[0].Content[0]
	}
	return nil
}

// readableUntil is the place of the first byte that YAML does not take as text, which the YAML
// package refuses without saying where it is, or else the end.
func readableUntil(text []byte) (at place, all bool) {
	at = place{1, 1}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		control := r < ' ' && !strings.ContainsRune("\t\n\r", r) || r >= 0x7f && r < 0xa0 && r != 0x85
		if control || r == utf8.RuneError && n == 1 {
			return at, false
		}
		at.column++
		if r == '\n' {
			at = place{at.line + 1, 1}
		}
		text = text[n:]
	}
	return at, true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// value reads n into v.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	at := place{n.Line, n.Column}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.left--; d.left < 0 {
		if d.left == -1 {
			d.bad(path, at, "the file says too much: more than %d values", valuesMax)
		}
		return
	}
	scalar := isScalar(v.Type())
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		d.bad(path, at, "has the tag %s; a scenario has none", n.ShortTag())
	case isNull(n) && !scalar: // a section whose fields are all commented out
		v.SetZero()
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem())
	case scalar && n.Kind == yaml.ScalarNode && !isNull(n):
		if err := setScalar(v, n.Value, n.Style == 0); err != nil {
			d.bad(path, at, "%v", err)
		} else if v.IsZero() {
			d.zeros[path] = at
		}
	case !scalar && v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		d.list(path, n, v)
	case !scalar && v.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		d.mapping(path, n, v)
	default:
		is := map[yaml.Kind]string{yaml.MappingNode: "is a mapping", yaml.SequenceNode: "is a list"}[n.Kind]
		if isNull(n) {
			is = "has no value"
		}
		d.bad(path, at, "%s, must be %s", cmp.Or(is, fmt.Sprintf("is %.60q", n.Value)), want(v.Type()))
	}
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	v.SetZero() // so that an empty list is equal to none
	if len(n.Content) > 0 {
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	}
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", path, i)
		d.places[path] = place{item.Line, item.Column}
		d.value(path, item, v.Index(i))
	}
}

func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	first := map[string]int{} // line of a name
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], pair[1]
		name, at, here := key.Value, place{key.Line, key.Column}, join(path, key.Value)
		f, ok := fieldOf(v.Type(), name)
		switch {
		case key.Kind != yaml.ScalarNode:
			d.bad(path, at, "has a field whose name is not a word")
		case key.Tag == "!!merge":
			d.bad(here, at, "merge keys are not read; use an alias for a value as a whole")
		case first[name] > 0:
			d.bad(here, at, "is there twice, first in line %d", first[name])
		case !ok:
			d.bad(here, at, "unknown field%s", didYouMean(guess(path, name, v.Type())))
			d.unread = append(d.unread, cmp.Or(guess(path, name, v.Type()), here))
		default:
			d.places[here] = at
			if value.Kind == yaml.ScalarNode {
				d.places[here] = place{value.Line, value.Column}
			}
			d.value(here, value, v.FieldByIndex(f.Index))
		}
		first[name] = key.Line
	}
}
