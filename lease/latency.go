package lease

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

const (
	// latencySamples are how many are kept: of so many, the 99th percentile is the second largest.
	// From latencyFew on, one that is larger than all others counts as a stall.
	latencySamples, latencyFew = 128, 16
	// latencySpan is how long a sample counts: the network as it was before says nothing about now.
	latencySpan = 3 * time.Second
)

// Latency estimates the 99th percentile of the round trips of the last seconds to one node of a
// store, which Client.Tick and Build want. Where there were few, the latest few count, however old.
// The zero value knows none. Goroutines that share one need a lock.
type Latency struct {
	samples [latencySamples]struct {
		took time.Duration
		at   clock.Instant
	}
	n      int
	p99    time.Duration
	sorted clock.Instant // when p99 was last taken from the samples
}

// Add takes in that a round trip ended now and took so long. One that failed says nothing.
func (l *Latency) Add(now clock.Instant, d time.Duration) {
	s := &l.samples[l.n%latencySamples]
	s.took, s.at = d, now
	l.n++
	// A rise is taken over at once. Otherwise sorting every eighth time, or after a while, is
	// enough.
	if l.n%8 != 1 && d <= l.p99 && now.Sub(l.sorted) < latencySpan/8 {
		return
	}
	l.sorted = now
	var sorted [latencySamples]time.Duration
	have := sorted[:0]
	for back := 1; back <= min(l.n, latencySamples); back++ {
		s := &l.samples[(l.n-back)%latencySamples]
		if len(have) >= latencyFew && now.Sub(s.at) > latencySpan {
			break
		}
		have = append(have, s.took)
	}
	slices.Sort(have)
	// The second largest, so that one stall changes nothing. Of a few it is the largest.
	last := len(have) - 1
	if len(have) >= latencyFew {
		last--
	}
	l.p99 = have[last]
}

// Quantile is the 99th percentile; 0 before the first sample.
func (l *Latency) Quantile() time.Duration { return l.p99 }
