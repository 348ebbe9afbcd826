package search

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// ErrAxis is wrapped by every error about an axis's text or values.
var ErrAxis = errors.New("search: invalid axis")

// Axis is one parameter that varies: the path of its field, as in --set, and its values as texts.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

var parentheses = regexp.MustCompile(`\([^()]*\)`)

// ParseAxis parses "path=value,value,...". Each value is a text that the field accepts. Commas inside
// parentheses belong to a value ("normal(0s,10ms)").
func ParseAxis(text string) (Axis, error) {
	wrong := wrongText(ErrAxis, text)
	path, list, ok := strings.Cut(text, "=")
	if !ok || path == "" || strings.TrimSpace(path) != path {
		return Axis{}, wrong("must be PATH=VALUES, as in policy.target=10ms,50ms,1s")
	}
	a := Axis{Path: path}
	const inner = "\x00" // stands for a comma inside parentheses
	list = parentheses.ReplaceAllStringFunc(list, func(s string) string { return strings.ReplaceAll(s, ",", inner) })
	for value := range strings.SplitSeq(list, ",") {
		value = strings.ReplaceAll(strings.TrimSpace(value), inner, ",")
		if value == "" {
			return Axis{}, wrong("a value is missing")
		}
		if slices.Contains(a.Values, value) {
			return Axis{}, wrong("%s occurs twice", value)
		}
		a.Values = append(a.Values, value)
	}
	return a, nil
}
