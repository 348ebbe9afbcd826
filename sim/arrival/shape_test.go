package arrival

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// checkCount demands a Poisson variable of the given mean.
func checkCount(t *testing.T, what string, got int, want float64) {
	t.Helper()
	testkit.Check(t, math.Abs(float64(got)-want) <= 6*math.Sqrt(want),
		"%s: %d requests, want %.0f within %.0f", what, got, want, 6*math.Sqrt(want))
}

func TestFlashMultipliesTheRateForAWhile(t *testing.T) {
	// A flash that is shorter than the time between two requests comes all the same, and goes.
	for _, c := range []struct {
		flashes       int
		rate, factor  float64
		at, length    time.Duration
		span          time.Duration
		before, after float64
		during        float64
	}{
		{1, arrivalsRate, 8, 2000 * time.Second, 500 * time.Second, arrivalsSpan, 2000 * arrivalsRate,
			7500 * arrivalsRate, 500 * arrivalsRate * 8},
		{2000, 1, 100, 500 * time.Millisecond, 50 * time.Millisecond, time.Second, 1000, 900, 10_000},
	} {
		var before, during, after int
		for seed := range c.flashes {
			s := newSource(scenario.Flash, uint64(seed))
			s.Rate, s.Duration = c.rate, int64(c.span)
			s.Workload.At, s.Workload.For, s.Workload.Factor = c.at, c.length, c.factor
			for _, at := range moments(s) {
				switch {
				case at < int64(c.at):
					before++
				case at < int64(c.at+c.length):
					during++
				default:
					after++
				}
			}
		}
		checkCount(t, fmt.Sprintf("before flashes of %v", c.length), before, c.before)
		checkCount(t, fmt.Sprintf("in flashes of %v", c.length), during, c.during)
		checkCount(t, fmt.Sprintf("after flashes of %v", c.length), after, c.after)
	}
}

func TestSyncIsTheSameMomentForAll(t *testing.T) {
	const processes, each = 30, 0.3 // requests of a process in a volley
	volleys := map[int64][]int64{}
	for i := range processes {
		s := newSource(scenario.Sync, uint64(i))
		s.Workload.Every, s.Workload.Within = 250*time.Millisecond, 0
		s.Index, s.Of, s.Rate = i, processes, each*4
		s.Duration = int64(100 * time.Second)
		own := moments(s)
		testkit.Check(t, len(own) >= 119 && len(own) <= 121,
			"process %d has %d requests in 400 volleys, want 120", i, len(own))
		for _, at := range own {
			volleys[at] = append(volleys[at], at)
		}
	}
	testkit.Check(t, len(volleys) == 400,
		"there are %d volleys, want one at every multiple of 250 ms", len(volleys))
	for at, all := range volleys {
		testkit.Must(t, at%int64(250*time.Millisecond) == 0,
			"a request comes at %v, want a multiple of 250ms", time.Duration(at))
		if n := len(all); n < 8 || n > 10 {
			t.Errorf("the volley at %v has %d requests, want 9, or one more or less", time.Duration(at), n)
		}
	}
}

// TestVolleysAreSpreadEvenly: Sync from its moment on, Boundary with half of a volley before it, and of the
// first volley only the part after the start. A process that starts within a volley has the rest of it.
func TestVolleysAreSpreadEvenly(t *testing.T) {
	for kind, c := range map[string]struct {
		at     []int64     // ms
		starts map[int]int // the first request from these ms on
	}{
		scenario.Boundary: {
			[]int64{0, 25, 450, 475, 500, 525, 950, 975}, map[int]int{0: 0, 30: 2, 451: 3, 500: 4, 526: 6},
		},
		// In the middle of a volley, at the very moment of one, and in the pause.
		scenario.Sync: {
			[]int64{0, 25, 50, 75, 500, 525, 550, 575}, map[int]int{0: 0, 30: 2, 50: 2, 76: 4, 500: 4, 576: 8},
		},
	} {
		s := newSource(kind, 25)
		s.Rate, s.Duration = 8, int64(time.Second)
		s.Workload.Every, s.Workload.Within = 500*time.Millisecond, 100*time.Millisecond
		for start, first := range c.starts {
			s.Start = int64(milliseconds(start))
			var got []int64
			for _, at := range moments(s) {
				got = append(got, at/int64(time.Millisecond))
			}
			testkit.Check(t, slices.Equal(got, c.at[first:]), "%s from %d ms on: requests at %v ms, want %v",
				kind, start, got, c.at[first:])
		}
	}
}

func TestSharesFollowZipf(t *testing.T) {
	for _, c := range []struct {
		n    int
		s    float64
		want []float64 // the first ones
	}{
		{1, 2, []float64{1}},
		{4, 0, []float64{0.25, 0.25, 0.25, 0.25}},
		{3, 2, []float64{36. / 49, 9. / 49, 4. / 49}},
		{1000, 0.5, nil},
	} {
		got, sum := Shares(c.n, c.s), 0.0
		for i, share := range got {
			sum += share
			if i < len(c.want) && math.Abs(share-c.want[i]) > 1e-15 {
				t.Errorf("share %d of %d with skew %g is %v, want %v", i, c.n, c.s, share, c.want[i])
			}
		}
		testkit.Check(t, len(got) == c.n && math.Abs(sum-1) <= 1e-12,
			"%d shares with skew %g sum to %v, want %d and 1", len(got), c.s, sum, c.n)
	}
}

func TestKeysAreAsPopularAsZipfSays(t *testing.T) {
	const n = 200_000
	weights, r := random.NewWeights(Shares(5, 1)), random.New(26)
	var counts [5]int
	for range n {
		counts[weights.Draw(&r)]++
	}
	for k, hits := range counts {
		checkShare(t, fmt.Sprintf("key %d", k), hits, n, 1/float64(k+1)/(137./60))
	}
}

// checkShare demands that n draws hit with probability p, as far as chance lets them.
func checkShare(t *testing.T, what string, hits, n int, p float64) {
	t.Helper()
	sigma := math.Sqrt(float64(n) * p * (1 - p))
	testkit.Check(t, math.Abs(float64(hits)-float64(n)*p) <= 6*sigma,
		"%s: %d of %d, want %.1f within %.1f", what, hits, n, float64(n)*p, 6*sigma)
}
