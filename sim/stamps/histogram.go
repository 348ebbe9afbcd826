package stamps

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram holds counts of durations in log-linear buckets: every power of two is divided into 32 equal
// parts, so that a bucket is at most 1/32 of its lower edge wide and its middle at most 1/64 (1.6 %) away
// from any value in it. Durations below 64 ns are exact. This is the layout of HdrHistogram and of the Go
// runtime's own histograms; it covers every duration, in 15 KB. The zero Histogram is empty. Reading it is
// safe for many goroutines, Merge needs it alone.
type Histogram struct {
	counts [buckets]int64
}

const (
	parts   = 32
	buckets = 58*parts + parts // bucketOf(MaxInt64) + 1
)

// bucketOf keeps the leading 1 of d and the 5 bits that follow it.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-6, 0)
	return shift*parts + int(v>>shift)
}

// middle is the representative of a bucket, in nanoseconds.
func middle(bucket int) time.Duration {
	shift := max(bucket/parts-1, 0)
	low := uint64(bucket-shift*parts) << shift
	return time.Duration(low + 1<<shift/2)
}

// Merge adds the counts of other, which it does not modify.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// Count returns the number of durations.
func (h *Histogram) Count() int64 {
	var sum int64
	for _, n := range h.counts {
		sum += n
	}
	return sum
}

// Quantile returns the smallest duration that at least the fraction q of all durations do not exceed,
// within 1.6 %: Quantile(0.5) is the median, Quantile(1) the longest. A q outside [0, 1] is taken as the
// nearer end, so Quantile(0) is the shortest. It is 0 for an empty Histogram and for q NaN.
func (h *Histogram) Quantile(q float64) time.Duration {
	count := h.Count()
	if count == 0 || math.IsNaN(q) {
		return 0
	}
	rank := min(max(int64(math.Ceil(q*float64(count))), 1), count)
	for i, n := range h.counts {
		if rank -= n; rank <= 0 {
			return middle(i)
		}
	}
	panic("stamps: a histogram with fewer entries than its count")
}
