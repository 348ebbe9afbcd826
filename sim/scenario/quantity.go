package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
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

// DistKind names a distribution.
type DistKind string

// The distributions.
const (
	DistConstant  DistKind = ""          // P
	DistUniform   DistKind = "uniform"   // from P to Q
	DistNormal    DistKind = "normal"    // mean P, standard deviation Q
	DistExp       DistKind = "exp"       // mean P
	DistLognormal DistKind = "lognormal" // median P, 99th percentile Q
	DistPareto    DistKind = "pareto"    // minimum P, shape Q
)

// Dist is a distribution with its two parameters. Their unit is that of the type around it.
type Dist struct {
	Kind DistKind
	P, Q float64
}

// IsZero reports whether nothing was said.
func (d Dist) IsZero() bool { return d == Dist{} }

// DurationDist is a distribution of durations, in nanoseconds. Its text: "5ms", "uniform(1ms,2ms)",
// "normal(0s,10ms)", "exp(1ms)", "lognormal(500us,2ms)" (median and 99th percentile),
// "pareto(1ms,1.5)" (minimum and shape).
type DurationDist struct{ Dist }

// DriftDist is a distribution of clock drifts, in parts per million. Its text: "50ppm",
// "uniform(-50ppm,50ppm)", ...
type DriftDist struct{ Dist }

// distMax keeps a parameter away from where the nearest double is no longer a time.Duration.
const distMax = 250 * 365 * 24 * time.Hour

// Constantly is the distribution of one value.
func Constantly(d time.Duration) DurationDist { return DurationDist{Dist{P: float64(d)}} }

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

// shifted is the decimal number s times 10^places. It is rounded once only, so that the text of
// every Ratio reads back as the same Ratio; a division by 100 would round twice.
func shifted(s string, places int) (float64, error) {
	digits, power, found := strings.Cut(strings.ToLower(s), "e")
	n := 0
	if found {
		var err error
		if n, err = strconv.Atoi(power); err != nil {
			return 0, bad("%q is not a number", s)
		}
	}
	return number(digits + "e" + strconv.Itoa(n+places))
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
	if x, err = shifted(count, -2); err != nil {
		return err
	}
	*r = Ratio(x)
	return nil
}

// MarshalText implements encoding.TextMarshaler. The text has every digit that tells r from its
// neighbours.
func (r Ratio) MarshalText() ([]byte, error) {
	text := strconv.FormatFloat(float64(r), 'e', -1, 64)
	digits, power, ok := strings.Cut(text, "e")
	if !ok || r == 0 { // not a finite number, which Validate refuses, or 0
		return []byte(strconv.FormatFloat(math.Abs(float64(r)), 'g', -1, 64) + "%"), nil
	}
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	digits = strings.Replace(digits, ".", "", 1)
	n, err := strconv.Atoi(power)
	if err != nil {
		return nil, err
	}
	switch point := n + 3; { // digits before the decimal point
	case point <= 0:
		digits = "0." + strings.Repeat("0", -point) + digits
	case point >= len(digits):
		digits += strings.Repeat("0", point-len(digits))
	default:
		digits = digits[:point] + "." + digits[point:]
	}
	return []byte(sign + digits + "%"), nil
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

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DurationDist) UnmarshalText(text []byte) error {
	got, err := parseDist(string(text), "5ms", func(s string) (float64, error) {
		v, err := time.ParseDuration(s)
		if err != nil {
			return 0, bad("%q is not a duration with a unit, like 5ms", s)
		}
		if v.Abs() > distMax {
			return 0, bad("%q must be at most %v", s, distMax)
		}
		return float64(v), nil
	})
	if err == nil {
		d.Dist = got
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d DurationDist) MarshalText() ([]byte, error) {
	return d.text(func(x float64) string { return time.Duration(x).String() }), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DriftDist) UnmarshalText(text []byte) error {
	got, err := parseDist(string(text), "50ppm", func(s string) (float64, error) {
		count, ok := strings.CutSuffix(s, "ppm")
		if !ok {
			return 0, bad("%q has no unit: a drift is like 50ppm", s)
		}
		return number(count)
	})
	if err == nil {
		d.Dist = got
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d DriftDist) MarshalText() ([]byte, error) {
	return d.text(func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) + "ppm" }), nil
}

// parseDist reads a distribution whose parameters unit reads.
func parseDist(s, example string, unit func(string) (float64, error)) (d Dist, err error) {
	name, inner, ok := strings.Cut(s, "(")
	if !ok {
		d.P, err = unit(s)
		return d, err
	}
	inner, ok = strings.CutSuffix(inner, ")")
	params := strings.Split(inner, ",")
	d.Kind = DistKind(strings.TrimSpace(name))
	want := 2
	switch d.Kind {
	case DistUniform, DistNormal, DistLognormal, DistPareto:
	case DistExp:
		want = 1
	default:
		return Dist{}, bad("%q: there is no distribution %q; there are uniform, normal, exp, lognormal and pareto", s, d.Kind)
	}
	if !ok || len(params) != want {
		return Dist{}, bad("%q is not a distribution: it is like %s, uniform(a,b), normal(mean,sd), exp(mean), lognormal(median,p99) or pareto(min,shape)", s, example)
	}
	if d.P, err = unit(strings.TrimSpace(params[0])); err != nil {
		return Dist{}, err
	}
	switch d.Kind {
	case DistUniform, DistNormal, DistLognormal:
		d.Q, err = unit(strings.TrimSpace(params[1]))
	case DistPareto:
		d.Q, err = number(strings.TrimSpace(params[1]))
	}
	if err != nil {
		return Dist{}, err
	}
	return d, d.validate(s)
}

func (d Dist) validate(s string) error {
	switch {
	case d.Kind == DistUniform && d.Q < d.P:
		return bad("%q must rise", s)
	case d.Kind == DistNormal && d.Q < 0, d.Kind == DistExp && d.P < 0:
		return bad("%q must not be negative", s)
	case d.Kind == DistLognormal && (d.P <= 0 || d.Q < d.P):
		return bad("%q must have a positive median and a 99th percentile above it", s)
	case d.Kind == DistPareto && (d.P <= 0 || d.Q <= 1):
		return bad("%q must have a positive minimum and a shape above 1, or it has no mean", s)
	}
	return nil
}

func (d Dist) text(unit func(float64) string) []byte {
	switch d.Kind {
	case DistConstant:
		return []byte(unit(d.P))
	case DistExp:
		return []byte("exp(" + unit(d.P) + ")")
	case DistPareto:
		return []byte("pareto(" + unit(d.P) + "," + strconv.FormatFloat(d.Q, 'g', -1, 64) + ")")
	}
	return []byte(string(d.Kind) + "(" + unit(d.P) + "," + unit(d.Q) + ")")
}
