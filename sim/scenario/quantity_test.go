package scenario

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/random"
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
		{"1e6/s", new(Rate), Rate(1e6), "1e+06/s"},
		{"-0/s", new(Rate), Rate(0), "0/s"},

		{"0.5%", new(Ratio), Ratio(0.005), ""},
		{"-0%", new(Ratio), Ratio(0), "0%"},
		{"0.00001%", new(Ratio), Ratio(1e-7), ""},
		{"33.333333333333333%", new(Ratio), Ratio(0.33333333333333333), "33.33333333333333%"},

		{"3", new(Cost), Cost{Min: 3, Max: 3}, ""},
		{"uniform(1,5)", new(Cost), Cost{Min: 1, Max: 5}, ""},
		{"pareto(1,500,1.3)", new(Cost), Cost{Min: 1, Max: 500, Shape: 1.3}, ""},
		{"pareto( 2 , 9 , 1e0 )", new(Cost), Cost{Min: 2, Max: 9, Shape: 1}, "pareto(2,9,1)"},

		{"5ms", new(DurationDist), Constantly(5 * time.Millisecond), ""},
		{"0", new(DurationDist), DurationDist{}, "0s"},
		{"uniform(-1ms,2ms)", new(DurationDist), duration(DistUniform, -1e6, 2e6), ""},
		{" uniform ( 1ms , 2ms )", new(DurationDist), duration(DistUniform, 1e6, 2e6), "uniform(1ms,2ms)"},
		{"normal(0s,10ms)", new(DurationDist), duration(DistNormal, 0, 1e7), ""},
		{"lognormal(500us,2ms)", new(DurationDist), duration(DistLognormal, 5e5, 2e6), "lognormal(500µs,2ms)"},

		{"300", new(TokenDist), TokenDist{Dist{P: 300}}, ""},
		{"0", new(TokenDist), TokenDist{}, ""},
		{"uniform(50,300)", new(TokenDist), TokenDist{Dist{DistUniform, 50, 300}}, ""},

		{"50ppm", new(DriftDist), drift("", 50, 0), ""},
		{"uniform(-50ppm,50.5ppm)", new(DriftDist), drift(DistUniform, -50, 50.5), ""},
	} {
		if err := c.into.UnmarshalText([]byte(c.text)); err != nil || valueOf(c.into) != c.want {
			t.Errorf("%q is read as %v, %v; want %v", c.text, valueOf(c.into), err, c.want)
			continue
		}
		got, want := violation.Show(valueOf(c.into)), cmp.Or(c.back, c.text)
		testkit.Check(t, got == want, "%q is written as %q, want %q", c.text, got, want)
	}
}

func TestQuantitiesSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		into  encoding.TextUnmarshaler
		wrong map[string][]string // texts by what their errors say
	}{
		{new(Rate), map[string][]string{
			"no unit": {"", "5", "5/d", "5/S"}, "negative": {"-1/s"},
			"not a number": {"x/s", "NaN/s", "inf/s", "0x10/s", "1_0/s", "1e400/s"},
		}},
		{new(Ratio), map[string][]string{
			"no unit": {"", "0.5"}, "not a number": {"%", "5e-1%"}, "must be 0% to 100%": {"-0.1%", "100.1%"},
		}},
		{new(Cost), map[string][]string{
			"not a cost": {
				"", "1.5", "uniform(1)", "uniform(1,2", "uniform(1,2,3)", "pareto(1,2)", "pareto(1,2,x)", "exp(3)",
			},
			"must be 1 or more": {"0", "-1", "pareto(0,2,1)"}, "must be 1 or more, in rising order": {"uniform(5,1)"},
			"a shape of 0.01 to 100": {"pareto(1,2,0)", "pareto(1,2,200)"},
		}},
		{new(DurationDist), map[string][]string{
			"not a duration": {"", "5 ms"}, "not a duration with a unit": {"100", "uniform(1,2)", "uniform(1ms,2)"},
			"not a distribution":      {"uniform(1ms)", "uniform(1ms,2ms", "uniform(1ms,2ms,3ms)", "exp(1ms,2ms)"},
			`no distribution "gauss"`: {"gauss(1,2)"}, `no distribution ""`: {"(1ms,2ms)"},
			"must rise":                {"uniform(2ms,1ms)"},
			"must not be negative":     {"normal(1ms,-1ns)", "exp(-1ms)"},
			"positive median":          {"lognormal(0s,1ms)"},
			"99th percentile above it": {"lognormal(2ms,1ms)"},
			"at most":                  {"2562047h47m16.854775807s", "-2562047h47m16.854775808s"},
		}},
		{new(TokenDist), map[string][]string{"not a number": {"", "5ms"}, "must rise": {"uniform(3,2)"}}},
		{new(DriftDist), map[string][]string{
			"no unit": {"", "5", "5ms", "uniform(1ppm,2)"}, "not a number": {"xppm"},
		}},
	} {
		for want, texts := range c.wrong {
			for _, text := range texts {
				before := valueOf(c.into)
				err := c.into.UnmarshalText([]byte(text))
				testkit.Check(t, errors.Is(err, ErrQuantity) && strings.Contains(err.Error(), want),
					"%q as %T: %v; want an ErrQuantity with %q", text, c.into, err, want)
				testkit.Check(t, valueOf(c.into) == before,
					"%q as %T is wrong and read as %v", text, c.into, valueOf(c.into))
			}
		}
	}
}

func TestATextTellsAQuantityFromItsNeighbours(t *testing.T) {
	rng := testkit.Rand(t)
	same := func(into encoding.TextUnmarshaler, want any) {
		t.Helper()
		text := violation.Show(want)
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
		low := 1 + rng.Int64N(math.MaxInt64-1)>>rng.IntN(62)
		same(new(Cost), Cost{Min: low, Max: low + rng.Int64N(math.MaxInt64-low)})
		same(new(Cost), Cost{Min: low, Max: math.MaxInt64, Shape: shapeMin + x})
	}
}

// checkPart demands that n draws hit with probability p, as far as chance lets them.
func checkPart(t *testing.T, what string, hits, n int, p float64) {
	t.Helper()
	sigma := math.Sqrt(float64(n) * p * (1 - p))
	testkit.Check(t, math.Abs(float64(hits)-float64(n)*p) <= 6*sigma,
		"%s: %d of %d, want %.1f within %.1f", what, hits, n, float64(n)*p, 6*sigma)
}

// above counts the draws above x.
func above(d Dist, x float64, n int, r *random.Stream) (hits int) {
	for range n {
		if d.Draw(r) > x {
			hits++
		}
	}
	return hits
}

func TestDistributionsHaveTheirQuantiles(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		d Dist
		x float64 // the value
		p float64 // that a draw is above it
	}{
		{Dist{P: 5}, 4.999, 1},
		{Dist{DistUniform, -2, 6}, -2, 1},
		{Dist{DistUniform, -2, 6}, 4, 0.25},
		{Dist{DistNormal, 10, 3}, 10, 0.5},
		{Dist{DistNormal, 10, 3}, 13, 0.158655},
		{Dist{DistNormal, 10, 3}, 10 - 3*normal99, 0.99},
		{Dist{DistExp, 7, 0}, 7, 1 / math.E},
		{Dist{DistExp, 7, 0}, 7 * math.Log(1000), 0.001},
		{Dist{DistLognormal, 500, 2000}, 500, 0.5},
		{Dist{DistLognormal, 500, 2000}, 2000, 0.01},
		{Dist{DistLognormal, 500, 2000}, 125, 0.99}, // symmetric in the logarithm
	} {
		r := random.New(1, 10)
		checkPart(t, fmt.Sprintf("%+v above %v", c.d, c.x), above(c.d, c.x, n, &r), n, c.p)
	}
}

func TestDistributionsHaveTheirMeans(t *testing.T) {
	for d, want := range map[Dist]float64{
		{P: 5}: 5, {DistUniform, -2, 6}: 2, {DistNormal, 10, 3}: 10, {DistExp, 7, 0}: 7,
		// sigma = ln 4 / 2.3263 = 0.59591, and the mean is P e^(sigma^2/2)
		{DistLognormal, 500, 2000}: 500 * math.Exp(0.35511/2),
	} {
		testkit.Check(t, math.Abs(d.Mean()-want) <= 1e-4*want, "%+v has mean %v, want %v", d, d.Mean(), want)
	}
}

func TestSamplesAreDurations(t *testing.T) {
	r := random.New(3, 10)
	got := DurationDist{Dist{P: 2.5}}.Sample(&r)
	testkit.Check(t, got == 3, "2.5 ns is %d ns, want the next integer", got)
	negative := 0
	for range 10_000 {
		got := DurationDist{Dist{DistNormal, 0, 1e6}}.Sample(&r)
		testkit.Must(t, got >= 0, "a duration is %d ns", got)
		if got == 0 {
			negative++
		}
	}
	checkPart(t, "normal durations cut off at 0", negative, 10_000, 0.5)
	// A tail that leaves every integer behind ends at the longest run.
	longest := int64(0)
	for range 10_000 {
		longest = max(longest, DurationDist{Dist{DistExp, 1e15, 0}}.Sample(&r))
	}
	testkit.Check(t, longest == int64(DurationMax),
		"the longest of 10,000 is %d ns, want %d", longest, int64(DurationMax))
}

func TestSamplesOfTokensAreWholeAndBounded(t *testing.T) {
	r := random.New(3, 11)
	for d, want := range map[Dist]int64{{P: 2.5}: 3, {P: -1}: 0, {P: 1e12}: 1_000_000_000} {
		got := TokenDist{d}.Sample(&r)
		testkit.Check(t, got == want, "%v is %d tokens, want %d", d, got, want)
	}
}

func TestTheLoadOfReservationsIsOfWhatTheyCostInTheEnd(t *testing.T) {
	load := Workload{Load: 0.5, Cost: Cost{Min: 10, Max: 10}}
	s := Scenario{Limits: []lease.Limit{lease.PerSecond(1000)}, Workload: load}
	for actual, want := range map[Dist]float64{{}: 50, {P: 20}: 25, {Kind: DistUniform, Q: 50}: 20} {
		s.Workload.Actual = TokenDist{actual}
		s := s.Defaults()
		got := s.RateOf(&s.Workload)
		testkit.Check(t, got == want, "with an actual cost of %v: %v requests a second, want %v", actual, got, want)
	}
}

func TestClocksAreAsWrongAsTheScenarioSays(t *testing.T) {
	const n = 20_000
	r := random.New(4, 10)
	bounded := Clock{Offset: Constantly(time.Second), Drift: DriftDist{Dist{P: 50}}}
	offsets, drifts := 0, 0
	for range n {
		offset, drift := bounded.Draw(&r)
		testkit.Must(t, offset >= -1e9 && offset <= 1e9 && drift >= -50 && drift <= 50,
			"a clock within 1 s and 50 ppm has %d ns and %d ppm", offset, drift)
		if offset > 5e8 {
			offsets++
		}
		if drift > 24 { // 24.5 and more
			drifts++
		}
	}
	checkPart(t, "offsets above 500 ms", offsets, n, 0.25)
	checkPart(t, "drifts above 24.5 ppm", drifts, n, 0.255)
	one := Clock{Offset: duration(DistUniform, 3e9, 3e9), Drift: drift(DistUniform, -7, -7)}
	offset, ppm := one.Draw(&r)
	testkit.Check(t, offset == 3e9 && ppm == -7, "a clock that is wrong by 3 s and -7 ppm: %d, %d", offset, ppm)
	// No clock stands still, whatever the tail.
	offset, ppm = Clock{duration(DistNormal, 0, 1e30), drift(DistNormal, 0, 1e30)}.Draw(&r)
	testkit.Check(t, max(offset, -offset) == int64(offsetMax) && max(ppm, -ppm) == int64(driftMax)-1,
		"a clock beyond all bounds has %d ns and %d ppm", offset, ppm)
	// A sweep of the offset compares fleets whose clocks drift alike.
	seen := map[int64]bool{}
	for _, offset := range []time.Duration{0, time.Millisecond, time.Hour} {
		r := random.New(5, 10)
		_, d := Clock{Constantly(offset), drift(DistNormal, 0, 100)}.Draw(&r)
		seen[d] = true
	}
	testkit.Check(t, len(seen) == 1, "the drifts are %v", seen)
}
