package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
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
	// Of is the path of the other field that the bound comes from; "" where it is a constant.
	Of string
}

// Error implements error.
func (v *Violation) Error() string {
	return ErrInvalidScenario.Error() + ": " + v.Path + ": " + v.Message
}

// Unwrap is ErrInvalidScenario.
func (v *Violation) Unwrap() error { return ErrInvalidScenario }

// FollowsFrom reports whether nothing can be said about v's field while something is wrong at path:
// path is Path or Of, or a section around one of them, or a part of it.
func (v *Violation) FollowsFrom(path string) bool {
	return related(v.Path, path) || v.Of != "" && related(v.Of, path)
}

// related reports whether one path is the other or a section around it.
func related(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (a == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
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
type checker struct{ all []*Violation }

func (c *checker) bad(path, format string, args ...any) *Violation {
	v := &Violation{Path: path, Message: fmt.Sprintf(format, args...)}
	c.all = append(c.all, v)
	return v
}

// err joins the violations. It leaves out those whose bound is itself wrong: there the writer has to
// correct the bound first.
func (c *checker) err() error {
	wrong := map[string]bool{}
	for _, v := range c.all {
		wrong[v.Path] = true
		if strings.HasSuffix(v.Path, "]") { // a wrong element makes a wrong list
			wrong[v.Path[:strings.LastIndexByte(v.Path, '[')]] = true
		}
	}
	var errs []error
	for _, v := range c.all {
		if !wrong[v.Of] {
			errs = append(errs, v)
		}
	}
	return errors.Join(errs...)
}

// inRange demands low <= value <= high, which NaN is not. It reports the violation, if any, for its
// Of.
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
