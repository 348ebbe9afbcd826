package stamps

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func (h *Histogram) observe(d time.Duration) { h.counts[bucketOf(d)]++ }

// spread draws durations of every magnitude.
func spread(rng *rand.Rand) time.Duration { return time.Duration(rng.Int64() >> rng.IntN(63)) }

func TestEveryDurationLiesNearTheMiddleOfItsBucket(t *testing.T) {
	rng := testkit.Rand(t)
	values := []time.Duration{0, 1, 63, 64, 65, 127, 128, math.MaxInt64 - 1, math.MaxInt64}
	for range 100_000 {
		values = append(values, spread(rng))
	}
	for _, d := range values {
		m := middle(bucketOf(d))
		if off := math.Abs(float64(m-d)) / float64(max(d, 1)); off > 1.0/64 || d < 64 && m != d {
			t.Fatalf("%d is represented by %d, %.2f %% off", d, m, 100*off)
		}
	}
	if last := bucketOf(math.MaxInt64); last != buckets-1 {
		t.Errorf("the last bucket used is %d of %d", last, buckets)
	}
}

func TestBucketsAscend(t *testing.T) {
	for b := 1; b < buckets; b++ {
		if middle(b) <= middle(b-1) || bucketOf(middle(b)) != b {
			t.Fatalf("bucket %d has the middle %d, after %d; that falls in bucket %d", b, middle(b), middle(b-1), bucketOf(middle(b)))
		}
	}
}

func TestQuantilesOfMergedHistograms(t *testing.T) {
	rng := testkit.Rand(t)
	for range 200 {
		// Given durations spread over several histograms, as over several processes
		parts := make([]Histogram, 1+rng.IntN(4))
		var all []time.Duration
		for range 1 + rng.IntN(2000) {
			d := spread(rng)
			all = append(all, d)
			parts[rng.IntN(len(parts))].observe(d)
		}
		slices.Sort(all)

		// When they are merged
		var merged Histogram
		for i := range parts {
			merged.Merge(&parts[i])
		}

		// Then each quantile is that of all durations together, within 1.6 %.
		if merged.Count() != int64(len(all)) {
			t.Fatalf("count %d, want %d", merged.Count(), len(all))
		}
		for _, q := range []float64{-1, 0, 0.25, 0.5, 0.99, 1, 2} {
			rank := min(max(int(math.Ceil(q*float64(len(all)))), 1), len(all))
			want, got := all[rank-1], merged.Quantile(q)
			if bucketOf(want) != bucketOf(got) {
				t.Fatalf("quantile %v of %d durations: %v, want about %v", q, len(all), got, want)
			}
		}
	}
}

func TestAnEmptyHistogram(t *testing.T) {
	var h Histogram
	if h.Count() != 0 || h.Quantile(0.5) != 0 || h.Quantile(math.NaN()) != 0 {
		t.Errorf("count %d, median %v", h.Count(), h.Quantile(0.5))
	}
	h.observe(7)
	if h.Quantile(math.NaN()) != 0 {
		t.Error("a quantile that is not a number")
	}
}
