package scenario

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
)

// checkPart demands that n draws hit with probability p, as far as chance lets them.
func checkPart(t *testing.T, what string, hits, n int, p float64) {
	t.Helper()
	sigma := math.Sqrt(float64(n) * p * (1 - p))
	if math.Abs(float64(hits)-float64(n)*p) > 6*sigma {
		t.Errorf("%s: %d of %d, want %.1f within %.1f", what, hits, n, float64(n)*p, 6*sigma)
	}
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
		{Dist{P: 5}, 5, 0},
		{Dist{DistUniform, -2, 6}, -2, 1},
		{Dist{DistUniform, -2, 6}, 4, 0.25},
		{Dist{DistUniform, -2, 6}, 6, 0},
		{Dist{DistNormal, 10, 3}, 10, 0.5},
		{Dist{DistNormal, 10, 3}, 13, 0.158655},
		{Dist{DistNormal, 10, 3}, 10 - 3*normal99, 0.99},
		{Dist{DistExp, 7, 0}, 7, 1 / math.E},
		{Dist{DistExp, 7, 0}, 7 * math.Log(1000), 0.001},
		{Dist{DistLognormal, 500, 2000}, 500, 0.5},
		{Dist{DistLognormal, 500, 2000}, 2000, 0.01},
		{Dist{DistLognormal, 500, 2000}, 125, 0.99}, // symmetric in the logarithm
		{Dist{DistLognormal, 3, 3}, 2.999999, 1},
		{Dist{DistPareto, 4, 1.5}, 4, 1},
		{Dist{DistPareto, 4, 1.5}, 16, 0.125},
		{Dist{DistPareto, 4, 1.5}, 400, 0.001},
	} {
		r := random.New(1, 10)
		checkPart(t, fmt.Sprintf("%+v above %v", c.d, c.x), above(c.d, c.x, n, &r), n, c.p)
	}
}

func TestDistributionsHaveTheirMeans(t *testing.T) {
	const n = 400_000
	for _, c := range []struct {
		d             Dist
		mean, squared float64 // closed forms: the moments 1 and 2
	}{
		{Dist{P: 5}, 5, 25},
		{Dist{DistUniform, -2, 6}, 2, 28. / 3},
		{Dist{DistNormal, 10, 3}, 10, 109},
		{Dist{DistExp, 7, 0}, 7, 98},
		// sigma = ln 4 / 2.3263 = 0.59591: P e^(sigma^2/2) and P^2 e^(2 sigma^2)
		{Dist{DistLognormal, 500, 2000}, 500 * math.Exp(0.35511/2), 250_000 * math.Exp(2*0.35511)},
		{Dist{DistPareto, 4, 3}, 6, 48},
	} {
		if got := c.d.Mean(); math.Abs(got-c.mean) > 1e-4*c.mean {
			t.Errorf("%+v has mean %v, want %v", c.d, got, c.mean)
		}
		r, sum := random.New(2, 10), 0.0
		for range n {
			sum += c.d.Draw(&r)
		}
		sigma := math.Sqrt(max(0, c.squared-c.mean*c.mean) / n)
		if got := sum / n; math.Abs(got-c.mean) > 6*sigma+1e-9 {
			t.Errorf("%+v: the mean of %d draws is %v, want %v within %v", c.d, n, got, c.mean, 6*sigma)
		}
	}
}

func TestSamplesAreDurations(t *testing.T) {
	r := random.New(3, 10)
	if got := Constantly(1500 * time.Microsecond).Sample(&r); got != 1_500_000 {
		t.Errorf("a constant 1.5ms is %d ns", got)
	}
	if got := (DurationDist{Dist{P: 2.5}}).Sample(&r); got != 3 {
		t.Errorf("2.5 ns is %d ns, want the next integer", got)
	}
	negative := 0
	for range 10_000 {
		switch got := (DurationDist{Dist{DistNormal, 0, 1e6}}).Sample(&r); {
		case got < 0:
			t.Fatalf("a duration is %d ns", got)
		case got == 0:
			negative++
		}
	}
	checkPart(t, "normal durations cut off at 0", negative, 10_000, 0.5)
	// A tail that leaves every integer behind ends at the longest run.
	longest := int64(0)
	for range 10_000 {
		longest = max(longest, DurationDist{Dist{DistPareto, 1e15, 1.01}}.Sample(&r))
	}
	if longest != int64(DurationMax) {
		t.Errorf("the longest of 10,000 is %d ns, want %d", longest, int64(DurationMax))
	}
}

func TestClocksAreAsWrongAsTheScenarioSays(t *testing.T) {
	const n = 20_000
	r := random.New(4, 10)
	bounded := Clock{Offset: Constantly(time.Second), Drift: DriftDist{Dist{P: 50}}}
	offsets, drifts := 0, 0
	for range n {
		offset, drift := bounded.Draw(&r)
		if offset < -1e9 || offset > 1e9 || drift < -50 || drift > 50 {
			t.Fatalf("a clock within 1 s and 50 ppm has %d ns and %d ppm", offset, drift)
		}
		if offset > 5e8 {
			offsets++
		}
		if drift > 24 { // 24.5 and more
			drifts++
		}
	}
	checkPart(t, "offsets above 500 ms", offsets, n, 0.25)
	checkPart(t, "drifts above 24.5 ppm", drifts, n, 0.255)

	if offset, drift := (Clock{}).Draw(&r); offset != 0 || drift != 0 {
		t.Errorf("a right clock has %d ns and %d ppm", offset, drift)
	}
	one := Clock{Offset: DurationDist{Dist{DistUniform, 3e9, 3e9}}, Drift: DriftDist{Dist{DistUniform, -7, -7}}}
	if offset, drift := one.Draw(&r); offset != 3e9 || drift != -7 {
		t.Errorf("a clock 3 s ahead and 7 ppm slow has %d ns and %d ppm", offset, drift)
	}
	// No clock stands still, whatever the tail.
	wild := Clock{Offset: DurationDist{Dist{DistNormal, 0, 1e30}}, Drift: DriftDist{Dist{DistNormal, 0, 1e30}}}
	for range 100 {
		offset, drift := wild.Draw(&r)
		if max(offset, -offset) != int64(offsetMax) || max(drift, -drift) != int64(driftMax)-1 {
			t.Fatalf("a clock beyond all bounds has %d ns and %d ppm", offset, drift)
		}
	}
}

// A sweep of the offset compares fleets whose clocks drift alike.
func TestTheOffsetDoesNotChangeTheDrift(t *testing.T) {
	drift := DriftDist{Dist{DistNormal, 0, 100}}
	var drifts []int64
	for _, offset := range []time.Duration{0, time.Millisecond, time.Hour} {
		r := random.New(5, 10)
		_, d := Clock{Constantly(offset), drift}.Draw(&r)
		drifts = append(drifts, d)
	}
	if drifts[0] != drifts[1] || drifts[1] != drifts[2] {
		t.Errorf("the drifts are %v", drifts)
	}
}
