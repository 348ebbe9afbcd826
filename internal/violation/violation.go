// Package violation defines Violation, which describes a field that cannot be used.
// Package lease exports it as lease.Violation.
package violation

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Violation is a field that cannot be used. lease.Violation says more.
type Violation struct {
	Path  string
	Value any
	Want  string
	kinds []error // the sentinels that it wraps, the outermost first
}

// New returns a Violation that wraps kind. The format and its arguments make Want.
func New(kind error, path string, value any, format string, args ...any) *Violation {
	return &Violation{path, value, fmt.Sprintf(format, args...), []error{kind}}
}

// Error is the sentinel, the path, the value and the wanted one. It has no path for a value that stands alone.
func (v *Violation) Error() string {
	text := v.Text()
	if v.Path != "" {
		text = v.Path + " " + text
	} else if v.Value != nil {
		text = Show(v.Value) + ": " + v.Want
	}
	if len(v.kinds) > 0 {
		text = v.kinds[0].Error() + ": " + text
	}
	return text
}

// Text leaves out the path: the value, or the length of a slice, and Want. A file shows the path by its position.
func (v *Violation) Text() string {
	if v.Value == nil {
		return v.Want
	}
	if list := reflect.ValueOf(v.Value); list.Kind() == reflect.Slice {
		return fmt.Sprintf("has %d entries, %s", list.Len(), v.Want)
	}
	return "is " + Show(v.Value) + ", " + v.Want
}

// Unwrap returns the sentinels.
func (v *Violation) Unwrap() []error { return v.kinds }

// Show is a value as a message has it.
func Show(value any) string {
	switch x := value.(type) {
	case encoding.TextMarshaler:
		text, _ := x.MarshalText() // no type in use has an error
		return string(text)
	case string:
		return strconv.Quote(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// All returns the Violations in err, in their order.
func All(err error) (all []*Violation) {
	switch x := err.(type) { //nolint:errorlint // it walks what errors wrap
	case *Violation:
		all = []*Violation{x}
	case interface{ Unwrap() []error }:
		for _, err := range x.Unwrap() {
			all = append(all, All(err)...)
		}
	case interface{ Unwrap() error }:
		all = All(x.Unwrap())
	}
	return all
}

// Line is the Violations in err in one line, without their sentinels.
func Line(err error) string {
	var texts []string
	for _, v := range All(err) {
		texts = append(texts, (&Violation{Path: v.Path, Value: v.Value, Want: v.Want}).Error())
	}
	return strings.Join(texts, "; ")
}

// List collects Violations, for one error that joins them.
type List struct {
	Kind error // the sentinel that each wraps
	all  []*Violation
}

// Add adds a Violation, unless the List has the same one.
func (l *List) Add(path string, value any, format string, args ...any) {
	l.add(New(l.Kind, path, value, format, args...))
}

func (l *List) add(v *Violation) {
	same := func(o *Violation) bool { return o.Path == v.Path && o.Want == v.Want }
	if !slices.ContainsFunc(l.all, same) {
		l.all = append(l.all, v)
	}
}

// Adopt adds the Violations in err, with the paths that place returns. Each still wraps its own sentinels. An err
// that holds no Violation is added as one, with its text.
func (l *List) Adopt(err error, place func(path string) string) {
	all := All(err)
	if err != nil && len(all) == 0 {
		l.Add(place(""), nil, "%v", err)
	}
	for _, v := range all {
		kinds := v.kinds
		if !slices.Contains(kinds, l.Kind) {
			kinds = slices.Concat([]error{l.Kind}, kinds)
		}
		l.add(&Violation{place(v.Path), v.Value, v.Want, kinds})
	}
}

// Len is the number of Violations so far.
func (l *List) Len() int { return len(l.all) }

// Err returns all Violations, or nil without any.
func (l *List) Err() error {
	var errs []error
	for _, v := range l.all {
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// Between demands least <= value <= most, which NaN is not, and reports whether that holds.
func Between[T cmp.Ordered](l *List, path string, value, least, most T) bool {
	ok := value >= least && value <= most
	if !ok {
		l.Add(path, value, "must be %s to %s", Show(least), Show(most))
	}
	return ok
}

// Under returns a function that puts a path below section.
func Under(section string) func(path string) string {
	return func(path string) string {
		if path == "" || path[0] == '[' || section == "" {
			return section + path
		}
		return section + "." + path
	}
}

var fieldNames = regexp.MustCompile(`[A-Za-z]+`)

// Rename returns path with other names of its fields.
func Rename(path string, name func(field string) string) string {
	return fieldNames.ReplaceAllStringFunc(path, name)
}
