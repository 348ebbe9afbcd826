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

// valueOf is the quantity that was read into.
func valueOf(into encoding.TextUnmarshaler) any { return reflect.ValueOf(into).Elem().Interface() }

func duration(kind DistKind, p, q float64) DurationDist { return DurationDist{Dist{kind, p, q}} }
func drift(kind DistKind, p, q float64) DriftDist       { return DriftDist{Dist{kind, p, q}} }

func TestQuantitiesAreReadWithTheirUnits(t *testing.T) {
	for _, c := range []struct {
		text string
		into encoding.TextUnmarshaler
		want any
		back string // what is written; "" for the same text
	}{
		{"1200/s", new(Rate), Rate(1200), ""},
		{"90/m", new(Rate), Rate(1.5), "1.5/s"},
		{"1800/h", new(Rate), Rate(0.5), "0.5/s"},
		{"1e6/s", new(Rate), Rate(1e6), "1e+06/s"},
		{"-0/s", new(Rate), Rate(0), "0/s"},

		{"0.5%", new(Ratio), Ratio(0.005), ""},
		{"0%", new(Ratio), Ratio(0), ""},
		{"-0%", new(Ratio), Ratio(0), "0%"},
		{"100%", new(Ratio), Ratio(1), ""},
		{"80%", new(Ratio), Ratio(0.8), ""},
		{"12.5%", new(Ratio), Ratio(0.125), ""},
		{"5e-1%", new(Ratio), Ratio(0.005), "0.5%"},
		{"0.00001%", new(Ratio), Ratio(1e-7), ""},
		{"33.333333333333333%", new(Ratio), Ratio(0.33333333333333333), "33.33333333333333%"},

		{"3", new(Cost), Cost{3, 3}, ""},
		{"uniform(1,5)", new(Cost), Cost{1, 5}, ""},
		{"uniform( 2 , 2 )", new(Cost), Cost{2, 2}, "2"},

		{"5ms", new(DurationDist), Constantly(5 * time.Millisecond), ""},
		{"0", new(DurationDist), DurationDist{}, "0s"},
		{"-1h", new(DurationDist), Constantly(-time.Hour), "-1h0m0s"},
		{"uniform(-1ms,2ms)", new(DurationDist), duration(DistUniform, -1e6, 2e6), ""},
		{" uniform ( 1ms , 2ms )", new(DurationDist), duration(DistUniform, 1e6, 2e6), "uniform(1ms,2ms)"},
		{"normal(0s,10ms)", new(DurationDist), duration(DistNormal, 0, 1e7), ""},
		{"exp(1ms)", new(DurationDist), duration(DistExp, 1e6, 0), ""},
		{"lognormal(500us,2ms)", new(DurationDist), duration(DistLognormal, 5e5, 2e6), "lognormal(500µs,2ms)"},
		{"pareto(1ms,1.5)", new(DurationDist), duration(DistPareto, 1e6, 1.5), ""},

		{"50ppm", new(DriftDist), drift("", 50, 0), ""},
		{"uniform(-50ppm,50.5ppm)", new(DriftDist), drift(DistUniform, -50, 50.5), ""},
		{"pareto(1ppm,2)", new(DriftDist), drift(DistPareto, 1, 2), ""},
	} {
		if err := c.into.UnmarshalText([]byte(c.text)); err != nil || valueOf(c.into) != c.want {
			t.Errorf("%q is read as %v, %v; want %v", c.text, valueOf(c.into), err, c.want)
			continue
		}
		want := c.back
		if want == "" {
			want = c.text
		}
		if got := asText(valueOf(c.into)); got != want {
			t.Errorf("%q is written as %q, want %q", c.text, got, want)
		}
	}
}

func TestQuantitiesSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		into  encoding.TextUnmarshaler
		texts map[string]string
	}{
		{new(Rate), map[string]string{
			"": "no unit", "5": "no unit", "5/d": "no unit", "5/S": "no unit", "x/s": "not a number", "-1/s": "negative",
			"NaN/s": "not a number", "inf/s": "not a number", "0x10/s": "not a number", "1_0/s": "not a number", "1e400/s": "not a number",
		}},
		{new(Ratio), map[string]string{
			"": "no unit", "0.5": "no unit", "%": "not a number", "-0.1%": "must be 0% to 100%", "100.1%": "must be 0% to 100%",
		}},
		{new(Cost), map[string]string{
			"": "not a cost", "1.5": "not a cost", "0": "must be 1 or more", "-1": "must be 1 or more", "uniform(5,1)": "must be 1 or more, and rise",
			"uniform(1)": "not a cost", "uniform(1,2": "not a cost", "uniform(1,2,3)": "not a cost", "exp(3)": "not a cost",
		}},
		{new(DurationDist), map[string]string{
			"": "not a duration", "100": "not a duration with a unit", "5 ms": "not a duration", "uniform(1ms)": "not a distribution",
			"uniform(1ms,2ms": "not a distribution", "uniform(1ms,2ms,3ms)": "not a distribution", "exp(1ms,2ms)": "not a distribution",
			"gauss(1,2)": `no distribution "gauss"`, "(1ms,2ms)": `no distribution ""`, "uniform(1,2)": "not a duration with a unit",
			"uniform(1ms,2)": "not a duration with a unit", "uniform(2ms,1ms)": "must rise", "normal(1ms,-1ns)": "must not be negative",
			"exp(-1ms)": "must not be negative", "lognormal(0s,1ms)": "positive median", "lognormal(2ms,1ms)": "99th percentile above it",
			"pareto(0s,2)": "positive minimum", "pareto(1ms,1)": "shape above 1", "pareto(1ms,2ms)": "not a number",
			"2562047h47m16.854775807s": "at most", "-2562047h47m16.854775808s": "at most",
		}},
		{new(DriftDist), map[string]string{"": "no unit", "5": "no unit", "5ms": "no unit", "xppm": "not a number", "uniform(1ppm,2)": "no unit"}},
	} {
		for text, want := range c.texts {
			before := valueOf(c.into)
			err := c.into.UnmarshalText([]byte(text))
			if !errors.Is(err, ErrQuantity) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q as %T: %v; want an ErrQuantity with %q", text, c.into, err, want)
			}
			if valueOf(c.into) != before {
				t.Errorf("%q as %T is wrong and read as %v", text, c.into, valueOf(c.into))
			}
		}
	}
}

func TestATextTellsAQuantityFromItsNeighbours(t *testing.T) {
	rng := testkit.Rand(t)
	same := func(into encoding.TextUnmarshaler, want any) {
		t.Helper()
		text := asText(want)
		if err := into.UnmarshalText([]byte(text)); err != nil || !reflect.DeepEqual(valueOf(into), want) {
			t.Fatalf("%#v is written as %q and read as %#v, %v", want, text, valueOf(into), err)
		}
	}
	for range 20_000 {
		x := rng.Float64() * math.Pow(10, -float64(rng.IntN(30)))
		same(new(Ratio), Ratio(x))
		same(new(Ratio), Ratio(math.Nextafter(x, 0)))
		same(new(Rate), Rate(math.Ldexp(x, rng.IntN(100))))
		same(new(DriftDist), drift(DistNormal, -x, x))
		same(new(DurationDist), duration(DistExp, float64(rng.Int64N(int64(distMax)>>rng.IntN(62))), 0))
		same(new(DurationDist), duration(DistPareto, 1, 1.5+x))
		low := 1 + rng.Int64N(math.MaxInt64-1)>>rng.IntN(62)
		same(new(Cost), Cost{low, low + rng.Int64N(math.MaxInt64-low)})
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
