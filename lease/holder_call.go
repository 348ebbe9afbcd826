package lease

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Build opens the call that Due found due: a retry of the open one while that is worth sending,
// otherwise a new one under seq, which must be above all earlier ones. The request is valid until
// the next Build.
func (h *Holder) Build(now clock.Instant, seq int64, in Input) *Request {
	h.calling = true
	if in.RTT > 0 {
		h.rtt = in.RTT
		h.stretch()
	}
	if r := h.resend(now); r != nil {
		return r
	}
	h.Expire(now)
	h.observe(now)
	ask := Ask{Config: h.config, Weight: h.policy.weight()}
	if in.Closing {
		ask.Return = returnAll
	} else {
		ask.Want, ask.Need, ask.Waiting = h.size(h.Pool.Held(), in)
		wanted := in.Waiting > 0 || in.Refused > 0 || h.low
		if !wanted && h.heard.replied && now >= h.reviewAt && h.excess(h.Pool.Held()) > 0 {
			ask.Return = h.excess
			ask.Want, ask.Need = 0, 0
		}
	}
	if h.Outdated() { // a lease that does not fit lowered limits would be void, and fill the ledger for a T
		ask.Return = returnAll
	}
	h.low = false
	h.missedAtAsk = h.Pool.Missed()
	return h.Open(now, seq, ask)
}

// returnAll is Ask.Return of who gives back all that it holds.
func returnAll(held int64) int64 { return held }

// Accept takes in the reply to the open call; see Holding.Accept.
func (h *Holder) Accept(now clock.Instant, g *Grant, reserve int64) (Accepted, bool) {
	got, ok := h.Holding.Accept(now, g, reserve)
	if !ok {
		return got, false
	}
	h.calling = false
	h.stales = 0
	h.breaker.succeed()
	h.observe(now)
	h.seenAtReply = h.demand.seen
	h.leased = h.Pool.Held()
	h.follow(g.Config)
	h.staleAt = h.fullAt(g)
	h.deniedUntil = h.delay(now, g)
	h.reviewAt = now.Add(h.config.Target)
	if h.change == overtaken {
		h.change, h.deniedUntil = outdated, 0
	} else {
		h.change = unchanged
		h.learned()
	}
	h.arm()
	return got, true
}

// Fail reports that the call under way brought no grant. The open call stays open, so that a retry
// can carry the same seq and a late reply can still be accepted.
func (h *Holder) Fail(now clock.Instant, err error) {
	h.calling = false
	if errors.Is(err, ErrStale) {
		// The store is well, and its user goes on under another id (Rename); only a second time is
		// it a failure.
		h.giveUp()
		if h.stales++; h.stales == 1 {
			return
		}
	}
	h.breaker.fail(now, h.config.Target, h.next())
}

// follow adopts the configuration in force, so that it survives the loss of the bucket.
func (h *Holder) follow(c Config) {
	h.ttl = c.TTL
	h.breaker.longest = h.ttl
	if c.Version.after(h.config.Version) {
		h.ttlLeast = max(c.TTL, 2*c.Target)
	}
	if !c.equal(h.config) {
		h.conflict = h.conflict || c.Version == h.config.Version
		c.TTL = max(h.ttlLeast, 2*c.Target)
		h.config = c
	}
	h.heard.limits = h.config.Limits
}

// learned tells the pool how much a request may ask for at all.
func (h *Holder) learned() { h.KnowCapacity(h.config.Capacity()) }

// observe feeds the demand estimate. A request that the pool refused and that was served later is
// one attempt.
func (h *Holder) observe(now clock.Instant) {
	h.demand.observe(now, h.attempts()-h.servedLater, h.config.Target)
}

// DeniedOf is the tokens of requests that were refused and not served later, when the Pool had
// missed so many.
func (h *Holder) DeniedOf(missed int64) int64 { return missed - h.servedLater }

// Uncount says that n tokens which a refused take has counted as missed were no demand.
func (h *Holder) Uncount(n int64) { h.servedLater += n }

// attempts is the tokens that were asked for so far. Those of servedLater are in it twice.
func (h *Holder) attempts() int64 { return h.Account().Admitted + h.Pool.Missed() }

// pending is how many tokens are on their way back to the bucket, or wait for the call that takes
// them there.
func (h *Holder) pending() int64 {
	n := h.refund + h.unused
	if h.isOpen {
		n += h.open.Refund + h.open.Returned + h.open.Unused
	}
	return n
}

// owes reports whether the next call has something to bring beside its report.
func (h *Holder) owes() bool { return h.debt > 0 || h.refund > 0 || h.unused > 0 }

// next is splitmix64 (Steele, Lea, Flood 2014).
func (h *Holder) next() uint64 {
	h.random += 0x9e3779b97f4a7c15
	z := h.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

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
