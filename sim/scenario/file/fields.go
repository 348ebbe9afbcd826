package file

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// words are the types whose values a file names; the n-th word is the value n.
var words = map[reflect.Type][]string{
	reflect.TypeFor[lease.Fallback](): {
		lease.FallbackLocalShare: "local_share", lease.FallbackDeny: "deny", lease.FallbackAllowAll: "allow_all",
	},
	reflect.TypeFor[lease.ColdStart](): {lease.ColdStartDeny: "deny", lease.ColdStartAllow: "allow"},
}

// wanted says what a type looks like in a file.
var wanted = map[reflect.Type]string{
	reflect.TypeFor[time.Duration]():         "a duration like 100ms, 2s or 1h30m, of at most 292 years",
	reflect.TypeFor[scenario.Rate]():         "a rate, like 1200/s",
	reflect.TypeFor[scenario.Ratio]():        "a ratio in percent, like 0.5%",
	reflect.TypeFor[scenario.Cost]():         "a cost in tokens, like 3 or uniform(1,5)",
	reflect.TypeFor[scenario.DurationDist](): "a duration or a distribution of durations, like 5ms or exp(5ms)",
	reflect.TypeFor[scenario.DriftDist]():    "a drift or a distribution of drifts, like 50ppm or normal(0ppm,50ppm)",
	reflect.TypeFor[lease.Limit]():           "a limit, like 1000/s burst 200",
	reflect.TypeFor[[]lease.Limit]():         "a list, like [1000/s burst 200]",
	reflect.TypeFor[string]():                "a text",
	reflect.TypeFor[bool]():                  "true or false",
	reflect.TypeFor[int]():                   "a whole number, below 2^63",
	reflect.TypeFor[int64]():                 "a whole number, below 2^63",
	reflect.TypeFor[uint64]():                "a whole number, 0 or more and below 2^64",
	reflect.TypeFor[float64]():               "a number, below 1.8e308",
}

func want(t reflect.Type) string {
	if w, ok := words[t]; ok {
		return strings.Join(w, " or ")
	}
	if w, ok := wanted[t]; ok {
		return w
	}
	if t.Kind() == reflect.Slice {
		return "a list, like [...]"
	}
	return "a mapping with the fields " + strings.Join(namesOf(t), ", ")
}

// isScalar reports whether a value of type t is a single text in a file.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Pointer:
		return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	}
	return true
}

// setScalar reads text into v. Numbers and truth values must be plain, which a quoted text is not.
func setScalar(v reflect.Value, text string, plain bool) error {
	if list, ok := words[v.Type()]; ok {
		i := slices.Index(list, text)
		if i < 0 {
			return fmt.Errorf("is %.60q, must be %s%s", text, want(v.Type()), didYouMean(meant(text, list)))
		}
		v.SetInt(int64(i))
		return nil
	}
	var err error
	is := "is"
	switch x := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		v.SetZero()
		return unprefixed(x.UnmarshalText([]byte(text)))
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
		return fmt.Errorf("%s %.60q, must be %s", is, text, want(v.Type()))
	}
	return nil
}

// setNumber reads a finite decimal number, or true or false.
func setNumber(into any, text string) (err error) {
	x, isFloat := into.(*float64)
	if !isFloat {
		return json.Unmarshal([]byte(text), into) // to which 010 is none: it is 8 to some and 10 to others
	}
	*x, err = strconv.ParseFloat(text, 64)
	if strings.ContainsAny(text, "xX_nN") { // hexadecimal, infinite or none
		return strconv.ErrSyntax
	}
	if *x == 0 {
		*x = 0 // not -0
	}
	return err
}

// unprefixed is an error about a text without the names of packages, which a reader of a file does
// not know.
func unprefixed(err error) error {
	if err == nil {
		return nil
	}
	names := []string{scenario.ErrQuantity.Error() + ": ", "", lease.ErrInvalidLimit.Error() + ": ", "", "\n", "; "}
	return errors.New(strings.NewReplacer(names...).Replace(err.Error()))
}

// scalarText is the text that setScalar reads as v. A value that is none of its type's words is its
// number.
func scalarText(v reflect.Value) string {
	if list, ok := words[v.Type()]; ok {
		if n := v.Int(); n >= 0 && n < int64(len(list)) {
			return list[n]
		}
		return strconv.FormatInt(v.Int(), 10)
	}
	switch x := v.Interface().(type) {
	case lease.Limit:
		text := x.String()
		if x.Burst != 0 && x.Burst == x.Tokens { // which String leaves out
			text += " burst " + strconv.FormatInt(x.Burst, 10)
		}
		return text
	case encoding.TextMarshaler:
		text, _ := x.MarshalText() // no type of a Scenario's has an error
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

// fieldsOf are the fields of struct type t that a file may set, in the order of their declaration.
func fieldsOf(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Tag.Get("json") == "-" })
}

// namesOf are what a file calls them.
func namesOf(t reflect.Type) (names []string) {
	for _, f := range fieldsOf(t) {
		names = append(names, scenario.FieldName(f.Name))
	}
	return names
}

// fieldOf finds a field of struct type t by its name in a file.
func fieldOf(t reflect.Type, name string) (f reflect.StructField, ok bool) {
	if i := slices.Index(namesOf(t), name); i >= 0 {
		return fieldsOf(t)[i], true
	}
	return f, false
}

// join is the path of a field of what is at path.
func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

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
