package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Holder is the part of a Client that decides when to call the bucket, how much to ask for, and
// when to deny without a call: docs/protocol.md, section 8. It is a state machine: time and
// randomness come in as arguments, and the same inputs give the same outputs. It does not know who
// waits; the Client tells it how much they lack.
type Holder struct {
	Holding

	policy   *Policy       // may be shared
	config   Config        // in force, but with the TTL that this holder proposes
	ttl      time.Duration // T in force
	ttlLeast time.Duration // the TTL to propose on a fast network
	rtt      time.Duration // 99th percentile, of the key's node
	proposed int64         // the version that this process was deployed with

	demand      demand
	seenAtReply int64 // attempts at the last reply
	missedAtAsk int64 // Pool.Missed when the last call was built: more than that is new demand

	calling     bool          // a call is under way
	low         bool          // a Take has reported low since the last call
	change      change        // of the bucket, by others than its calls
	deniedUntil clock.Instant // the bucket is known to have too little until then; 0 where it is not
	reviewAt    clock.Instant // when to look next whether more is held than needed
	reviewing   bool          // that time has come
	leased      int64         // held after the last reply
	staleAt     clock.Instant // the bucket is full by then, unless it hears what was spent
	stales      int           // times in a row that a call was ErrStale

	breaker  breaker
	fallback *Bucket // serves the local share; nil before the first outage
	random   uint64
	conflict bool
	stage    stage
}

// stage is how far a holder has come in its life.
type stage int8

const (
	serving stage = iota
	leaving       // gives everything back
	closed
)

// change says whether what was last heard of the bucket is still true of it.
type change int8

const (
	unchanged change = iota
	outdated         // limits were set, or the bucket was reset, since the last call was executed
	overtaken        // the same, and a call was under way: its reply may not know either
)

// start makes h a cold holder.
func (h *Holder) start(now clock.Instant, c ClientConfig) {
	h.config = c.Proposed
	h.proposed = c.Proposed.Version.Deploy
	h.init(c.ID, c.Stripes)
	h.policy = c.Policy
	h.random = c.Seed
	h.demand.at = now
	h.rtt = time.Millisecond
	h.ttl, h.ttlLeast = h.config.TTL, h.config.TTL
	h.breaker.longest = h.ttl
	h.heard.limits = h.config.Limits
	h.learned()
}

// Input is what a Holder cannot know by itself.
type Input struct {
	Waiting int64         // tokens that queued requests still lack
	Need    int64         // tokens that the first queued request still lacks
	Refused int64         // the largest n that was refused without queueing since the last call
	RTT     time.Duration // 99th percentile of the key's node; 0 keeps the last one
	Closing bool          // give everything back
}

// Never is the time at which nothing is due: only an event can bring news.
const Never = clock.Instant(1<<63 - 1)

// advance lets time pass up to now: a lease that has ended is burnt, attempts become demand, and a
// call that got no answer is given up when a retry is not worth sending any more.
func (h *Holder) advance(now clock.Instant, in Input) {
	if h.stage == closed {
		return
	}
	h.Expire(now) // also while a call is under way: one that hangs does not keep a lease alive
	if h.calling {
		return
	}
	h.observe(now)
	if h.Degraded() {
		if h.isOpen && h.resend(now) == nil {
			h.giveUp()
		}
		return
	}
	held := h.Pool.Held()
	asks := in.Closing || h.wants(in, held) && now >= h.deniedUntil
	h.reviewing = held > 0 && h.heard.replied && now >= h.reviewAt && !asks && !h.owes()
	if h.reviewing && h.excess(held) == 0 {
		h.reviewAt = now.Add(h.config.Target)
	}
}

// wants reports whether somebody is waiting for tokens, was refused them, or is about to be. What
// was refused and did not stay is a reason to lease ahead, which a slow key does not. Before the
// first reply whoever was refused is about to be counted in Input: a call made earlier would not
// ask for them.
func (h *Holder) wants(in Input, held int64) bool {
	return in.Waiting > 0 || in.Refused > 0 || h.low ||
		h.heard.replied && held == 0 && h.Pool.Missed() > h.missedAtAsk && !h.slow()
}

// due says whether a call is due at time now, up to which the holder was advanced, and if not, when
// to look again at the latest.
func (h *Holder) due(now clock.Instant, in Input) (call bool, next clock.Instant) {
	if h.stage == closed {
		return false, Never
	}
	held := h.Pool.Held()
	next = Never
	if held > 0 {
		next = h.deadline
	}
	if h.calling {
		return false, next
	}
	wants := h.wants(in, held)
	if now < h.deniedUntil {
		next = min(next, h.deniedUntil)
	}
	if at, degraded := h.breaker.until(); degraded {
		// One probe at a time, and only where somebody wants tokens, owes some, or waits for a
		// verdict on what was given back.
		if !wants && !in.Closing && !h.isOpen && !h.owes() {
			return false, next
		}
		if now < at {
			return false, min(next, at)
		}
		return true, now
	}
	if in.Closing || wants && now >= h.deniedUntil {
		return true, now
	}
	if h.owes() {
		// What is owed travels with the next report, and makes one where none is due.
		if now >= h.reviewAt {
			return true, now
		}
		next = min(next, h.reviewAt)
	}
	if held > 0 && h.heard.replied {
		return h.renewal(now, held, next)
	}
	return false, next
}

// renewal is the part of Due that is about a lease nobody lacks anything of: whether to give some
// of it back, to report what was spent, or to have it last longer.
func (h *Holder) renewal(now clock.Instant, held int64, next clock.Instant) (bool, clock.Instant) {
	if h.reviewing && h.excess(held) > 0 {
		return true, now
	}
	if now < h.staleAt && h.isLarge(h.leased) {
		next = min(next, h.staleAt)
	} else if h.isLarge(h.leased - held) {
		overloaded := h.demand.rate()*h.config.Target.Seconds() > h.perTarget()
		if h.reviewing || overloaded { // a bucket that will be empty is worth more than a call in a Target
			return true, now
		}
	}
	if h.demand.seen != h.seenAtReply {
		renewAt := h.deadline.Add(-h.renewBefore())
		if now >= renewAt {
			return true, now
		}
		next = min(next, renewAt)
	}
	return false, min(next, h.reviewAt)
}

// Close ends the holder: what it holds is burnt, nothing more is accepted.
func (h *Holder) Close() {
	h.stage = closed
	h.giveUp()
	h.burn()
	h.burnUnused()
	h.refund = 0
}

// alone reports whether no other process was active on the bucket at the last reply.
func (h *Holder) alone() bool { return h.heard.replied && h.heard.active <= h.policy.weight() }

// TTL is the T in force.
func (h *Holder) TTL() time.Duration { return h.ttl }

// Limits are the limits in force. The slice may not be changed.
func (h *Holder) Limits() []Limit { return h.config.Limits }

// Capacity is the largest n that can ever be granted, as far as is known: the smallest burst of the
// limits in force. For any number of goroutines.
func (h *Holder) Capacity() int64 { return h.Pool.capacity.Load() }

// KnowCapacity says what Capacity is by now.
func (h *Holder) KnowCapacity(n int64) { h.Pool.capacity.Store(n) }

// Conflict reports whether the bucket ever answered with another configuration of the same version:
// then two processes were deployed with different limits, and which of them holds is chance. Raise
// the version.
func (h *Holder) Conflict() bool { return h.conflict }

// Heard is what the last reply said.
func (h *Holder) Heard() Heard { return h.heard.Heard }
