// Package violation defines Violation, which describes an invalid field. Package lease exports the type as
// lease.Violation.
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

// Violation describes an invalid field; see lease.Violation.
type Violation struct {
	Path  string
	Value any
	Want  string
	kinds []error // the wrapped sentinels, the outermost first
}

// New returns a Violation that wraps kind. format and args make Want.
func New(kind error, path string, value any, format string, args ...any) *Violation {
	return &Violation{path, value, fmt.Sprintf(format, args...), []error{kind}}
}

// Error returns the sentinel, the path, the value and Want. A Violation of a lone value has no path.
func (v *Violation) Error() string {
	text := Text(v)
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

// Text returns the value and Want, for a report that shows a position in place of the path.
func Text(v *Violation) string {
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

// Show formats a value for messages.
func Show(value any) string {
	switch x := value.(type) {
	case encoding.TextMarshaler:
		text, _ := x.MarshalText() // no type in use returns an error
		return string(text)
	case string:
		return strconv.Quote(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// All returns the Violations in err.
func All(err error) (all []*Violation) {
	switch x := err.(type) { //nolint:errorlint // All walks the wrapped errors itself
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

// Line returns the Violations in err on one line, without their sentinels.
func Line(err error) string {
	var texts []string
	for _, v := range All(err) {
		texts = append(texts, (&Violation{Path: v.Path, Value: v.Value, Want: v.Want}).Error())
	}
	return strings.Join(texts, "; ")
}

// List collects Violations for one joined error.
type List struct {
	Kind error // the sentinel that each Violation wraps
	all  []*Violation
}

// Add adds a Violation, unless the List has the same Violation.
func (l *List) Add(path string, value any, format string, args ...any) {
	l.add(New(l.Kind, path, value, format, args...))
}

func (l *List) add(v *Violation) {
	same := func(o *Violation) bool { return o.Path == v.Path && o.Want == v.Want }
	if !slices.ContainsFunc(l.all, same) {
		l.all = append(l.all, v)
	}
}

// Adopt adds the Violations in err, with paths from place and their own sentinels. An err without a Violation
// becomes a Violation with the text of err.
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

// Len returns the number of Violations.
func (l *List) Len() int { return len(l.all) }

// Err returns an error that joins all Violations, or nil if there are none.
func (l *List) Err() error {
	var errs []error
	for _, v := range l.all {
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// Between demands least <= value <= most, and reports whether value is in this range; NaN never is.
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

// Rename returns path with its field names replaced.
func Rename(path string, name func(field string) string) string {
	return fieldNames.ReplaceAllStringFunc(path, name)
}
