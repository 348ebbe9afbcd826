package file

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Marshal writes a scenario as YAML: the fields that are not zero, in the order of
// scenario.Scenario. Parse reads it back as an equal Scenario if s is valid and its traces are in
// the files that it names. A trace without a file cannot be written, nor can a text that is not
// UTF-8; the error wraps ErrInvalid.
func Marshal(s scenario.Scenario) ([]byte, error) {
	workloads := []*scenario.Workload{&s.Workload}
	for _, g := range s.Groups {
		workloads = append(workloads, g.Workload)
	}
	for _, w := range workloads {
		if w != nil && w.Trace != nil && w.File == "" {
			return nil, fmt.Errorf("%w: there is a trace without a file", ErrInvalid)
		}
	}
	return new(encoder).text(reflect.ValueOf(s), 0)
}

// encoder is a value on its way to YAML.
type encoder struct{ err error } // the first thing that no file can say

func (e *encoder) text(v reflect.Value, style yaml.Style) ([]byte, error) {
	n := e.node(v)
	n.Style = style
	if e.err != nil {
		return nil, e.err
	}
	text, err := yaml.Dump(n, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return text, nil
}

// inOneLine is v as a file has it, in YAML's flow style. It is for people: an error stands in place
// of what no file can say.
func inOneLine(v reflect.Value) string {
	if isScalar(v.Type()) {
		return scalarText(v)
	}
	text, err := new(encoder).text(v, yaml.FlowStyle)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(string(text), "\n")
}

func (e *encoder) node(v reflect.Value) *yaml.Node {
	switch {
	case isScalar(v.Type()):
		return e.scalar(v)
	case v.Kind() == reflect.Pointer && v.IsNil():
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case v.Kind() == reflect.Pointer:
		return e.node(v.Elem())
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			n.Content = append(n.Content, e.node(v.Index(i)))
		}
		return n
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range fieldsOf(v.Type()) {
		value := v.Field(f.index)
		if !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.name}
			n.Content = append(n.Content, key, e.node(value))
		}
	}
	return n
}

func (e *encoder) scalar(v reflect.Value) *yaml.Node {
	text := scalarText(v)
	list, named := words[v.Type()]
	switch {
	case e.err != nil:
	case named && !slices.Contains(list, text):
		e.err = fmt.Errorf("%w: %s is no value of %v", ErrInvalid, text, v.Type())
	case !utf8.ValidString(text):
		e.err = fmt.Errorf("%w: %q is not UTF-8", ErrInvalid, text)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if v.Kind() == reflect.String {
		n.Tag = "!!str" // quoted where it would look like something else
	}
	return n
}
