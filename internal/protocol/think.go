package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// think is docs/protocol.md section 8.18: a process leaves a node alone for a while after slow
// answers. Where more calls come to a server than it can answer, each waits for all that came
// before, and is answered too late. With pauses that grow with that wait, the calls of a large
// fleet become as many as the server can answer.
type think struct {
	calm   [2]time.Duration // the least round trip since calmAt, and of the span before; 0 for none
	calmAt clock.Instant
	excess float64 // the mean of what the last round trips took above calm
}

const (
	// thinkFactor is how much longer the pause is than what a round trip takes too long. n processes
	// and a server of mu calls a second settle where a pause and a round trip take n/mu together.
	thinkFactor = 8
	// thinkSlack is what round trips of a quiet network to an idle server differ by.
	thinkSlack = 2 * time.Millisecond
	// thinkMean is the weight of the latest round trip in the mean. Without a mean, processes that
	// come in one wave and find the server busy would come back as one.
	thinkMean = 0.25
	// calmSpan is how long the least round trip counts, at least: then the network may have changed.
	calmSpan = time.Minute
)

// after is the pause after a round trip that ended now and took d, at most longest.
func (t *think) after(now clock.Instant, d, longest time.Duration) time.Duration {
	if t.calmAt == 0 || now.Sub(t.calmAt) > calmSpan {
		t.calm[0], t.calm[1], t.calmAt = d, t.calm[0], now
	}
	t.calm[0] = min(t.calm[0], d)
	calm := t.calm[0]
	if t.calm[1] > 0 {
		calm = min(calm, t.calm[1])
	}
	t.excess += float64(thinkMean * (float64(max(0, d-calm-thinkSlack)) - t.excess))
	return time.Duration(min(float64(thinkFactor*t.excess), float64(longest)))
}
