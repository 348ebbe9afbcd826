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
	node, err := encode(reflect.ValueOf(s))
	if err != nil {
		return nil, err
	}
	return dump(node)
}

func dump(n *yaml.Node) ([]byte, error) {
	text, err := yaml.Dump(n, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return text, nil
}

// inOneLine is v as a file has it, in YAML's flow style; for people, as what no file can say is an
// error in place of it.
func inOneLine(v reflect.Value) string {
	if isScalar(v.Type()) {
		return scalarText(v)
	}
	node, err := encode(v)
	var text []byte
	if err == nil {
		node.Style = yaml.FlowStyle
		text, err = dump(node)
	}
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(string(text), "\n")
}

// encode is v as YAML.
func encode(v reflect.Value) (*yaml.Node, error) {
	switch {
	case isScalar(v.Type()):
		return encodeScalar(v)
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
		}
		return encode(v.Elem())
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			item, err := encode(v.Index(i))
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		return n, nil
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range fieldsOf(v.Type()) {
		value := v.Field(f.index)
		if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			continue
		}
		item, err := encode(value)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.name}, item)
	}
	return n, nil
}

func encodeScalar(v reflect.Value) (*yaml.Node, error) {
	text := scalarText(v)
	if list, ok := words[v.Type()]; ok && !slices.Contains(list, text) {
		return nil, fmt.Errorf("%w: %s is no value of %v", ErrInvalid, text, v.Type())
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: %q is not UTF-8", ErrInvalid, text)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if v.Kind() == reflect.String {
		n.Tag = "!!str" // quoted where it would look like something else
	}
	return n, nil
}
