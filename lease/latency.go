package lease

import (
	"slices"
	"time"
)

// latencySamples are enough for a 99th percentile that is the second largest; latencyFew are enough to call one of them a
// stall.
const latencySamples, latencyFew = 128, 16

// Latency estimates the 99th percentile of the latest round trips to one node of a store: what Input.RTT wants. The zero
// value knows none. It may not be shared between goroutines without a lock.
type Latency struct {
	samples [latencySamples]time.Duration
	n       int
	p99     time.Duration
}

// Add takes in how long one round trip took. One that failed says nothing.
func (l *Latency) Add(d time.Duration) {
	l.samples[l.n%latencySamples] = d
	l.n++
	// Sorting every eighth time costs nothing beside a round trip; a rise is taken over at once.
	if l.n%8 != 1 && d <= l.p99 {
		return
	}
	sorted := l.samples
	have := sorted[:min(l.n, latencySamples)]
	slices.Sort(have)
	// The second largest, so that one stall changes nothing; but of a few the largest.
	last := len(have) - 1
	if len(have) >= latencyFew {
		last--
	}
	l.p99 = have[last]
}

// Quantile is the 99th percentile; 0 before the first sample.
func (l *Latency) Quantile() time.Duration { return l.p99 }
