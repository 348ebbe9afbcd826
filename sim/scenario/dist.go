package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// distKinds are all of them, the constant first.
var distKinds = []DistKind{DistConstant, DistUniform, DistNormal, DistExp, DistLognormal, DistPareto}

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

// unit reads and writes the parameters of a distribution.
type unit struct {
	example string
	read    func(string) (float64, error)
	text    func(float64) string
}

var (
	inDurations = unit{
		example: "5ms",
		read: func(s string) (float64, error) {
			v, err := time.ParseDuration(s)
			if err != nil {
				return 0, bad("%q is not a duration with a unit, like 5ms", s)
			}
			if v.Abs() > distMax {
				return 0, bad("%q must be at most %v", s, distMax)
			}
			return float64(v), nil
		},
		text: func(x float64) string { return time.Duration(x).String() },
	}
	inPPM = unit{
		example: "50ppm",
		read: func(s string) (float64, error) {
			count, ok := strings.CutSuffix(s, "ppm")
			if !ok {
				return 0, bad("%q has no unit: a drift is like 50ppm", s)
			}
			return number(count)
		},
		text: func(x float64) string { return plain.text(x) + "ppm" },
	}
	plain = unit{read: number, text: func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }}
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DurationDist) UnmarshalText(text []byte) error {
	return inDurations.parse(string(text), &d.Dist)
}

// MarshalText implements encoding.TextMarshaler.
func (d DurationDist) MarshalText() ([]byte, error) { return inDurations.format(d.Dist), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DriftDist) UnmarshalText(text []byte) error { return inPPM.parse(string(text), &d.Dist) }

// MarshalText implements encoding.TextMarshaler.
func (d DriftDist) MarshalText() ([]byte, error) { return inPPM.format(d.Dist), nil }

// parameters are the units of the parameters of a kind of distribution in u.
func (u unit) parameters(kind DistKind) []unit {
	switch kind {
	case DistConstant, DistExp:
		return []unit{u}
	case DistPareto:
		return []unit{u, plain}
	}
	return []unit{u, u}
}

// parse reads a distribution whose quantity is in u. An error leaves into as it is.
func (u unit) parse(s string, into *Dist) error {
	name, inner, named := strings.Cut(s, "(")
	texts := []string{s}
	var d Dist
	if named {
		if d.Kind = DistKind(strings.TrimSpace(name)); !slices.Contains(distKinds[1:], d.Kind) {
			return bad("%q: there is no distribution %q; there are uniform, normal, exp, lognormal and pareto",
				s, d.Kind)
		}
		var ok bool
		inner, ok = strings.CutSuffix(inner, ")")
		if texts = strings.Split(inner, ","); !ok || len(texts) != len(u.parameters(d.Kind)) {
			return bad("%q is not a distribution: it is like %s, uniform(a,b), normal(mean,sd), exp(mean), "+
				"lognormal(median,p99) or pareto(min,shape)", s, u.example)
		}
	}
	values := []*float64{&d.P, &d.Q}
	for i, parameter := range u.parameters(d.Kind) {
		var err error
		if *values[i], err = parameter.read(strings.TrimSpace(texts[i])); err != nil {
			return err
		}
	}
	if named {
		if err := d.validate(s); err != nil {
			return err
		}
	}
	*into = d
	return nil
}

func (u unit) format(d Dist) []byte {
	var texts []string
	for i, parameter := range u.parameters(d.Kind) {
		texts = append(texts, parameter.text([]float64{d.P, d.Q}[i]))
	}
	if d.Kind == DistConstant {
		return []byte(texts[0])
	}
	return []byte(string(d.Kind) + "(" + strings.Join(texts, ",") + ")")
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
