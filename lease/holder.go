package lease

import (
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Holder is the control plane of one key in one process: when to call the bucket, how much to ask for, when
// to deny without a call. It is a pure state machine: time and randomness come in as arguments, the same
// inputs give the same outputs, and it does no I/O. hybrid runs it behind a lock, the simulator without one.
//
// A user of Holder serves requests from Pool, and calls Poll whenever a Take reports low or fails, when
// requests begin to wait, and at the time that the last Poll returned. Where Poll says so, it opens a call
// with Build, sends it, and brings the answer to Accept or Fail.
type Holder struct {
	Holding

	policy *Policy       // not its own
	config Config        // in force, with the TTL that it proposes
	ttl    time.Duration // T in force
	least  time.Duration // TTL to propose on a fast network
	rtt    time.Duration

	proposed int64 // the version that it proposed at first

	demand      demand
	retried     int64 // attempts counted twice: failed as a take, then served
	seenAtReply int64 // attempts at the last reply
	replied     bool
	sending     bool

	deniedUntil clock.Instant // after a shortfall: deny locally, no call
	giveBackAt  clock.Instant
	low         bool  // a prefetch is wanted
	overtaken   bool  // the bucket was changed while a call was under way, whose reply may not know
	outdated    bool  // the bucket was changed after it executed the last call
	stales      int   // times in a row that a call was ErrStale
	missedAt    int64 // Pool.Missed when the last call was built: more than that means demand

	level  int64 // last heard, of the tightest limit
	active int64
	// shortOf tokens cannot be in the bucket before shortUntil; 0 where it had what was needed.
	shortOf    int64
	shortUntil clock.Instant

	others    int64 // tokens that other processes hold, as last heard
	contended bool
	leased    int64 // held after the last reply
	// From staleAt on the bucket is not refilled unless it hears what was spent since the last
	// reply.
	staleAt clock.Instant

	breaker  breaker
	fallback *Bucket
	random   uint64
	conflict bool
	closed   bool
}

// HolderConfig is what NewHolder needs.
type HolderConfig struct {
	ID          string // the instance id; differs between processes
	Limits      []Limit
	Policy      Policy
	Version     int64
	CallTimeout time.Duration // 0 means DefaultCallTimeout
	Seed        uint64        // of the jitter
	// Stripes is the number of Ps (runtime.GOMAXPROCS): where several take at once the Pool serves each from a part of its
	// own. Which take reports low then depends on the scheduler, so a simulation leaves it 0.
	Stripes int
}

// NewHolder returns a cold holder. An error names every violation.
func NewHolder(now clock.Instant, c HolderConfig) (*Holder, error) {
	proposed := c.Policy.ConfigFor(c.Limits, c.Version, c.CallTimeout)
	if err := errors.Join(c.Policy.Validate(), proposed.Validate()); err != nil {
		return nil, err
	}
	h := new(Holder)
	h.Start(now, c, &c.Policy, proposed)
	return h, nil
}

// Start is NewHolder for a Holder that is part of something larger, with a configuration to propose that was validated
// before and stands in place of c's limits, version and timeout, and a policy that may be shared with others.
func (h *Holder) Start(now clock.Instant, c HolderConfig, policy *Policy, proposed Config) {
	h.config = proposed
	h.proposed = proposed.Version.Deploy
	h.init(c.ID, c.Stripes)
	h.policy = policy
	h.random = c.Seed
	h.demand.at = now
	h.rtt = time.Millisecond
	h.ttl, h.least = h.config.TTL, h.config.TTL
	h.breaker.longest = h.ttl
}

// Input is what a Holder cannot know by itself.
type Input struct {
	Waiting int64         // tokens that queued requests still lack
	Need    int64         // tokens that the first queued request still lacks
	Refused int64         // the largest n that was refused without queueing since the last call
	RTT     time.Duration // 99th percentile of the key's node; 0 keeps the last one
	Closing bool          // give everything back
}

// Never is the time that Poll returns where only an event can bring news.
const Never = clock.Instant(1<<63 - 1)

// Poll says whether a call is due at time now, and if not, when to ask again at the latest.
func (h *Holder) Poll(now clock.Instant, in Input) (call bool, next clock.Instant) {
	if h.closed {
		return false, Never
	}
	h.Expire(now) // whatever is under way: a call that hangs does not keep a lease alive
	held := h.Pool.Held()
	if h.sending {
		if held > 0 {
			return false, h.deadline
		}
		return false, Never
	}
	h.observe(now)
	// What was refused and did not stay is a reason to lease ahead, which a slow key does not. Before the first reply
	// whoever was refused is about to be counted in Input: a call made before would not ask for them.
	wanted := in.Waiting > 0 || in.Refused > 0 || h.low || h.replied && held == 0 && h.Pool.Missed() > h.missedAt && !h.slow()
	next = Never
	if held > 0 {
		next = h.deadline
	}
	if now < h.deniedUntil {
		next = min(next, h.deniedUntil)
	}
	if at, open := h.breaker.until(); open {
		// One probe at a time, and only where somebody wants tokens, owes some, or waits for a verdict on
		// what was given back; once a retry is not worth sending there is no verdict to wait for.
		if h.isOpen && h.Resend(now) == nil {
			h.GiveUp()
		}
		if !wanted && !in.Closing && !h.isOpen && !h.owes() {
			return false, next
		}
		if now < at {
			return false, min(next, at)
		}
		return true, now
	}
	if wanted || in.Closing {
		if now >= h.deniedUntil || in.Closing {
			return true, now
		}
	}
	if h.owes() {
		// What is owed travels with the next report, and makes one where none is due.
		if now >= h.giveBackAt {
			return true, now
		}
		next = min(next, h.giveBackAt)
	}
	if held > 0 && h.replied {
		atGiveBack := now >= h.giveBackAt
		if atGiveBack {
			if h.excess(held) > 0 {
				return true, now
			}
			h.giveBackAt = now.Add(h.config.Target)
		}
		if now < h.staleAt && h.isLarge(h.leased) {
			next = min(next, h.staleAt)
		} else if h.isLarge(h.leased-held) && (atGiveBack || h.demand.rate()*h.config.Target.Seconds() > h.perTarget()) {
			return true, now // sooner than once in a Target only where the bucket is going to be empty
		}
		renewAt := h.deadline.Add(-h.renewBefore())
		if h.demand.seen != h.seenAtReply {
			if now >= renewAt {
				return true, now
			}
			next = min(next, renewAt)
		}
		next = min(next, h.giveBackAt)
	}
	return false, next
}

// Build opens the call that Poll found due: a retry of the open one while that is worth sending, otherwise a
// new one under seq, which must be above all earlier ones. The request is valid until the next Build.
func (h *Holder) Build(now clock.Instant, seq int64, in Input) *Request {
	h.sending = true
	if in.RTT > 0 {
		h.rtt = in.RTT
		h.stretch()
	}
	if r := h.Resend(now); r != nil {
		return r
	}
	h.Expire(now)
	h.observe(now)
	ask := Ask{Config: h.config, Weight: h.policy.weight()}
	if in.Closing {
		ask.Return = func(held int64) int64 { return held }
	} else {
		ask.Want, ask.Need, ask.Waiting = h.size(h.Pool.Held(), in)
		if in.Waiting == 0 && in.Refused == 0 && !h.low && h.replied && now >= h.giveBackAt && h.excess(h.Pool.Held()) > 0 {
			ask.Return = h.excess
			ask.Want, ask.Need = 0, 0
		}
	}
	if h.outdated { // a lease that does not fit lowered limits would be void, and the ledger full of it for a T
		ask.Return = func(held int64) int64 { return held }
	}
	h.low = false
	h.missedAt = h.Pool.Missed()
	return h.Open(now, seq, ask)
}

// Accept takes in the reply to the open call; see Holding.Accept.
func (h *Holder) Accept(now clock.Instant, g *Grant, reserve int64) (Accepted, bool) {
	reported := h.open.Remaining
	got, ok := h.Holding.Accept(now, g, reserve)
	if !ok {
		return got, false
	}
	h.sending = false
	h.replied = true
	h.breaker.succeed()
	h.retried += got.Waited + got.Reserved
	h.observe(now)
	h.seenAtReply = h.demand.seen

	h.follow(g.Config)
	h.level = g.Levels[0]
	for k := range g.Config.Limits {
		h.level = min(h.level, g.Levels[k])
	}
	h.active = g.ActiveWeight
	h.others = max(0, g.Ledger-reported-(g.Granted-g.Waited))
	h.stales = 0
	h.shortOf, h.shortUntil = 0, 0
	if g.RetryAfter > 0 {
		h.shortOf, h.shortUntil = max(1, h.open.Need), h.firstSent.Add(g.RetryAfter)
	}
	h.contended = g.Contended
	h.leased = h.Pool.Held()
	h.staleAt = Never
	for k, l := range g.Config.Limits {
		room := float64(l.Capacity() + g.Config.Overcommit - g.Levels[k] - g.Ledger)
		full := time.Duration(min(room/l.Rate(), h.config.TTL.Seconds()) * 1e9)
		h.staleAt = min(h.staleAt, h.firstSent.Add(max(full, h.config.Target/2)))
	}
	h.deniedUntil = 0
	if g.Short && g.Delay > 0 {
		// Limits that are changed or reset elsewhere are to be followed within T, and a holder that the bucket still
		// knows may give back what was drawn for a request that has gone.
		longest := h.ttl / 4 * 3
		delay := min(g.Delay, longest)
		if h.active > h.policy.weight() {
			// Whoever is alone meets nobody. A tenth of a long delay would leave the next token of
			// a small burst lying about.
			delay = min(delay+h.jitter(min(delay, h.config.Target/2)/10), longest)
		}
		// The next call takes as long to the bucket as this one did, so it may be sent so much
		// later than this one was, and not later than the reply came: of a small burst a round trip
		// of refill would be lost with each token.
		h.deniedUntil = max(now+1, h.firstSent.Add(delay))
	}
	h.outdated = h.overtaken
	if h.overtaken {
		h.overtaken, h.deniedUntil = false, 0
	}
	h.giveBackAt = now.Add(h.config.Target)
	h.arm()
	return got, true
}

// Fail reports that the call in flight brought no grant. The open call stays open, so that a retry can carry
// the same seq and a late reply can still be accepted.
func (h *Holder) Fail(now clock.Instant, err error) {
	h.sending = false
	if errors.Is(err, ErrStale) {
		// The store is well, and its user goes on under another id (Rename); only a second time is it a failure.
		h.GiveUp()
		if h.stales++; h.stales == 1 {
			return
		}
	}
	h.breaker.fail(now, h.config.Target, h.next())
}

// Low tells the holder that a Take reported low.
func (h *Holder) Low() { h.low = true }

// Served corrects the count of attempts: n tokens that a failed Take counted were then taken from the pool.
func (h *Holder) Served(n int64) { h.retried += n }

// Retry ends the delay after a shortfall.
func (h *Holder) Retry() { h.deniedUntil = 0 }

// Hasten shortens the delay after a shortfall for a request of n tokens that is smaller than the one that fell short: to
// the time at which a bucket that nobody else draws from has them, and no less than half a Target after the reply.
func (h *Holder) Hasten(n int64) {
	if !h.Alone() || h.deniedUntil == 0 || h.shortOf == 0 || n-h.Pool.Held() >= h.shortOf {
		return
	}
	at := h.firstSent.Add(h.config.Target / 2)
	for _, l := range h.config.Limits {
		missing := float64(max(0, n-h.Pool.Held()-h.level))
		at = max(at, h.firstSent.Add(time.Duration(missing/l.Rate()*1e9)))
	}
	h.deniedUntil = min(h.deniedUntil, at)
}

// Refresh says that the bucket was changed, so that what was last heard of it is outdated: it ends the delay after a
// shortfall, and makes a call due where something is held.
func (h *Holder) Refresh() {
	h.Retry()
	h.outdated, h.overtaken = true, h.sending
	h.low = h.low || h.Pool.Held() > 0
}

// Close ends the holder: what it holds is burnt, nothing more is accepted.
func (h *Holder) Close() {
	h.closed = true
	h.GiveUp()
	h.burn()
	h.burnUnused()
	h.refund = 0
}

// observe feeds the demand estimate. A request that the pool refused and that was served later is one attempt.
func (h *Holder) observe(now clock.Instant) {
	h.demand.observe(now, h.Account().Admitted+h.Pool.Missed()-h.retried, h.config.Target)
}

// follow adopts the configuration in force, so that it survives the loss of the bucket.
func (h *Holder) follow(c Config) {
	h.ttl = c.TTL
	h.breaker.longest = h.ttl
	if c.Version.After(h.config.Version) {
		h.least = max(c.TTL, 2*c.Target)
	}
	if !c.Equal(h.config) {
		h.conflict = h.conflict || c.Version == h.config.Version
		c.TTL = max(h.least, 2*c.Target)
		h.config = c
	}
}

// jitter is a time in [0, span].
func (h *Holder) jitter(span time.Duration) time.Duration {
	if span <= 0 {
		return 0
	}
	return time.Duration(h.next() % uint64(span+1))
}

// next is splitmix64 (Steele, Lea, Flood 2014).
func (h *Holder) next() uint64 {
	h.random += 0x9e3779b97f4a7c15
	z := h.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
