package scenario

import (
	"encoding"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// textual is a quantity that can be read, and compared.
type textual interface {
	encoding.TextUnmarshaler
	value() any
}

type anyRate struct{ Rate }
type anyRatio struct{ Ratio }
type anyCost struct{ Cost }
type anyDuration struct{ DurationDist }
type anyDrift struct{ DriftDist }

func (x *anyRate) value() any     { return x.Rate }
func (x *anyRatio) value() any    { return x.Ratio }
func (x *anyCost) value() any     { return x.Cost }
func (x *anyDuration) value() any { return x.DurationDist }
func (x *anyDrift) value() any    { return x.DriftDist }

func duration(kind DistKind, p, q float64) DurationDist { return DurationDist{Dist{kind, p, q}} }
func drift(kind DistKind, p, q float64) DriftDist       { return DriftDist{Dist{kind, p, q}} }

func TestQuantitiesAreReadWithTheirUnits(t *testing.T) {
	for _, c := range []struct {
		text string
		into textual
		want any
		back string // what is written; "" for the same text
	}{
		{"1200/s", &anyRate{}, Rate(1200), ""},
		{"90/m", &anyRate{}, Rate(1.5), "1.5/s"},
		{"1800/h", &anyRate{}, Rate(0.5), "0.5/s"},
		{"1e6/s", &anyRate{}, Rate(1e6), "1e+06/s"},
		{"-0/s", &anyRate{}, Rate(0), "0/s"},

		{"0.5%", &anyRatio{}, Ratio(0.005), ""},
		{"0%", &anyRatio{}, Ratio(0), ""},
		{"-0%", &anyRatio{}, Ratio(0), "0%"},
		{"100%", &anyRatio{}, Ratio(1), ""},
		{"80%", &anyRatio{}, Ratio(0.8), ""},
		{"12.5%", &anyRatio{}, Ratio(0.125), ""},
		{"5e-1%", &anyRatio{}, Ratio(0.005), "0.5%"},
		{"0.00001%", &anyRatio{}, Ratio(1e-7), ""},
		{"33.333333333333333%", &anyRatio{}, Ratio(0.33333333333333333), "33.33333333333333%"},

		{"3", &anyCost{}, Cost{3, 3}, ""},
		{"uniform(1,5)", &anyCost{}, Cost{1, 5}, ""},
		{"uniform( 2 , 2 )", &anyCost{}, Cost{2, 2}, "2"},

		{"5ms", &anyDuration{}, Constantly(5 * time.Millisecond), ""},
		{"0", &anyDuration{}, DurationDist{}, "0s"},
		{"-1h", &anyDuration{}, Constantly(-time.Hour), "-1h0m0s"},
		{"uniform(-1ms,2ms)", &anyDuration{}, duration(DistUniform, -1e6, 2e6), ""},
		{" uniform ( 1ms , 2ms )", &anyDuration{}, duration(DistUniform, 1e6, 2e6), "uniform(1ms,2ms)"},
		{"normal(0s,10ms)", &anyDuration{}, duration(DistNormal, 0, 1e7), ""},
		{"exp(1ms)", &anyDuration{}, duration(DistExp, 1e6, 0), ""},
		{"lognormal(500us,2ms)", &anyDuration{}, duration(DistLognormal, 5e5, 2e6), "lognormal(500µs,2ms)"},
		{"pareto(1ms,1.5)", &anyDuration{}, duration(DistPareto, 1e6, 1.5), ""},

		{"50ppm", &anyDrift{}, drift("", 50, 0), ""},
		{"uniform(-50ppm,50.5ppm)", &anyDrift{}, drift(DistUniform, -50, 50.5), ""},
		{"pareto(1ppm,2)", &anyDrift{}, drift(DistPareto, 1, 2), ""},
	} {
		if err := c.into.UnmarshalText([]byte(c.text)); err != nil || c.into.value() != c.want {
			t.Errorf("%q is read as %v, %v; want %v", c.text, c.into.value(), err, c.want)
			continue
		}
		want := c.back
		if want == "" {
			want = c.text
		}
		if got := asText(c.into.value()); got != want {
			t.Errorf("%q is written as %q, want %q", c.text, got, want)
		}
	}
}

func TestQuantitiesSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		into  textual
		texts map[string]string
	}{
		{&anyRate{}, map[string]string{
			"": "no unit", "5": "no unit", "5/d": "no unit", "5/S": "no unit", "x/s": "not a number", "-1/s": "negative",
			"NaN/s": "not a number", "inf/s": "not a number", "0x10/s": "not a number", "1_0/s": "not a number", "1e400/s": "not a number",
		}},
		{&anyRatio{}, map[string]string{
			"": "no unit", "0.5": "no unit", "%": "not a number", "-0.1%": "must be 0% to 100%", "100.1%": "must be 0% to 100%",
		}},
		{&anyCost{}, map[string]string{
			"": "not a cost", "1.5": "not a cost", "0": "must be 1 or more", "-1": "must be 1 or more", "uniform(5,1)": "must be 1 or more, and rise",
			"uniform(1)": "not a cost", "uniform(1,2": "not a cost", "uniform(1,2,3)": "not a cost", "exp(3)": "not a cost",
		}},
		{&anyDuration{}, map[string]string{
			"": "not a duration", "100": "not a duration with a unit", "5 ms": "not a duration", "uniform(1ms)": "not a distribution",
			"uniform(1ms,2ms": "not a distribution", "uniform(1ms,2ms,3ms)": "not a distribution", "exp(1ms,2ms)": "not a distribution",
			"gauss(1,2)": `no distribution "gauss"`, "(1ms,2ms)": `no distribution ""`, "uniform(1,2)": "not a duration with a unit",
			"uniform(1ms,2)": "not a duration with a unit", "uniform(2ms,1ms)": "must rise", "normal(1ms,-1ns)": "must not be negative",
			"exp(-1ms)": "must not be negative", "lognormal(0s,1ms)": "positive median", "lognormal(2ms,1ms)": "99th percentile above it",
			"pareto(0s,2)": "positive minimum", "pareto(1ms,1)": "shape above 1", "pareto(1ms,2ms)": "not a number",
			"2562047h47m16.854775807s": "at most", "-2562047h47m16.854775808s": "at most",
		}},
		{&anyDrift{}, map[string]string{"": "no unit", "5": "no unit", "5ms": "no unit", "xppm": "not a number", "uniform(1ppm,2)": "no unit"}},
	} {
		for text, want := range c.texts {
			before := c.into.value()
			err := c.into.UnmarshalText([]byte(text))
			if !errors.Is(err, ErrQuantity) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q as %T: %v; want an ErrQuantity with %q", text, c.into, err, want)
			}
			if c.into.value() != before {
				t.Errorf("%q as %T is wrong and read as %v", text, c.into, c.into.value())
			}
		}
	}
}

func TestATextTellsAQuantityFromItsNeighbours(t *testing.T) {
	rng := testkit.Rand(t)
	same := func(into textual, want any) {
		t.Helper()
		text := asText(want)
		if err := into.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(into.value(), want) {
			t.Fatalf("%#v is written as %q and read as %#v, %v", want, text, into.value(), err)
		}
	}
	for range 20_000 {
		x := rng.Float64() * math.Pow(10, -float64(rng.IntN(30)))
		same(&anyRatio{}, Ratio(x))
		same(&anyRatio{}, Ratio(math.Nextafter(x, 0)))
		same(&anyRate{}, Rate(math.Ldexp(x, rng.IntN(100))))
		same(&anyDrift{}, drift(DistNormal, -x, x))
		same(&anyDuration{}, duration(DistExp, float64(rng.Int64N(int64(distMax)>>rng.IntN(62))), 0))
		same(&anyDuration{}, duration(DistPareto, 1, 1.5+x))
		low := 1 + rng.Int64N(math.MaxInt64-1)>>rng.IntN(62)
		same(&anyCost{}, Cost{low, low + rng.Int64N(math.MaxInt64-low)})
	}
}

func TestAQuantityWithoutATextIsStillShown(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{{Ratio(math.NaN()), "NaN%"}, {Ratio(math.Inf(1)), "+Inf%"}, {Ratio(-0.5), "-50%"}, {Ratio(2), "200%"}, {Rate(-1), "-1/s"}, {Cost{}, "0"}} {
		if got := asText(c.value); got != c.want {
			t.Errorf("%#v is shown as %q, want %q", c.value, got, c.want)
		}
	}
}
