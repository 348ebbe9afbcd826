package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrAxis is wrapped by every error about an axis's text; the error names the column.
var ErrAxis = errors.New("sweep: invalid axis")

// PointsMax bounds the grid, and the number of values of one axis.
const PointsMax = 10_000

// Axis is one parameter that varies, by the path that scenfile.Set knows, and its values as texts.
// The zero value is not an axis.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`

	text    string // as it was parsed
	columns []int  // of each value in text, from 1
}

// ParseAxis reads "path=value,value,...". A value is a text that scenfile.Set takes, with commas inside parentheses
// ("normal(0s,10ms)"), or a range: "10ms..1s:log:8" is 8 values from 10ms to 1s that rise by the same factor,
// "1..9:lin:5" is 5 that rise by the same difference. A range is of durations, or of numbers with the same unit on
// both ends ("1%..10%", "100/s..5000/s", "-50ppm..50ppm"). What lies between its ends is rounded to a hundredth or more
// of the step, and to whole numbers where both ends are whole and have no unit; equal values count once.
func ParseAxis(text string) (Axis, error) {
	a := Axis{text: text}
	path, list, ok := strings.Cut(text, "=")
	switch {
	case !ok:
		return Axis{}, a.bad(len(text), "there is no '='; an axis is like policy.target=10ms..1s:log:8")
	case path == "" || strings.TrimSpace(path) != path:
		return Axis{}, a.bad(0, "the path is empty or has blanks around it")
	}
	a.Path = path
	at := len(path) + 1
	for _, part := range splitOutside(list) {
		start := at + len(part) - len(strings.TrimLeft(part, " "))
		at += len(part) + 1
		part = strings.TrimSpace(part)
		if part == "" {
			return Axis{}, a.bad(start, "a value is missing")
		}
		values := []string{part}
		if strings.Contains(part, "..") {
			var err error
			if values, err = a.parseSpan(part, start); err != nil {
				return Axis{}, err
			}
		}
		for _, v := range values {
			if slices.Contains(a.Values, v) {
				if len(values) == 1 {
					return Axis{}, a.bad(start, "%s is there twice", v)
				}
				continue
			}
			a.Values = append(a.Values, v)
			a.columns = append(a.columns, a.column(start))
		}
	}
	if len(a.Values) > PointsMax {
		return Axis{}, a.bad(len(path)+1, "%d values, must be at most %d", len(a.Values), PointsMax)
	}
	return a, nil
}

// parseSpan is the values of a range that begins at byte start.
func (a Axis) parseSpan(part string, start int) ([]string, error) {
	ends, how, _ := strings.Cut(part, ":")
	low, high, _ := strings.Cut(ends, "..")
	mode, count, _ := strings.Cut(how, ":")
	atHow := start + len(ends)
	if how != "" {
		atHow++
	}
	if mode != "lin" && mode != "log" {
		return nil, a.bad(atHow, "a range ends in :log:8 (equal factors) or :lin:8 (equal steps)")
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 2 || n > PointsMax {
		return nil, a.bad(atHow+len(mode)+1, "%q values, must be 2 to %d", count, PointsMax)
	}
	s, err := newSpan(low, high)
	if err != nil {
		return nil, a.bad(start, "%v", err)
	}
	if mode == "log" && s.low <= 0 {
		return nil, a.bad(start, "%s is not above 0, as equal factors need", low)
	}
	return s.values(n, mode == "log"), nil
}

// column is the number, from 1, of the character at byte i.
func (a Axis) column(i int) int { return utf8.RuneCountInString(a.text[:min(i, len(a.text))]) + 1 }

func (a Axis) bad(i int, format string, args ...any) error {
	return fmt.Errorf("%w %q, column %d: "+format, append([]any{ErrAxis, a.text, a.column(i)}, args...)...)
}

// splitOutside splits at commas that are not inside parentheses.
func splitOutside(s string) (parts []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth <= 0:
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}
