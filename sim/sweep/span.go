package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// span is a range of numbers or durations, with the texts of its ends.
type span struct {
	low, high         float64
	lowText, highText string
	whole             bool // only whole numbers lie between
	text              func(x float64) string
}

// newSpan reads the two ends.
func newSpan(low, high string) (span, error) {
	s := span{lowText: low, highText: high}
	a, errA := time.ParseDuration(low)
	b, errB := time.ParseDuration(high)
	if errA == nil && errB == nil && (plain(low) == "" || plain(high) == "") {
		s.low, s.high = float64(a), float64(b)
		s.whole = true // nanoseconds
		s.text = func(x float64) string { return time.Duration(x).String() }
		return s, s.rises()
	}
	x, unitX, errX := withUnit(low)
	y, unitY, errY := withUnit(high)
	switch {
	case errX != nil:
		return span{}, fmt.Errorf("%q is no number or duration that a range can start from", low)
	case errY != nil:
		return span{}, fmt.Errorf("%q is no number or duration that a range can end with", high)
	case unitX != unitY:
		return span{}, fmt.Errorf("%q and %q have different units", low, high)
	}
	s.low, s.high = x, y
	s.whole = unitX == "" && !strings.ContainsAny(low+high, ".eE")
	s.text = func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) + unitX }
	return s, s.rises()
}

func (s span) rises() error {
	if s.high <= s.low {
		return fmt.Errorf("%s is not above %s", s.highText, s.lowText)
	}
	return nil
}

// plain is s if it is a number without a unit.
func plain(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return ""
	}
	return s
}

// withUnit splits a number from what follows it.
func withUnit(s string) (x float64, unit string, err error) {
	end := len(s) - len(strings.TrimLeft(s, "+-0123456789."))
	x, err = strconv.ParseFloat(s[:end], 64)
	if err == nil && (math.IsInf(x, 0) || strings.ContainsAny(s[end:], "(), ")) {
		err = strconv.ErrSyntax
	}
	return x, s[end:], err
}

// values are n from low to high. The ends are as they were written.
func (s span) values(n int, log bool) []string {
	xs := make([]float64, n)
	for i := range xs {
		part := float64(i) / float64(n-1)
		if log {
			xs[i] = float64(s.low * random.Pow(s.high/s.low, part))
		} else {
			xs[i] = s.low + float64((s.high-s.low)*part)
		}
	}
	texts := []string{s.lowText}
	for i := 1; i < n-1; i++ {
		texts = append(texts, s.text(s.round(xs[i], xs[i]-xs[i-1])))
	}
	return slices.Compact(append(texts, s.highText))
}

// round keeps the two first digits of the step to x, which tell values apart as well as all of them do.
func (s span) round(x, step float64) float64 {
	exponent := -1
	for ; step >= 10; step /= 10 {
		exponent++
	}
	for ; step < 1; step *= 10 {
		exponent--
	}
	if s.whole {
		exponent = max(exponent, 0)
	}
	// The digits are rounded as a whole number, and strconv places their point: so every machine has the same double.
	quantum, err := strconv.ParseFloat("1e"+strconv.Itoa(exponent), 64)
	if err != nil || quantum == 0 {
		return x // a step below 1e-300
	}
	digits := strconv.FormatFloat(math.Round(x/quantum), 'f', 0, 64)
	rounded, _ := strconv.ParseFloat(digits+"e"+strconv.Itoa(exponent), 64)
	return rounded
}
