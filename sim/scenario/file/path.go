package file

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Set changes fields, in order: "policy.target=50ms", "groups[0].count=300", "groups.web.count=300" (or
// groups[web].count, for names with dots), "redis.faults=[]", "workload={kind: constant, rate: 5/s}". The
// value is the text that a file has after the colon. Set replaces a section or a list as a whole. In a
// scenario without groups, groups[0] and groups.all name the group that Defaults adds.
//
// Set reads the trace of a workload.file at once, from a path relative to the working folder. Set does not
// validate the changed scenario, because a valid scenario may take several calls. An explicit zero that would
// mean a default is an error. After an error, s is unchanged. Set changes no earlier copy of s.
func Set(s *scenario.Scenario, assignments ...string) error {
	d, next := newDecoder(""), *s
	for _, assignment := range assignments {
		path, text, ok := strings.Cut(assignment, "=")
		path = strings.TrimSpace(path)
		switch {
		case !ok:
			d.Bad(path, yamlfile.Place{}, "has no value; an assignment is like policy.target=50ms")
		case !wellFormed.MatchString(path):
			d.Bad(path, yamlfile.Place{}, "is not a path like policy.target or groups[0].count")
		default:
			d.assign("", pathPart.FindAllString(path, -1), text, reflect.ValueOf(&next).Elem())
		}
	}
	if len(d.Problems()) == 0 {
		d.keepZeros(&next)
		d.loadTraces(&next)
	}
	if err := d.err(); err != nil {
		return err
	}
	*s = next
	return nil
}

var (
	wellFormed = regexp.MustCompile(`^[^].[]+(\.[^].[]+|\[[^][]*\])*$`)
	pathPart   = regexp.MustCompile(`\[[^]]*\]|[^].[]+`)
	quoted     = regexp.MustCompile(`^\s*["']`)
)

// assign reads text into a field. parts lead from v, which is at path, to the field. assign copies the lists
// and sections on the way, because other scenarios share them, and adds a missing group or workload.
func (d decoder) assign(path string, parts []string, text string, v reflect.Value) {
	if len(parts) == 0 {
		v.SetZero()
		maps.DeleteFunc(d.Zeros, func(zero string, _ yamlfile.Place) bool { return strings.HasPrefix(zero, path) })
		if v.Kind() == reflect.String && !quoted.MatchString(text) {
			v.SetString(text)
		} else {
			d.Read(path, []byte(text), v)
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		section := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			section.Elem().Set(v.Elem())
		}
		v.Set(section)
		v = section.Elem()
	}
	name, inBrackets := strings.CutPrefix(strings.TrimSuffix(parts[0], "]"), "[")
	switch {
	case format.IsScalar(v.Type()):
		d.Bad(path, yamlfile.Place{}, "is %s and has no part %.60q", format.Want(v.Type()), name)
	case v.Kind() == reflect.Slice:
		if i := d.element(path, name, inBrackets, v); i >= 0 {
			d.assign(yamlfile.Index(path, i), parts[1:], text, v.Index(i))
		}
	case inBrackets:
		d.Bad(path, yamlfile.Place{}, "is not a list, so [%.60s] is not in it", name)
	default:
		f, ok := format.FieldOf(v.Type(), name)
		if !ok {
			message, _ := format.Unknown(path, name, v.Type())
			d.Bad(yamlfile.Join(path, name), yamlfile.Place{}, "%s", message)
			return
		}
		if w, ok := reflect.TypeAssert[*scenario.Workload](v.Addr()); ok && name == "file" {
			w.Trace = nil // loadTraces then reads the trace again
		}
		d.assign(yamlfile.Join(path, name), parts[1:], text, v.FieldByIndex(f.Index))
	}
}

// element returns the index of the list element with this number or group's name, or -1 after an error.
func (d decoder) element(path, name string, inBrackets bool, v reflect.Value) int {
	v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v))
	groups, isGroups := reflect.TypeAssert[*[]scenario.Group](v.Addr())
	if isGroups && len(*groups) == 0 {
		*groups = []scenario.Group{{Name: scenario.Scenario{}.Defaults().Groups[0].Name}}
	}
	i, err := strconv.Atoi(name)
	isNumber := err == nil && inBrackets
	switch {
	case isNumber && i >= 0 && i < v.Len():
		return i
	case isNumber:
		path = yamlfile.Index(path, i)
		d.Bad(path, yamlfile.Place{}, "is not there: the list has %d elements, from [0] on", v.Len())
		return -1
	case !isGroups:
		d.Bad(path, yamlfile.Place{}, "is a list; an element of it is %s[0], not %.60q", path, name)
		return -1
	}
	var names []string
	for _, g := range *groups {
		names = append(names, g.Name)
	}
	if i = slices.Index(names, name); i < 0 {
		d.Bad(path, yamlfile.Place{}, "have no group %.60q; there are %.60s", name, strings.Join(names, ", "))
	}
	return i
}

// Difference is a field with its values in two scenarios, as in a file, where a list is on one line. For a
// section in only one scenario, the values are "there" and "left out".
type Difference struct{ Path, First, Second string }

// Differences returns the fields in which two scenarios differ, in the order of the fields. Lists of
// different lengths are one difference.
func Differences(first, second scenario.Scenario) (all []Difference) {
	differences("", reflect.ValueOf(first), reflect.ValueOf(second), func(d Difference, _ reflect.Value) {
		all = append(all, d)
	})
	return all
}

func differences(path string, a, b reflect.Value, found func(d Difference, v reflect.Value)) {
	isPointer, isList := a.Kind() == reflect.Pointer, a.Kind() == reflect.Slice
	first, second := "", ""
	switch {
	case isPointer && !a.IsNil() && !b.IsNil():
		differences(path, a.Elem(), b.Elem(), found)
	case isPointer:
		is := map[bool]string{true: "left out", false: "there"}
		first, second = is[a.IsNil()], is[b.IsNil()]
	case isList && a.Len() == b.Len():
		for i := range a.Len() {
			differences(yamlfile.Index(path, i), a.Index(i), b.Index(i), found)
		}
	case isList || format.IsScalar(a.Type()):
		first, second = inOneLine(a), inOneLine(b)
	default:
		for _, f := range format.FieldsOf(a.Type()) {
			field := yamlfile.Join(path, scenario.FieldName(f.Name))
			differences(field, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index), found)
		}
	}
	if first != second {
		found(Difference{path, first, second}, a)
	}
}
