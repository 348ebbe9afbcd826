package sim

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrInvalidScenario is wrapped by every error that says why a Scenario cannot be run.
var ErrInvalidScenario = errors.New("sim: invalid scenario")

// Violation is one rule that a Scenario breaks. Validate joins them; each is found again through Unwrap() []error.
type Violation struct {
	// Path names the field as a scenario file does: groups[1].pauses.for. It is of the nearest field that can be
	// written in a file; "limits" where there are none.
	Path string
	// Message has the value and the bound.
	Message string
	// Of is the path of the other field that the bound comes from; "" where it is a constant. Whoever knows that
	// Of could not be read knows that the violation means nothing.
	Of string
}

// Error implements error.
func (v *Violation) Error() string {
	return ErrInvalidScenario.Error() + ": " + v.Path + ": " + v.Message
}

// Unwrap is ErrInvalidScenario.
func (v *Violation) Unwrap() error { return ErrInvalidScenario }

// FieldName is what a field is called in scenario files and in paths: its Go name in snake case. TTL is ttl, RoundTrip
// is round_trip.
func FieldName(goName string) string {
	var b strings.Builder
	lower := false // whether the letter before was a small one
	for _, r := range goName {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('_')
		}
		lower = !unicode.IsUpper(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// checker collects violations.
type checker struct{ errs []error }

func (c *checker) bad(path, format string, args ...any) *Violation {
	v := &Violation{Path: path, Message: fmt.Sprintf(format, args...)}
	c.errs = append(c.errs, v)
	return v
}

// inRange demands low <= value <= high, which NaN is not. It reports the violation, if any, for its Of.
func inRange[T cmp.Ordered](c *checker, path string, value, low, high T) *Violation {
	if value >= low && value <= high {
		return &Violation{}
	}
	return c.bad(path, "is %s, must be %s to %s", asText(value), asText(low), asText(high))
}

// oneOf demands one of words.
func (c *checker) oneOf(path, value string, words []string) {
	for _, w := range words {
		if value == w {
			return
		}
	}
	c.bad(path, "is %q, must be one of %s", value, strings.Join(words, ", "))
}

// asText is a value as a scenario file has it.
func asText(value any) string {
	if m, ok := value.(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(value)
}

// unjoined is the texts of the errors that err joins, each without the prefix of sentinel.
func unjoined(err, sentinel error) (texts []string) {
	if err == nil {
		return nil
	}
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, e := range errs {
		texts = append(texts, strings.TrimPrefix(e.Error(), sentinel.Error()+": "))
	}
	return texts
}
