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

var (
	wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`) // 010 is 8 to some and 10 to others
	realNumber  = regexp.MustCompile(`^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)
	onlyNumber  = regexp.MustCompile(`^[-+]?[0-9.]+$`)
)

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
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		v.SetZero()
		return unprefixed(u.UnmarshalText([]byte(text)))
	}
	var err error
	read := plain // whether text is what t wants, but for its size
	switch t.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		v.SetBool(text == "true")
		read = read && (text == "true" || text == "false")
	case reflect.Float64:
		var x float64
		x, err = strconv.ParseFloat(text, 64)
		v.SetFloat(x + 0) // not -0
		read = read && realNumber.MatchString(text)
	case reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(text, 10, t.Bits())
		v.SetUint(n)
		read = read && wholeNumber.MatchString(text)
	default:
		if t == reflect.TypeFor[time.Duration]() {
			d, err := duration(text)
			v.SetInt(int64(d))
			return err
		}
		var n int64
		n, err = strconv.ParseInt(text, 10, t.Bits())
		v.SetInt(n)
		read = read && wholeNumber.MatchString(text)
	}
	switch {
	case read && errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("is %q, which is too large a number", clip(text))
	case read && err == nil:
		return nil
	case !plain:
		return fmt.Errorf("is the text %q, must be %s", clip(text), want(t))
	}
	return fmt.Errorf("is %q, must be %s", clip(text), want(t))
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
