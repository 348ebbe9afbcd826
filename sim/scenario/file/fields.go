package file

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

var format = &yamlfile.Format{
	Name: scenario.FieldName,
	Words: map[reflect.Type][]string{
		reflect.TypeFor[lease.Fallback](): {
			lease.FallbackLocalShare: "local_share", lease.FallbackDeny: "deny", lease.FallbackAllowAll: "allow_all",
		},
		reflect.TypeFor[lease.ColdStart](): {lease.ColdStartDeny: "deny", lease.ColdStartAllow: "allow"},
	},
	Wanted: map[reflect.Type]string{
		reflect.TypeFor[time.Duration]():         "a duration like 100ms, 2s or 1h30m, of at most 292 years",
		reflect.TypeFor[scenario.Rate]():         "a rate, like 1200/s",
		reflect.TypeFor[scenario.Ratio]():        "a ratio in percent, like 0.5%",
		reflect.TypeFor[scenario.Cost]():         "a cost in tokens, like 3, uniform(1,5) or pareto(1,500,1.3)",
		reflect.TypeFor[scenario.TokenDist]():    "tokens or a distribution of them, like 300 or uniform(50,300)",
		reflect.TypeFor[scenario.DurationDist](): "a duration or a distribution of durations, like 5ms or exp(5ms)",
		reflect.TypeFor[scenario.DriftDist]():    "a drift or a distribution, like 50ppm or normal(0ppm,50ppm)",
		reflect.TypeFor[lease.Limit]():           "a limit, like 1000/s burst 200, 100 in 1m or 1000 each 24h",
		reflect.TypeFor[[]lease.Limit]():         "a list, like [1000/s burst 200]",
		reflect.TypeFor[string]():                "a text",
		reflect.TypeFor[bool]():                  "true or false",
		reflect.TypeFor[int]():                   "a whole number, below 2^63",
		reflect.TypeFor[int64]():                 "a whole number, below 2^63",
		reflect.TypeFor[uint64]():                "a whole number, 0 or more and below 2^64",
		reflect.TypeFor[float64]():               "a number like 0.9, below 1.8e308",
	},
}

// scalarText returns v as a file writes it: as a word if v's type has one for this value, else as a number.
func scalarText(v reflect.Value) string {
	if list := format.Words[v.Type()]; list != nil {
		if n := v.Int(); n >= 0 && n < int64(len(list)) {
			return list[n]
		}
		return strconv.FormatInt(v.Int(), 10)
	}
	switch x := v.Interface().(type) {
	case lease.Limit:
		text := x.String()
		if !x.Windowed() && x.Burst != 0 && x.Burst == x.Tokens { // String omits a burst equal to Tokens
			text += " burst " + strconv.FormatInt(x.Burst, 10)
		}
		return text
	case encoding.TextMarshaler:
		text, _ := x.MarshalText() // MarshalText of all types in a Scenario returns no error
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

// Marshal writes the non-zero fields of a scenario as YAML, in the order of scenario.Scenario. Parse reads an
// equal Scenario if s is valid and the traces of s are in their named files. The error for a trace without a
// file wraps ErrInvalid.
func Marshal(s scenario.Scenario) ([]byte, error) {
	for _, g := range append(slices.Clip(s.Groups), scenario.Group{Workload: &s.Workload}) {
		if w := g.Workload; w != nil && w.Trace != nil && w.File == "" {
			return nil, fmt.Errorf("%w: there is a trace without a file", ErrInvalid)
		}
	}
	return marshal(reflect.ValueOf(s), 0)
}

func marshal(v reflect.Value, style yaml.Style) ([]byte, error) {
	n := nodeOf(v)
	n.Style = style
	return yaml.Dump(n, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
}

func nodeOf(v reflect.Value) *yaml.Node {
	switch {
	case format.IsScalar(v.Type()):
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: scalarText(v)}
		if v.Kind() == reflect.String {
			n.Tag = "!!str" // the tag quotes text that looks like another type
		}
		return n
	case v.Kind() == reflect.Pointer:
		return nodeOf(v.Elem())
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i)))
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range format.FieldsOf(v.Type()) {
		value := v.FieldByIndex(f.Index)
		if !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: scenario.FieldName(f.Name)}
			n.Content = append(n.Content, key, nodeOf(value))
		}
	}
	return n
}

func inOneLine(v reflect.Value) string {
	if format.IsScalar(v.Type()) {
		return scalarText(v)
	}
	text, _ := marshal(v, yaml.FlowStyle) // empty for text that is not UTF-8
	return strings.TrimSuffix(string(text), "\n")
}
