package file

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

var onlyNumber = regexp.MustCompile(`^[-+]?[0-9.]+$`)

// forms are what numbers and truth values look like. 010 is none: it is 8 to some and 10 to others.
var forms = map[reflect.Kind]*regexp.Regexp{
	reflect.Bool:    regexp.MustCompile(`^(true|false)$`),
	reflect.Int:     regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`),
	reflect.Int64:   regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`),
	reflect.Uint64:  regexp.MustCompile(`^(0|[1-9][0-9]*)$`),
	reflect.Float64: regexp.MustCompile(`^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`),
}

// setScalar reads text into v. Numbers and truth values must be plain, which a quoted text is not.
func setScalar(v reflect.Value, text string, plain bool) error {
	t := v.Type()
	if list, ok := words[t]; ok {
		i := slices.Index(list, text)
		if i < 0 {
			return fmt.Errorf("is %q, must be %s%s", clip(text), strings.Join(list, " or "), didYouMean(meant(text, list)))
		}
		v.SetInt(int64(i))
		return nil
	}
	switch x := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		v.SetZero()
		return unprefixed(x.UnmarshalText([]byte(text)))
	case *time.Duration:
		var err error
		*x, err = duration(text)
		return err
	case *string:
		*x = text
		return nil
	}
	if !plain {
		return fmt.Errorf("is the text %q, must be %s", clip(text), want(t))
	}
	if !forms[t.Kind()].MatchString(text) {
		return fmt.Errorf("is %q, must be %s", clip(text), want(t))
	}
	if _, err := fmt.Sscan(text, v.Addr().Interface()); err != nil {
		return fmt.Errorf("is %q, which is too large a number", clip(text))
	}
	if v.CanFloat() && v.Float() == 0 {
		v.SetZero() // not -0
	}
	return nil
}

// duration reads a duration with a unit; 0 alone has no need of one.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return d, nil
	case onlyNumber.MatchString(text):
		return 0, fmt.Errorf("is %q, which has no unit: a duration is like 100ms, 2s or 1h30m", clip(text))
	}
	return 0, fmt.Errorf("is %q, must be a duration like 100ms, 2s or 1h30m, of at most 292 years", clip(text))
}

// unprefixed is an error about a text without the names of packages, which a reader of a file does
// not know.
func unprefixed(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, sentinel := range []error{scenario.ErrQuantity, lease.ErrInvalidLimit} {
		text = strings.ReplaceAll(text, sentinel.Error()+": ", "")
	}
	return errors.New(strings.ReplaceAll(text, "\n", "; "))
}

// scalarText is the text that setScalar reads as v. A value that is none of its type's words is its
// number.
func scalarText(v reflect.Value) string {
	if list, ok := words[v.Type()]; ok && v.Int() >= 0 && v.Int() < int64(len(list)) {
		return list[v.Int()]
	}
	switch x := v.Interface().(type) {
	case lease.Limit:
		text := x.String()
		if x.Burst != 0 && x.Burst == x.Tokens { // which String leaves out
			text += " burst " + strconv.FormatInt(x.Burst, 10)
		}
		return text
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return err.Error() // no type of a Scenario's does
		}
		return string(text)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case lease.Fallback, lease.ColdStart:
		return strconv.FormatInt(v.Int(), 10)
	}
	return fmt.Sprint(v.Interface())
}
