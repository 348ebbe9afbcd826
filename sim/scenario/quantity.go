package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrQuantity is wrapped by every error about a quantity's text.
var ErrQuantity = errors.New("sim: invalid quantity")

// Rate is requests per second. Its text has a unit: "1200/s", "90/m", "5000/h".
type Rate float64

// Ratio is a part of one. Its text is in percent: "0.5%".
type Ratio float64

// Cost is how many tokens a request takes: uniform in [Min, Max]. Its text is "3" or
// "uniform(1,5)".
type Cost struct{ Min, Max int64 }

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrQuantity}, args...)...)
}

// number is a finite decimal number.
func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(s, "xX_") {
		return 0, bad("%q is not a number", s)
	}
	if x == 0 {
		return 0, nil // and not -0, which is equal but has another text and so another hash
	}
	return x, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	s := string(text)
	count, unit, ok := strings.Cut(s, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	if !ok || per == 0 {
		return bad("%q has no unit: a rate is like 1200/s, 90/m or 5000/h", s)
	}
	x, err := number(count)
	if err != nil {
		return err
	}
	if x < 0 {
		return bad("%q is negative", s)
	}
	*r = Rate(x / per)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(r), 'g', -1, 64) + "/s"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Ratio) UnmarshalText(text []byte) error {
	s := string(text)
	count, ok := strings.CutSuffix(s, "%")
	if !ok {
		return bad("%q has no unit: a ratio is in percent, like 0.5%%", s)
	}
	x, err := number(count)
	if err != nil {
		return err
	}
	if x < 0 || x > 100 {
		return bad("%q must be 0%% to 100%%", s)
	}
	// The texts of MarshalText have no exponent. They are rounded once, as a division would not be, so
	// that each reads back as the same Ratio.
	if shifted, err := number(count + "e-2"); err == nil {
		*r = Ratio(shifted)
	} else {
		*r = Ratio(x / 100)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler. The text has every digit that tells r from its
// neighbours.
func (r Ratio) MarshalText() ([]byte, error) {
	text := strconv.FormatFloat(float64(r), 'f', -1, 64)
	whole, part, _ := strings.Cut(text, ".")
	if !strings.ContainsAny(text, "0123456789") { // not a number, or infinite, which Validate refuses
		return []byte(text + "%"), nil
	}
	sign := whole[:len(whole)-len(strings.TrimPrefix(whole, "-"))]
	part += "00"
	whole = strings.TrimLeft(whole[len(sign):]+part[:2], "0")
	text = strings.TrimRight(cmp.Or(whole, "0")+"."+part[2:], "0")
	return []byte(sign + strings.TrimSuffix(text, ".") + "%"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cost) UnmarshalText(text []byte) error {
	s := string(text)
	low, high := s, s
	if inner, ok := strings.CutPrefix(s, "uniform("); ok {
		if inner, ok = strings.CutSuffix(inner, ")"); ok {
			low, high, ok = strings.Cut(inner, ",")
		}
		if !ok {
			return bad("%q is not a cost: it is like 3 or uniform(1,5)", s)
		}
	}
	a, err1 := strconv.ParseInt(strings.TrimSpace(low), 10, 64)
	b, err2 := strconv.ParseInt(strings.TrimSpace(high), 10, 64)
	if err1 != nil || err2 != nil {
		return bad("%q is not a cost: it is like 3 or uniform(1,5)", s)
	}
	if a < 1 || b < a {
		return bad("%q must be 1 or more, and rise", s)
	}
	*c = Cost{a, b}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (c Cost) MarshalText() ([]byte, error) {
	if c.Min == c.Max {
		return strconv.AppendInt(nil, c.Min, 10), nil
	}
	return fmt.Appendf(nil, "uniform(%d,%d)", c.Min, c.Max), nil
}
