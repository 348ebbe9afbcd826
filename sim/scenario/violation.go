package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ErrInvalidScenario is wrapped by every error that says why a Scenario cannot be run.
var ErrInvalidScenario = errors.New("sim: invalid scenario")

// Violation is one rule that a Scenario breaks. Validate joins them; each is found again through
// Unwrap() []error.
type Violation struct {
	// Path names the field as a scenario file does: groups[1].pauses.for. It is of the nearest
	// field that can be written in a file; "limits" where there are none.
	Path string
	// Message has the value and the bound.
	Message string
	// Together says that the bound comes from another field.
	Together bool
}

// Error implements error.
func (v *Violation) Error() string {
	return ErrInvalidScenario.Error() + ": " + v.Path + ": " + v.Message
}

// Unwrap is ErrInvalidScenario.
func (v *Violation) Unwrap() error { return ErrInvalidScenario }

// FollowsFrom reports whether nothing can be said about v's field while something is wrong at path:
// path is that field, or a section around it, or a part of it.
func (v *Violation) FollowsFrom(path string) bool {
	long, short := v.Path, path
	if len(short) > len(long) {
		long, short = short, long
	}
	rest, ok := strings.CutPrefix(long, short)
	return ok && (short == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// FieldName is what a field is called in scenario files and in paths: its Go name in snake case.
// TTL is ttl, RoundTrip is round_trip.
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
type checker struct {
	all      []error
	together bool // each field is right by itself
}

func (c *checker) bad(path, format string, args ...any) {
	c.all = append(c.all, &Violation{path, fmt.Sprintf(format, args...), c.together})
}

// inRange demands low <= value <= high, and reports whether it is so.
func inRange[T cmp.Ordered](c *checker, path string, value, low, high T) bool {
	ok := value >= low && value <= high
	if !ok {
		c.bad(path, "is %s, must be %s to %s", asText(value), asText(low), asText(high))
	}
	return ok
}

// oneOf demands one of words.
func (c *checker) oneOf(path, value string, words []string) {
	if !slices.Contains(words, value) {
		c.bad(path, "is %q, must be one of %s", value, strings.Join(words, ", "))
	}
}

// asText is a value as a scenario file has it.
func asText(value any) string {
	switch x := value.(type) {
	case encoding.TextMarshaler:
		if text, err := x.MarshalText(); err == nil {
			return string(text)
		}
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
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
