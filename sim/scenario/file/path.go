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

// Paths are all paths that Set takes, in the order of scenario.Scenario, with [] for the place in a
// list: policy.target, limits, limits[], groups, groups[].count. A section as a whole, such as
// redis, may be set too, but is not listed.
func Paths() []string { return pathsOf("", reflect.TypeFor[scenario.Scenario]()) }

func pathsOf(path string, t reflect.Type) (paths []string) {
	switch {
	case isScalar(t):
		return []string{path}
	case t.Kind() == reflect.Pointer:
		return pathsOf(path, t.Elem())
	case t.Kind() == reflect.Slice:
		return append([]string{path}, pathsOf(path+"[]", t.Elem())...)
	}
	for _, f := range fieldsOf(t) {
		paths = append(paths, pathsOf(join(path, scenario.FieldName(f.Name)), f.Type)...)
	}
	return paths
}

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
		return invalid(path, "has no value; an assignment is like policy.target=50ms")
	}
	next := *s
	at, err := walk(&next, path)
	if err != nil {
		return err
	}
	d := newDecoder("")
	if at.value.Kind() == reflect.String && !quoted.MatchString(text) {
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
	for _, p := range d.problems {
		p.path = cmp.Or(p.path, at.path)
	}
	if err := d.err(); err != nil {
		return err
	}
	*s = next
	return nil
}

// invalid is an error about a path.
func invalid(path, format string, args ...any) error {
	return &problem{path: path, message: fmt.Sprintf(format, args...), cause: ErrInvalid}
}

// location is where a path leads in a scenario.
type location struct {
	path     string // with numbers instead of groups' names
	value    reflect.Value
	workload *scenario.Workload // that value is a field of; nil for none
}

var (
	wellFormed = regexp.MustCompile(`^[^].[]+(\.[^].[]+|\[[^][]*\])*$`)
	quoted     = regexp.MustCompile(`^\s*["']`)
	pathPart   = regexp.MustCompile(`\[[^]]*\]|[^].[]+`)
)

// walk follows a path. It copies the lists and sections that it passes, so that no other scenario
// is changed with them, and makes what is missing: a group's clock or workload, the one group.
func walk(s *scenario.Scenario, path string) (location, error) {
	at := location{value: reflect.ValueOf(s).Elem()}
	if !wellFormed.MatchString(path) {
		return at, invalid(path, "is not a path like policy.target or groups[0].count")
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
		section := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			section.Elem().Set(v.Elem())
		}
		v.Set(section)
		v = section.Elem()
	}
	switch {
	case isScalar(v.Type()):
		return invalid(at.path, "is %s and has no part %.60q", want(v.Type()), part)
	case v.Kind() == reflect.Slice:
		return at.element(v, part, inBrackets)
	case inBrackets:
		return invalid(at.path, "is not a list, so [%.60s] is not in it", part)
	}
	f, ok := fieldOf(v.Type(), part)
	if !ok {
		return invalid(join(at.path, part), "unknown field%s", didYouMean(guess(at.path, part, v.Type())))
	}
	at.workload, _ = v.Addr().Interface().(*scenario.Workload)
	at.path, at.value = join(at.path, part), v.FieldByIndex(f.Index)
	return nil
}

// element goes to an element of a list, by its number, or to a group by its name.
func (at *location) element(v reflect.Value, part string, inBrackets bool) error {
	v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v))
	groups, isGroups := v.Addr().Interface().(*[]scenario.Group)
	if isGroups && len(*groups) == 0 {
		*groups = []scenario.Group{{Name: scenario.Scenario{}.Defaults().Groups[0].Name}}
	}
	i, err := strconv.Atoi(part)
	if err != nil || !inBrackets {
		if !isGroups {
			return invalid(at.path, "is a list; an element of it is %s[0], not %.60q", at.path, part)
		}
		var names []string
		for _, g := range *groups {
			names = append(names, g.Name)
		}
		if i = slices.Index(names, part); i < 0 {
			return invalid(at.path, "have no group %.60q; there are %.60s", part, strings.Join(names, ", "))
		}
	}
	at.path = fmt.Sprintf("%s[%d]", at.path, i)
	if i < 0 || i >= v.Len() {
		return invalid(at.path, "is not there: the list has %d elements, from [0] on", v.Len())
	}
	at.workload, at.value = nil, v.Index(i)
	return nil
}

// Difference is a field, and its values in two scenarios as a file has them, a list in one line. A
// section that only one of them has is "there" and "left out".
type Difference struct{ Path, First, Second string }

// Differences are all fields in which two scenarios differ, in the order of Paths. A field that was
// not set is its zero value: compare what Defaults returns. Lists of different lengths are one
// difference.
func Differences(first, second scenario.Scenario) []Difference {
	return differences("", reflect.ValueOf(first), reflect.ValueOf(second))
}

func differences(path string, a, b reflect.Value) (all []Difference) {
	isPointer, isList := a.Kind() == reflect.Pointer, a.Kind() == reflect.Slice
	switch {
	case isPointer && a.IsNil() != b.IsNil():
		is := map[bool]string{true: "left out", false: "there"}
		return []Difference{{path, is[a.IsNil()], is[b.IsNil()]}}
	case isPointer && a.IsNil():
		return nil
	case isPointer:
		return differences(path, a.Elem(), b.Elem())
	case isList && a.Len() == b.Len():
		for i := range a.Len() {
			all = append(all, differences(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))...)
		}
	case isList || isScalar(a.Type()):
		if first, second := inOneLine(a), inOneLine(b); first != second {
			return []Difference{{path, first, second}}
		}
	default:
		for _, f := range fieldsOf(a.Type()) {
			field := join(path, scenario.FieldName(f.Name))
			all = append(all, differences(field, a.FieldByIndex(f.Index), b.FieldByIndex(f.Index))...)
		}
	}
	return all
}

// guess is the path that the writer of an unknown name in a section may have meant, or "": a field
// of this name elsewhere, or one of a similar name there.
func guess(path, name string, section reflect.Type) string {
	here := meant(name, namesOf(section))
	elsewhere := slices.IndexFunc(Paths(), func(p string) bool { return strings.HasSuffix(p, "."+name) })
	switch {
	case path == "" && elsewhere >= 0:
		return Paths()[elsewhere]
	case here != "":
		return join(path, here)
	}
	return ""
}

// meant is the known name that the writer of an unknown one may have meant, or "".
func meant(name string, known []string) string {
	name = strings.ReplaceAll(scenario.FieldName(name), "-", "_")
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// didYouMean is the end of a message about an unknown name.
func didYouMean(guess string) string {
	if guess == "" {
		return ""
	}
	return "; did you mean " + guess + "?"
}

// distance is the number of bytes to insert, delete or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from what of a is before i to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(diagonal+1, row[j]+1, change)
		}
	}
	return row[len(b)]
}
