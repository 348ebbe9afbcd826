package file

import (
	"encoding"
	"reflect"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// field is a field of a struct that a file may set.
type field struct {
	name  string // in the file
	index int    // in the struct
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// words are the types whose values a file names; the n-th word is the value n.
var words = map[reflect.Type][]string{
	reflect.TypeFor[lease.Fallback]():  {lease.FallbackLocalShare: "local_share", lease.FallbackDeny: "deny", lease.FallbackAllowAll: "allow_all"},
	reflect.TypeFor[lease.ColdStart](): {lease.ColdStartDeny: "deny", lease.ColdStartAllow: "allow"},
}

// wanted says what a scalar type looks like in a file.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():         "a duration with a unit, like 100ms",
	reflect.TypeFor[scenario.Rate]():         "a rate, like 1200/s",
	reflect.TypeFor[scenario.Ratio]():        "a ratio in percent, like 0.5%",
	reflect.TypeFor[scenario.Cost]():         "a cost in tokens, like 3 or uniform(1,5)",
	reflect.TypeFor[scenario.DurationDist](): "a duration or a distribution of durations, like 5ms or exp(5ms)",
	reflect.TypeFor[scenario.DriftDist]():    "a drift or a distribution of drifts, like 50ppm or normal(0ppm,50ppm)",
	reflect.TypeFor[lease.Limit]():           "a limit, like 1000/s burst 200",
	reflect.TypeFor[string]():                "a text",
	reflect.TypeFor[bool]():                  "true or false",
	reflect.TypeFor[int]():                   "a whole number",
	reflect.TypeFor[int64]():                 "a whole number",
	reflect.TypeFor[uint64]():                "a whole number, 0 or more",
	reflect.TypeFor[float64]():               "a number",
}

// want says what a type looks like in a file.
func want(t reflect.Type) string {
	if w, ok := words[t]; ok {
		return strings.Join(w, " or ")
	}
	if w, ok := wanted[t]; ok {
		return w
	}
	if t.Kind() == reflect.Slice {
		return "a list"
	}
	return "a mapping with the fields " + strings.Join(namesOf(t), ", ")
}

// isScalar reports whether a value of type t is a single text in a file.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Pointer:
		return reflect.PointerTo(t).Implements(textUnmarshaler)
	}
	return true
}

// fieldsOf are the fields of struct type t in the order of their declaration.
func fieldsOf(t reflect.Type) (fields []field) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("json") != "-" {
			fields = append(fields, field{scenario.FieldName(f.Name), i})
		}
	}
	return fields
}

func namesOf(t reflect.Type) (names []string) {
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// fieldOf finds a field of struct type t by its name.
func fieldOf(t reflect.Type, name string) (field, bool) {
	for _, f := range fieldsOf(t) {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

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
		paths = append(paths, pathsOf(join(path, f.name), t.Field(f.index).Type)...)
	}
	return paths
}

// join is the path of a field of what is at path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// meant is what the writer of an unknown name may have meant, or "".
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
