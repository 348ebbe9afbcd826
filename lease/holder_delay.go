package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// After a reply that fell short the holder denies for a while without a call, because the bucket is
// known to have too little: until deniedUntil, which is kept here. docs/protocol.md, sections 7 and
// 8.

// spares reports whether the bucket and this process are known to have n tokens all the same: it
// was a larger request that they did not have enough for. Only of a bucket that nobody else draws
// from is that known.
func (h *Holder) spares(n int64) bool { return h.alone() && n <= h.heard.level()+h.Pool.Held() }

// delay is when the delay ends that the reply g asks for; 0 where it asks for none.
func (h *Holder) delay(now clock.Instant, g *Grant) clock.Instant {
	if !g.Short || g.Delay <= 0 {
		return 0
	}
	// Limits that are changed or reset elsewhere are to be followed within T, and a holder that the
	// bucket still knows may give back what was drawn for a request that has gone.
	longest := h.ttl / 4 * 3
	delay := min(g.Delay, longest)
	if !h.alone() {
		// Whoever is alone meets nobody. A tenth of a long delay would leave the next token of
		// a small burst lying about.
		delay = min(delay+h.jitter(min(delay, h.config.Target/2)/10), longest)
	}
	// The next call takes as long to the bucket as this one did, so it may be sent so much later
	// than this one was, and not later than the reply came: of a small burst a round trip of refill
	// would be lost with each token.
	return max(now+1, h.firstSent.Add(delay))
}

// endDelay ends the delay after a shortfall.
func (h *Holder) endDelay() { h.deniedUntil = 0 }

// shortenDelay ends the delay sooner for a request of n tokens that is smaller than the one that
// fell short: at the time at which a bucket that nobody else draws from has them, and no less than
// half a Target after the call.
func (h *Holder) shortenDelay(n int64) {
	missing := n - h.Pool.Held()
	if !h.alone() || h.deniedUntil == 0 || h.heard.shortOf == 0 || missing >= h.heard.shortOf {
		return
	}
	at := h.firstSent.Add(h.config.Target / 2)
	missing = max(0, missing-h.heard.level())
	for _, l := range h.config.Limits {
		at = max(at, h.firstSent.Add(time.Duration(float64(missing)/l.Rate()*1e9)))
	}
	h.deniedUntil = min(h.deniedUntil, at)
}

// BucketChanged says that limits were set or the bucket was reset, so that what was last heard of
// it is outdated: it ends the delay after a shortfall, and makes a call due where something is
// held. The largest n that can be granted now is capacity.
func (h *Holder) BucketChanged(capacity int64) {
	h.endDelay()
	h.change = outdated
	if h.calling {
		h.change = overtaken
	}
	h.low = h.low || h.Pool.Held() > 0
	h.KnowCapacity(capacity)
}

// Outdated reports whether the bucket is known to have been changed since the last reply was made.
func (h *Holder) Outdated() bool { return h.change != unchanged }

// jitter is a time in [0, span].
func (h *Holder) jitter(span time.Duration) time.Duration {
	if span <= 0 {
		return 0
	}
	return time.Duration(h.next() % uint64(span+1))
}
