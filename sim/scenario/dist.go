package scenario

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// DistKind is the name of a distribution.
type DistKind string

// These constants are the names of the distributions.
const (
	DistConstant  DistKind = ""          // P
	DistUniform   DistKind = "uniform"   // from P to Q
	DistNormal    DistKind = "normal"    // mean P, standard deviation Q
	DistExp       DistKind = "exp"       // mean P
	DistLognormal DistKind = "lognormal" // median P, 99th percentile Q
)

var distKinds = []DistKind{DistUniform, DistNormal, DistExp, DistLognormal}

// Dist is a distribution with two parameters, P and Q. The embedding type defines the unit of P and Q.
type Dist struct {
	Kind DistKind
	P, Q float64
}

// IsZero reports whether d is the zero value.
func (d Dist) IsZero() bool { return d == Dist{} }

// check returns an error for parameters that no distribution of the kind has. text is the text of d.
func (d Dist) check(text string) error {
	switch {
	case d.Kind == DistUniform && d.P > d.Q:
		return bad(text, "must rise")
	case d.Kind == DistNormal && d.Q < 0, d.Kind == DistExp && d.P < 0:
		return bad(text, "must not be negative")
	case d.Kind == DistLognormal && !(0 < d.P && d.P <= d.Q):
		return bad(text, "must have a positive median and a 99th percentile above it")
	}
	return nil
}

// DurationDist is a distribution of durations, in nanoseconds. The text of a DurationDist is like "5ms",
// "uniform(1ms,2ms)", "normal(0s,10ms)", "exp(1ms)" or "lognormal(500us,2ms)" (median and 99th percentile).
type DurationDist struct{ Dist }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DurationDist) UnmarshalText(text []byte) error {
	return inDurations.parse(string(text), &d.Dist)
}

// MarshalText implements encoding.TextMarshaler.
func (d DurationDist) MarshalText() ([]byte, error) { return inDurations.format(d.Dist), nil }

// DriftDist is a distribution of clock drifts, in parts per million. The text of a DriftDist is like "50ppm"
// or "uniform(-50ppm,50ppm)".
type DriftDist struct{ Dist }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DriftDist) UnmarshalText(text []byte) error { return inPPM.parse(string(text), &d.Dist) }

// MarshalText implements encoding.TextMarshaler.
func (d DriftDist) MarshalText() ([]byte, error) { return inPPM.format(d.Dist), nil }

// TokenDist is a distribution of numbers of tokens. The text of a TokenDist is like "300" or
// "lognormal(80,900)" (median and 99th percentile).
type TokenDist struct{ Dist }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *TokenDist) UnmarshalText(text []byte) error { return inTokens.parse(string(text), &d.Dist) }

// MarshalText implements encoding.TextMarshaler.
func (d TokenDist) MarshalText() ([]byte, error) { return inTokens.format(d.Dist), nil }

// Constantly returns the distribution that has only the value d. Constantly(0) is not the zero value, which
// means a default.
func Constantly(d time.Duration) DurationDist {
	if d == 0 {
		return DurationDist{Dist{Kind: DistUniform}}
	}
	return DurationDist{Dist{P: float64(d)}}
}

// unit parses and formats the parameters of a distribution.
type unit struct {
	example string
	read    func(string) (float64, error)
	text    func(float64) string
}

// distMax is the largest parameter whose nearest double fits in a time.Duration.
const distMax = 250 * 365 * 24 * time.Hour

var (
	inDurations = unit{"5ms", readDuration, func(x float64) string { return time.Duration(x).String() }}
	inTokens    = unit{"300", number, shortest}
	inPPM       = unit{"50ppm", readPPM, func(x float64) string { return shortest(x) + "ppm" }}
)

func readDuration(s string) (float64, error) {
	v, err := time.ParseDuration(s)
	if err != nil {
		return 0, bad(s, "is not a duration with a unit, like 5ms")
	}
	if v.Abs() > distMax {
		return 0, bad(s, "must be at most %v", distMax)
	}
	return float64(v), nil
}

func readPPM(s string) (float64, error) {
	count, ok := strings.CutSuffix(s, "ppm")
	if !ok {
		return 0, bad(s, "has no unit: a drift is like 50ppm")
	}
	return number(count)
}

func (kind DistKind) parameters() int {
	if kind == DistConstant || kind == DistExp {
		return 1
	}
	return 2
}

func (u unit) parse(s string, into *Dist) error {
	var d Dist
	texts := []string{s}
	if name, inner, named := strings.Cut(s, "("); named {
		d.Kind = DistKind(strings.TrimSpace(name))
		if !slices.Contains(distKinds, d.Kind) {
			return bad(s, "has no distribution %q; there are uniform, normal, exp and lognormal", d.Kind)
		}
		inner, closed := strings.CutSuffix(inner, ")")
		if texts = strings.Split(inner, ","); !closed || len(texts) != d.Kind.parameters() {
			return bad(s, "is not a distribution: it is like %s, uniform(a,b), normal(mean,sd), exp(mean) or "+
				"lognormal(median,p99)", u.example)
		}
	}
	for i, value := range []*float64{&d.P, &d.Q}[:len(texts)] {
		var err error
		if *value, err = u.read(strings.TrimSpace(texts[i])); err != nil {
			return err
		}
	}
	if err := d.check(s); err != nil {
		return err
	}
	*into = d
	return nil
}

func (u unit) format(d Dist) []byte {
	text := u.text(d.P)
	if d.Kind.parameters() == 2 {
		text += "," + u.text(d.Q)
	}
	if d.Kind == DistConstant {
		return []byte(text)
	}
	return []byte(string(d.Kind) + "(" + text + ")")
}

// normal99 is the 99th percentile of the normal distribution with mean 0 and standard deviation 1.
const normal99 = 2.3263478740408408

// sigma returns the standard deviation of the logarithm of a lognormal variable. P is the median e^mu, and Q
// is the 99th percentile e^(mu + sigma*normal99).
func (d Dist) sigma() float64 { return random.Log(d.Q/d.P) / normal99 }

// Draw draws a value from d. d must be valid. A constant distribution draws no number from r.
func (d Dist) Draw(r *random.Stream) float64 {
	switch d.Kind {
	case DistUniform:
		return d.P + float64((d.Q-d.P)*r.Float64())
	case DistNormal:
		return d.P + float64(d.Q*r.Normal())
	case DistExp:
		return float64(d.P * r.Exp())
	case DistLognormal:
		return float64(d.P * random.Exp(float64(d.sigma()*r.Normal())))
	}
	return d.P
}

// Mean returns the expected value of d.
func (d Dist) Mean() float64 {
	switch d.Kind {
	case DistUniform:
		return (d.P + d.Q) / 2
	case DistLognormal:
		return float64(d.P * random.Exp(float64(d.sigma()*d.sigma())/2))
	}
	return d.P
}

// Sample draws a duration in nanoseconds, and cuts it to 0 and DurationMax.
func (d DurationDist) Sample(r *random.Stream) int64 {
	return whole(d.Draw(r), 0, int64(DurationMax))
}

const tokensMax = 1_000_000_000

// Sample draws a whole number of tokens, from 0 to tokensMax.
func (d TokenDist) Sample(r *random.Stream) int64 { return whole(d.Draw(r), 0, tokensMax) }

// Draw draws the error of a process's clock: the offset in nanoseconds, and the drift in parts per million.
// Draw keeps both within the bounds of Validate.
func (c Clock) Draw(r *random.Stream) (offset, driftPPM int64) {
	offset = whole(c.Offset.around().Draw(r), -int64(offsetMax), int64(offsetMax))
	driftPPM = whole(c.Drift.around().Draw(r), 1-int64(driftMax), int64(driftMax)-1)
	return offset, driftPPM
}

// around returns the distribution that d means for a clock: a constant d means uniform in [-d, d]. A uniform
// distribution draws a number even for a d of 0, so that the offset does not change the drift.
func (d Dist) around() Dist {
	if d.Kind == DistConstant {
		return Dist{Kind: DistUniform, P: -d.P, Q: d.P}
	}
	return d
}

// whole rounds x to an integer in [low, high].
func whole(x float64, low, high int64) int64 {
	return int64(math.Round(min(max(x, float64(low)), float64(high))))
}
