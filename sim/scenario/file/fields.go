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
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

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
	reflect.TypeFor[scenario.Cost]():         "a cost in tokens, like 3, uniform(1,5) or pareto(1,500,1.3)",
	reflect.TypeFor[scenario.TokenDist]():    "tokens or a distribution of them, like 300 or uniform(50,300)",
	reflect.TypeFor[scenario.DurationDist](): "a duration or a distribution of durations, like 5ms or exp(5ms)",
	reflect.TypeFor[scenario.DriftDist]():    "a drift or a distribution of drifts, like 50ppm or normal(0ppm,50ppm)",
	reflect.TypeFor[lease.Limit]():           "a limit, like 1000/s burst 200, 100 in 1m or 1000 each 24h",
	reflect.TypeFor[[]lease.Limit]():         "a list, like [1000/s burst 200]",
	reflect.TypeFor[string]():                "a text",
	reflect.TypeFor[bool]():                  "true or false",
	reflect.TypeFor[int]():                   "a whole number, below 2^63",
	reflect.TypeFor[int64]():                 "a whole number, below 2^63",
	reflect.TypeFor[uint64]():                "a whole number, 0 or more and below 2^64",
	reflect.TypeFor[float64]():               "a number like 0.9, below 1.8e308",
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
	quantity, limit := scenario.ErrQuantity.Error()+": ", lease.ErrInvalidLimit.Error()+": "
	return errors.New(scenario.InFile(strings.NewReplacer(quantity, "", limit, "", "\n", "; ").Replace(err.Error())))
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
		if !x.Windowed() && x.Burst != 0 && x.Burst == x.Tokens { // which String leaves out
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
	noField := func(f reflect.StructField) bool { return f.Tag.Get("json") == "-" }
	return slices.DeleteFunc(reflect.VisibleFields(t), noField)
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

// Marshal writes a scenario as YAML: the fields that are not zero, in the order of
// scenario.Scenario. Parse reads it back as an equal Scenario if s is valid and its traces are in
// the files that it names. A trace without a file cannot be written, nor can a text that is not
// UTF-8; the error wraps ErrInvalid.
func Marshal(s scenario.Scenario) ([]byte, error) {
	for _, g := range append(slices.Clip(s.Groups), scenario.Group{Workload: &s.Workload}) {
		if w := g.Workload; w != nil && w.Trace != nil && w.File == "" {
			return nil, fmt.Errorf("%w: there is a trace without a file", ErrInvalid)
		}
	}
	return marshal(reflect.ValueOf(s), 0)
}

func marshal(v reflect.Value, style yaml.Style) ([]byte, error) {
	var err error
	n := nodeOf(v, &err)
	if err != nil {
		return nil, err
	}
	n.Style = style
	text, err := yaml.Dump(n, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return text, nil
}

// nodeOf is v as a file has it. Of what no file can say, err is set.
func nodeOf(v reflect.Value, err *error) *yaml.Node {
	switch {
	case isScalar(v.Type()):
		return scalarNode(v, err)
	case v.Kind() == reflect.Pointer:
		return nodeOf(v.Elem(), err)
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i), err))
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.Index)
		if !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: scenario.FieldName(f.Name)}
			n.Content = append(n.Content, key, nodeOf(value, err))
		}
	}
	return n
}

func scalarNode(v reflect.Value, err *error) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: scalarText(v)}
	if list, ok := words[v.Type()]; ok && !slices.Contains(list, n.Value) {
		*err = fmt.Errorf("%w: %s is no value of %v", ErrInvalid, n.Value, v.Type())
	}
	if !utf8.ValidString(n.Value) {
		*err = fmt.Errorf("%w: %q is not UTF-8", ErrInvalid, n.Value)
	}
	if v.Kind() == reflect.String {
		n.Tag = "!!str" // quoted where it would look like something else
	}
	return n
}

// inOneLine is v as a file has it, in YAML's flow style. It is for people: an error stands in place
// of what no file can say.
func inOneLine(v reflect.Value) string {
	if isScalar(v.Type()) {
		return scalarText(v)
	}
	text, err := marshal(v, yaml.FlowStyle)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(string(text), "\n")
}
