package file

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Set changes one field: "policy.target=50ms", "groups[0].count=300", "groups.web.count=300" (or
// groups[web].count, for names with dots), "redis.faults=[]", "workload={kind: constant, rate:
// 5/s}". The value is what a file would have after the colon; a section or a list is replaced as a
// whole. Where the scenario has no groups, groups[0] and groups.all are the one that Defaults gives
// it. A group's clock or workload that is not there begins with all fields zero, as in a file.
//
// The trace of a workload.file is read at once, relative to the working folder. The result is not
// validated, because several assignments may be needed to make it valid. After an error s is as it
// was; what s pointed to before is never changed, so that copies of a Scenario are independent.
func Set(s *scenario.Scenario, assignment string) error {
	path, text, ok := strings.Cut(assignment, "=")
	path = strings.TrimSpace(path)
	if !ok {
		return &Error{Path: path, Message: "has no value; an assignment is like policy.target=50ms"}
	}
	next := cloned(reflect.ValueOf(*s)).Interface().(scenario.Scenario)
	at, err := walk(&next, path)
	if err != nil {
		return err
	}
	d := newDecoder("")
	quoted := strings.HasPrefix(strings.TrimSpace(text), `"`) || strings.HasPrefix(strings.TrimSpace(text), "'")
	if at.value.Kind() == reflect.String && !quoted {
		at.value.SetString(text)
	} else if node := d.document([]byte(text)); node != nil {
		at.value.SetZero()
		d.value(at.path, node, at.value)
	}
	if w := at.workload; w != nil {
		switch at.value.Addr().Interface() {
		case &w.File:
			w.Trace, w.TraceSum = nil, "" // so that it is read again
		case &w.TraceSum:
			w.Trace = nil
		}
	}
	d.loadTraces(&next)
	for _, e := range d.errs {
		e.Path = cmp.Or(e.Path, at.path)
	}
	if err := d.err(); err != nil {
		return err
	}
	*s = next
	return nil
}

// location is where a path leads in a scenario.
type location struct {
	path     string // with numbers instead of groups' names
	value    reflect.Value
	workload *scenario.Workload // that value is a field of; nil for none
}

// wrong is an error about what is at the location.
func (at *location) wrong(format string, args ...any) error {
	return &Error{Path: at.path, Message: fmt.Sprintf(format, args...)}
}

var (
	wellFormed = regexp.MustCompile(`^[^].[]*(\.[^].[]+|\[[^][]*\])*$`)
	pathPart   = regexp.MustCompile(`\[[^]]*\]|[^].[]+`)
)

// walk follows a path, and makes what is missing on the way: a group's clock or workload, the one
// group.
func walk(s *scenario.Scenario, path string) (location, error) {
	at := location{value: reflect.ValueOf(s).Elem()}
	if path == "" || !wellFormed.MatchString(path) {
		return at, &Error{Path: path, Message: "is not a path like policy.target or groups[0].count"}
	}
	for _, part := range pathPart.FindAllString(path, -1) {
		inner, inBrackets := strings.CutPrefix(part, "[")
		if err := at.step(strings.TrimSuffix(inner, "]"), inBrackets); err != nil {
			return at, err
		}
	}
	return at, nil
}

// step goes down by one part of a path.
func (at *location) step(part string, inBrackets bool) error {
	v := at.value
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	switch {
	case isScalar(v.Type()):
		return at.wrong("is %s and has no part %q", want(v.Type()), clip(part))
	case v.Kind() == reflect.Slice:
		return at.element(v, part, inBrackets)
	case inBrackets:
		return at.wrong("is not a list, so [%s] is not in it", clip(part))
	}
	f, ok := fieldOf(v.Type(), part)
	if !ok {
		guess := didYouMean(at.guess(v.Type(), part))
		return &Error{Path: join(at.path, clip(part)), Message: "unknown field" + guess}
	}
	at.workload, _ = v.Addr().Interface().(*scenario.Workload)
	at.path, at.value = join(at.path, part), v.Field(f.index)
	return nil
}

// guess is what may have been meant: a field of this name elsewhere, or one of a similar name here.
func (at *location) guess(t reflect.Type, part string) string {
	if at.path == "" {
		for _, p := range Paths() {
			if strings.HasSuffix(p, "."+part) {
				return p
			}
		}
	}
	if name := meant(part, namesOf(t)); name != "" {
		return join(at.path, name)
	}
	return ""
}

// element goes to an element of a list, by its number, or to a group by its name.
func (at *location) element(v reflect.Value, part string, inBrackets bool) error {
	groups, isGroups := v.Addr().Interface().(*[]scenario.Group)
	if isGroups && len(*groups) == 0 {
		*groups = []scenario.Group{{Name: scenario.Scenario{}.Defaults().Groups[0].Name}}
	}
	i, err := strconv.Atoi(part)
	switch {
	case err == nil && inBrackets:
	case isGroups:
		var names []string
		for _, g := range *groups {
			names = append(names, g.Name)
		}
		if i = slices.Index(names, part); i < 0 {
			return at.wrong("have no group %q; there are %s", clip(part), clip(strings.Join(names, ", ")))
		}
	default:
		return at.wrong("is a list; an element of it is %s[0], not %q", at.path, clip(part))
	}
	at.path = fmt.Sprintf("%s[%d]", at.path, i)
	if i < 0 || i >= v.Len() {
		return at.wrong("is not there: the list has %d elements, from [0] on", v.Len())
	}
	at.workload, at.value = nil, v.Index(i)
	return nil
}

// cloned is a copy of v that shares nothing with it but traces, which nobody changes.
func cloned(v reflect.Value) reflect.Value {
	copied := reflect.New(v.Type()).Elem()
	copied.Set(v)
	switch {
	case v.Type() == reflect.TypeFor[*scenario.Trace](), isScalar(v.Type()):
	case v.Kind() == reflect.Pointer && !v.IsNil():
		copied.Set(reflect.New(v.Type().Elem()))
		copied.Elem().Set(cloned(v.Elem()))
	case v.Kind() == reflect.Slice && !v.IsNil():
		copied.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			copied.Index(i).Set(cloned(v.Index(i)))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			copied.Field(i).Set(cloned(v.Field(i)))
		}
	}
	return copied
}
