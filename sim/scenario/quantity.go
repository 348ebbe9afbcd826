package scenario

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
)

// ErrQuantity is wrapped by every error about a quantity's text.
var ErrQuantity = errors.New("sim: invalid quantity")

func bad(text, format string, args ...any) error {
	return violation.New(ErrQuantity, "", text, format, args...)
}

// number parses a finite decimal number.
func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(s, "xX_") {
		return 0, bad(s, "is not a number")
	}
	if x == 0 {
		return 0, nil // -0 would have another text, and so another hash
	}
	return x, nil
}

// shortest returns the shortest text that number parses as x.
func shortest(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// Rate is a number of requests per second. A Rate's text has a unit: "1200/s", "90/m", "5000/h".
type Rate float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	s := string(text)
	count, unit, _ := strings.Cut(s, "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	if seconds == 0 {
		return bad(s, "has no unit: a rate is like 1200/s, 90/m or 5000/h")
	}
	x, err := number(count)
	if err == nil && x < 0 {
		err = bad(s, "is negative")
	}
	if err == nil {
		*r = Rate(x / seconds)
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) {
	return []byte(shortest(float64(r)) + "/s"), nil
}

// Ratio is usually a number from 0 to 1. A Ratio's text is in percent: "0.5%".
type Ratio float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Ratio) UnmarshalText(text []byte) error {
	s := string(text)
	count, ok := strings.CutSuffix(s, "%")
	if !ok {
		return bad(s, "has no unit: a ratio is in percent, like 0.5%%")
	}
	// Moving the decimal point rounds once, so that a text of MarshalText reads back as the same Ratio.
	// Dividing would round twice.
	x, err := number(count + "e-2")
	if err != nil {
		return bad(s, "is not a number in percent, like 0.5%%")
	}
	if x < 0 || x > 1 {
		return bad(s, "must be 0%% to 100%%")
	}
	*r = Ratio(x)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Ratio) MarshalText() ([]byte, error) {
	text := shortest(float64(r))
	// SetString fails for NaN and infinities, which Validate refuses.
	if x, ok := new(big.Rat).SetString(text); ok {
		x.Mul(x, big.NewRat(100, 1))
		digits, _ := x.FloatPrec()
		text = x.FloatString(digits)
	}
	return []byte(text + "%"), nil
}
