package lease

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

const (
	// latencySamples are enough for a 99th percentile that is the second largest; latencyFew are
	// enough to call one of them a stall.
	latencySamples, latencyFew = 128, 16
	// latencySpan is how long a sample counts: the network as it was before says nothing about now.
	latencySpan = 3 * time.Second
)

// Latency estimates the 99th percentile of the round trips of the last seconds to one node of a
// store: what Input.RTT wants. Where there were few, the latest few count, however old. The zero
// value knows none. It may not be shared between goroutines without a lock.
type Latency struct {
	samples [latencySamples]struct {
		took time.Duration
		at   clock.Instant
	}
	n      int
	p99    time.Duration
	sorted clock.Instant // when p99 was last taken from the samples
}

// Add takes in how long one round trip took that ended now. One that failed says nothing.
func (l *Latency) Add(now clock.Instant, d time.Duration) {
	s := &l.samples[l.n%latencySamples]
	s.took, s.at = d, now
	l.n++
	// Sorting every eighth time, or once in a while, costs nothing beside a round trip; a rise is
	// taken over at once.
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
	// The second largest, so that one stall changes nothing; but of a few the largest.
	last := len(have) - 1
	if len(have) >= latencyFew {
		last--
	}
	l.p99 = have[last]
}

// Quantile is the 99th percentile; 0 before the first sample.
func (l *Latency) Quantile() time.Duration { return l.p99 }
