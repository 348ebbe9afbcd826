package yamlfile

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// Format describes how files of one kind represent Go values. Structs are mappings with fixed fields, and
// maps with string keys are mappings with any fields. Slices are lists. All other values are scalars, and so
// are values of types that implement encoding.TextUnmarshaler. A Reader skips a field with the tag json:"-".
type Format struct {
	Name   func(field string) string                  // returns the name in a file for a field's name in Go
	Words  map[reflect.Type][]string                  // texts of an enumeration: word i is the value i
	Wanted map[reflect.Type]string                    // text after "must be" in errors about values of a type
	Parse  map[reflect.Type]func(string) (any, error) // for scalars that UnmarshalText cannot parse
	Fields map[string]Field                           // rules for single fields, by type and name: "Rule.key"
}

// Field has rules for one field in addition to the rules of its type.
type Field struct {
	Want     string // text after "must be" in errors, instead of Format.Wanted
	Required bool
	Lone     bool // the file may have a scalar in place of a list with one element
}

func (f *Format) field(t reflect.Type, name string) Field { return f.Fields[t.Name()+"."+name] }

// Want describes the values of type t that a file may have, as the text after "must be".
func (f *Format) Want(t reflect.Type) string {
	if w, ok := f.Words[t]; ok {
		return strings.Join(w, " or ")
	}
	if w, ok := f.Wanted[t]; ok {
		return w
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.Want(t.Elem())
	case reflect.Slice:
		return "a list, like [...]"
	case reflect.Map:
		return "a mapping"
	}
	return "a mapping with the fields " + strings.Join(f.names(t), ", ")
}

// IsScalar reports whether a value of type t is a scalar in a file.
func (f *Format) IsScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer:
		return f.IsScalar(t.Elem())
	case reflect.Struct, reflect.Slice, reflect.Map:
		return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	}
	return true
}

// FieldsOf returns the fields of struct type t that a file may set, in the order of declaration.
func (f *Format) FieldsOf(t reflect.Type) []reflect.StructField {
	hidden := func(f reflect.StructField) bool { return f.Tag.Get("json") == "-" }
	return slices.DeleteFunc(reflect.VisibleFields(t), hidden)
}

func (f *Format) names(t reflect.Type) (names []string) {
	for _, field := range f.FieldsOf(t) {
		names = append(names, f.Name(field.Name))
	}
	return names
}

// FieldOf returns the field of struct type t that files call name.
func (f *Format) FieldOf(t reflect.Type, name string) (field reflect.StructField, ok bool) {
	if i := slices.Index(f.names(t), name); i >= 0 {
		return f.FieldsOf(t)[i], true
	}
	return field, false
}

// Paths returns the paths of all scalars and lists at and below a value of type t, with [] for the elements
// of a list. Paths does not descend into maps.
func (f *Format) Paths(path string, t reflect.Type) (paths []string) {
	switch {
	case f.IsScalar(t):
		return []string{path}
	case t.Kind() == reflect.Pointer:
		return f.Paths(path, t.Elem())
	case t.Kind() == reflect.Slice:
		return append([]string{path}, f.Paths(path+"[]", t.Elem())...)
	case t.Kind() == reflect.Struct:
		for _, field := range f.FieldsOf(t) {
			paths = append(paths, f.Paths(Join(path, f.Name(field.Name)), field.Type)...)
		}
	}
	return paths
}

// SetScalar parses text into v. plain reports whether text is unquoted, as numbers and truth values must be.
// An error names `want` or, if want is empty, the Want of v's type.
func (f *Format) SetScalar(v reflect.Value, text string, plain bool, want string) (err error) {
	if list, ok := f.Words[v.Type()]; ok {
		i := slices.Index(list, text)
		if i < 0 {
			want = cmp.Or(want, f.Want(v.Type()))
			return fmt.Errorf("is %.60q, must be %s%s", text, want, didYouMean(f.similar(text, list)))
		}
		v.SetInt(int64(i))
		return nil
	}
	if parse := f.Parse[v.Type()]; parse != nil {
		x, err := parse(text)
		if err == nil {
			v.Set(reflect.ValueOf(x))
		}
		return err
	}
	is := "is"
	switch x := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		v.SetZero()
		if err := x.UnmarshalText([]byte(text)); err != nil {
			var wrong violation.List
			wrong.Adopt(err, func(path string) string { return violation.Rename(path, f.Name) })
			return errors.New(cmp.Or(violation.Line(wrong.Err()), err.Error()))
		}
	case *string:
		*x = text
	case *time.Duration:
		*x, err = time.ParseDuration(text)
		if _, isNumber := strconv.ParseFloat(text, 64); err != nil && isNumber == nil {
			return fmt.Errorf("is %.60q, which has no unit: a duration is like 100ms, 2s or 1h30m", text)
		}
	default:
		if err = setNumber(x, text); !plain {
			is, err = "is the text", strconv.ErrSyntax
		}
	}
	if err != nil {
		return fmt.Errorf("%s %.60q, must be %s", is, text, cmp.Or(want, f.Want(v.Type())))
	}
	return nil
}

// setNumber parses a finite decimal number, or true or false.
func setNumber(into any, text string) (err error) {
	x, isFloat := into.(*float64)
	if !isFloat {
		return json.Unmarshal([]byte(text), into) // JSON refuses 010, which is 8 in YAML 1.1 and 10 in YAML 1.2
	}
	*x, err = strconv.ParseFloat(text, 64)
	if strings.ContainsAny(text, "xX_nN") { // hexadecimal, infinite, or NaN
		return strconv.ErrSyntax
	}
	if *x == 0 {
		*x = 0 // not -0
	}
	return err
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Join returns the path of a field or map entry of the value at path, such as policy.target or routes["/a"].
func Join(path, name string) string {
	if !plainName.MatchString(name) {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

// Index returns the path of element i of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// parent returns path without its last component.
func parent(path string) string {
	if strings.HasSuffix(path, `"]`) { // the name after [" has its quotes escaped by %q
		return path[:max(strings.LastIndex(path, `["`), 0)]
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// Unknown returns the message about an unknown field of the struct of type t at path. guess is the path that
// the author probably meant, or "".
func (f *Format) Unknown(path, name string, t reflect.Type) (message, guess string) {
	here := f.similar(name, f.names(t))
	if path == "" {
		paths := f.Paths("", t)
		if i := slices.IndexFunc(paths, func(p string) bool { return strings.HasSuffix(p, "."+name) }); i >= 0 {
			guess, here = paths[i], ""
		}
	}
	if here != "" {
		guess = Join(path, here)
	}
	if guess == "" {
		return "unknown field, must be one of " + strings.Join(f.names(t), ", "), ""
	}
	return "unknown field" + didYouMean(guess), guess
}

// similar returns the known name that is most similar to name, or "".
func (f *Format) similar(name string, known []string) string {
	name = strings.ReplaceAll(f.Name(name), "-", "_")
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

func didYouMean(guess string) string {
	if guess == "" {
		return ""
	}
	return "; did you mean " + guess + "?"
}

// distance returns the number of bytes to insert, delete or replace to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a's first i bytes to each prefix of b
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
