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
	noFile := func(w *scenario.Workload) bool { return w != nil && w.Trace != nil && w.File == "" }
	if noFile(&s.Workload) || slices.ContainsFunc(s.Groups, func(g scenario.Group) bool { return noFile(g.Workload) }) {
		return nil, fmt.Errorf("%w: there is a trace without a file", ErrInvalid)
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
