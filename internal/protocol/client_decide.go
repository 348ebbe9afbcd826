package protocol

import (
	"math"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Patience is how long a request is willing to wait.
type Patience int8

const (
	// NoWait takes what is here.
	NoWait Patience = iota
	// OneCall waits for one lease call, at most CallTimeout. It holds no tokens meanwhile, so if it is
	// denied in the end it has cost the others nothing.
	OneCall
	// UpTo is OneCall for what there is: it takes fewer where there are not n, but at least one.
	UpTo
	// InLine collects tokens until it has them all, and is served before all later requests.
	InLine
)

// Verdict is the answer to a request.
type Verdict int8

const (
	VerdictWait         Verdict = iota // not known yet: Enqueue it
	VerdictAdmit                       // it has its tokens
	VerdictDeny                        // the tokens are not there
	VerdictExceedsBurst                // they never will be
	VerdictTooLate                     // they cannot be there by its deadline
	VerdictCancelled                   // Cancel was called
	VerdictClosed                      // Leave or Close was
)

// Decision is the answer to a request.
type Decision struct {
	Verdict    Verdict
	Source     lease.Source
	EarliestAt clock.Instant // of VerdictTooLate: the tokens cannot be there before
	// Of a request that is admitted with tokens of the bucket, for Client.GiveBack: the draw of all of
	// them, and how many came from the pool. Nothing of what a fallback admits can be given back.
	Draw   pool.Draw
	Pooled int64
	Took   int64 // tokens that an admitted request has: n, or fewer with patience UpTo
}

// OK reports whether the request is admitted.
func (d Decision) OK() bool { return d.Verdict == VerdictAdmit }

// ShutUntil is until when requests for one token that do not wait in line are denied, because the
// bucket is known to be empty; 0 where it is not. It is the commonest denial, so it needs no lock.
func (c *Client) ShutUntil() clock.Instant { return clock.Instant(c.shutUntil.Load()) }

// Decide answers a request for n tokens that the pool has refused, and counts it. deadline is that of
// one InLine, Never for none. VerdictWait is followed by Enqueue.
func (c *Client) Decide(now clock.Instant, n int64, p Patience, deadline clock.Instant) Decision {
	d := c.decide(now, n, p, deadline)
	if p == UpTo {
		n = min(n, c.Capacity())
	}
	if d.Verdict != VerdictClosed && d.Verdict != VerdictExceedsBurst {
		c.missed += n
	}
	c.book(n, &d)
	return d
}

// Denied counts the tokens that requests asked for and did not get so far: by Decide, at the end of a
// wait, and by Pool.Miss. A request above the burst counts none.
func (c *Client) Denied() int64 { return c.denied + c.Pool.Missed() }

// book counts as denied what the answer d leaves of a request for n tokens.
func (c *Client) book(n int64, d *Decision) {
	switch d.Verdict {
	case VerdictWait, VerdictClosed, VerdictExceedsBurst:
	case VerdictAdmit:
		c.denied += n - d.Took
	case VerdictCancelled:
		if !c.policy.Shadow { // which counts as shadowed what was denied
			c.denied += n
		}
	default:
		c.denied += n
	}
}

// Undeny takes back that a request for n tokens counts as denied: another key has denied it.
func (c *Client) Undeny(n int64) { c.denied -= n }

func (c *Client) decide(now clock.Instant, n int64, p Patience, deadline clock.Instant) Decision {
	switch {
	case n == 1 && p != InLine && now < c.ShutUntil():
		return Decision{Verdict: VerdictDeny}
	case c.State(now) >= StateLeaving:
		return Decision{Verdict: VerdictClosed}
	case n > c.Capacity() && p != UpTo:
		return Decision{Verdict: VerdictExceedsBurst}
	}
	least := n
	if p == UpTo {
		least, n = 1, min(n, c.Capacity())
	}
	c.hasten(now, least, p)
	c.Expire(now) // a process that was stopped comes here before its timers run
	if p == InLine {
		return c.decideInLine(now, n, deadline)
	}
	if c.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Pool.Drawn(), Pooled: n, Took: n}
	}
	held := c.Pool.Held()
	switch s := c.State(now); {
	case p == UpTo && held > 0 && (s == StateDegraded || s == StateDenied && !c.spares(held+1)) &&
		c.takeFor(held):
		return Decision{Verdict: VerdictAdmit, Draw: c.Pool.Drawn(), Pooled: held, Took: held}
	case s == StateDegraded, s == StateCold && p == NoWait:
		c.Refuse(n)
		if c.shareAwaited() && !c.coldDecides() {
			return Decision{Verdict: VerdictDeny, Source: lease.SourceFallback}
		}
		return c.without(now, least, n, lease.SourceFallback)
	case s == StateDenied && c.queue.inLine == 0 && c.spares(least):
		c.endDelay()  // it was a larger request that the bucket did not have enough for
		c.wake(false) // Refuse may have asked for a call before
	case s == StateDenied:
		c.refused = max(c.refused, n) // asked for when the delay ends
		if n == 1 {
			c.judgeDenial(now) // what was left when the reply came may have been spent
		}
		return c.without(now, least, n, lease.SourceLocal)
	}
	if p == NoWait {
		c.Refuse(n)
		return c.without(now, least, n, lease.SourceLocal)
	}
	return Decision{}
}

// without decides without the store. A denial rests on denied.
func (c *Client) without(now clock.Instant, least, n int64, denied lease.Source) Decision {
	if took := c.takeFallback(now, least, n); took > 0 {
		return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: took}
	}
	return Decision{Verdict: VerdictDeny, Source: denied}
}

func (c *Client) decideInLine(now clock.Instant, n int64, deadline clock.Instant) Decision {
	if c.queue.inLine == 0 && c.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Pool.Drawn(), Pooled: n, Took: n}
	}
	if c.Degraded() || now < c.deniedUntil && c.admitsAll() {
		c.Refuse(n) // a request wants a probe
		if !c.shareAwaited() && c.takeFallback(now, n, n) > 0 {
			return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: n}
		}
	}
	if at := c.earliest(now, c.queue.lackingInLine+n); at > deadline {
		return Decision{Verdict: VerdictTooLate, EarliestAt: at}
	}
	return Decision{}
}

// Enqueue has w wait, for which Decide has just said VerdictWait. Host.Settled tells how that ends.
// The user says when w has waited for long enough, with TimeOut or Cancel.
func (c *Client) Enqueue(now clock.Instant, w *Waiter) {
	c.queue.push(w)
	urgent := true
	if w.inLine() {
		if now < c.deniedUntil && c.spares(c.queue.lackingInLine) {
			c.endDelay() // it was a larger request that the bucket did not have enough for
		}
		if c.queue.inLine == 1 {
			c.collect(w) // what is left in the pool, which is less than all
		}
		urgent = now >= c.deniedUntil
	}
	c.wake(urgent)
}

// hasten shortens the delay after a shortfall for a request that is smaller than what fell short.
func (c *Client) hasten(now clock.Instant, n int64, p Patience) {
	before := c.deniedUntil
	if now >= before || c.Outdated() {
		return
	}
	if p == InLine {
		c.deniedUntil = c.delayFor(c.queue.lackingInLine + n)
	} else if c.queue.inLine == 0 {
		c.deniedUntil = c.delayFor(n)
	}
	if c.deniedUntil < before {
		c.Reopen(now)
		c.wake(false)
	}
}

// wake asks for a Tick where no call is under way; the end of one brings a Tick by itself.
func (c *Client) wake(urgent bool) {
	if !c.calling {
		c.host.Wake(urgent)
	}
}

// Refuse notes a request for n tokens that was refused without waiting, and has a call made for it
// where none is under way: the first since the last call does so for all.
func (c *Client) Refuse(n int64) {
	first := c.refused == 0
	c.refused = max(c.refused, n)
	if first {
		c.wake(false)
	}
}

// judgeDenial decides whether requests for one token are denied in advance: while the bucket is
// known to be empty. It is called after everything that changes what is known.
func (c *Client) judgeDenial(now clock.Instant) {
	until := c.deniedUntil
	if c.queue.inLine == 0 {
		until = c.delayFor(1)
	}
	if now >= until || c.spares(1) || c.admitsAll() {
		until = 0
	}
	c.shut(until)
}

// Reopen is called at the time that Host.Shut named.
func (c *Client) Reopen(now clock.Instant) {
	if c.shutUntil.Load() != 0 {
		c.judgeDenial(now)
	}
}

// shut has requests for one token denied until then; 0 lets them ask again.
func (c *Client) shut(until clock.Instant) {
	was := c.ShutUntil()
	if was == 0 && until == 0 {
		return
	}
	if was == 0 || until == 0 {
		c.Pool.Deny(until != 0)
	}
	c.shutUntil.Store(int64(until)) // after Deny made the stripes, where a request that reads this counts itself
	c.host.Shut(until)
}

// RetryAt is when, after now, it is worth while to ask again for n tokens that were denied at now.
func (c *Client) RetryAt(now clock.Instant, n int64, source lease.Source) clock.Instant {
	if source == lease.SourceFallback {
		if at, ok := c.fallbackAt(now, n); ok {
			return max(at, now.Add(fallbackPause)) // requests in line for the share go first
		}
		return now.Add(c.callTimeout) // by then a call that finds the store well again has its answer
	}
	if now < c.deniedUntil {
		return c.deniedUntil
	}
	return now.Add(max(c.rtt, 1)) // the call that the refusal has started is answered by then
}

// ReadyIn is how long a request for n tokens that begins to wait in line at now is likely to wait, by what
// was heard and without draws of other processes; math.MaxInt64 where nothing is known, or n is above the
// burst.
func (c *Client) ReadyIn(now clock.Instant, n int64) time.Duration {
	if !c.heard.replied || c.Degraded() || c.Outdated() || n > c.Capacity() {
		return math.MaxInt64
	}
	missing := n + c.queue.lackingInLine
	if missing <= c.Pool.Held() {
		return 0
	}
	return c.heard.Outlook(now, missing, c.Pool.Held(), false).RetryAfter
}

// earliest is a time before which a request in line cannot have its tokens, not even if other processes gave
// back all that they held at the last reply. ahead is the tokens that the request and those before it lack.
// It is 0 where no such time is known, or where what is known is older than a T: the next reply will tell.
func (c *Client) earliest(now clock.Instant, ahead int64) clock.Instant {
	if !c.bounded(now) {
		return 0
	}
	return c.earliestFor(now, ahead-c.here())
}

// bounded reports whether what was heard bounds when tokens can be there.
func (c *Client) bounded(now clock.Instant) bool {
	h := &c.heard
	return h.at != 0 && !c.Degraded() && !c.Outdated() && c.resets == 0 && now < h.at.Add(c.TTL())
}

// here is how many tokens this process holds and those on their way back to it.
func (c *Client) here() int64 { return c.Pool.Held() + c.pending() }

// earliestFor is earliest for that many tokens more than here, where it is bounded.
func (c *Client) earliestFor(now clock.Instant, ahead int64) clock.Instant {
	if ahead <= 0 {
		return 0
	}
	at := max(now, c.heard.earliest(ahead))
	if !c.calling && !c.spares(ahead) {
		at = max(at, c.deniedUntil) // no call brings any before
	}
	return at
}

// Degraded reports whether no request waits for the store: the key's node is away, or takes no call
// of this process yet, or the key's own last call failed. A failure after which nothing has asked
// for the next call in time does not count any more.
func (c *Client) Degraded() bool {
	b := c.host.Breaker()
	if c.failures == 0 && b.well() {
		return false
	}
	now := c.host.Now()
	return c.failing(now) || b.Away(now) || !c.calling && b.Holds(now)
}

// Failures returns how many calls of the key have failed in a row though its node was well.
func (c *Client) Failures() int { return c.failures }

// Suspect reports whether the last call failed, of the key or of its node, however long ago, or
// requests do not wait for the store for another reason.
func (c *Client) Suspect() bool {
	return c.failures > 0 || c.host.Breaker().Suspect() || c.Degraded()
}

func (c *Client) failing(now clock.Instant) bool {
	return c.failures > 0 && (c.calling || now < c.probeAt.Add(silence(c.config.Target, c.TTL())))
}

// failed puts off the next call of a key whose call failed though its node is well, with full jitter. Where
// the node is away its Breaker says which key calls next.
func (c *Client) failed(now clock.Instant) {
	if c.host.Breaker().Away(now) {
		c.failures = 0
		return
	}
	c.failures++
	c.probeAt = now.Add(time.Duration(c.next() % uint64(backoff(c.failures, c.config.Target, c.heard.ttl))))
}

// takeFallback decides on a request for n tokens, or for fewer but not below least, without the store: by
// Policy.Fallback while degraded, by Policy.ColdStart before the first reply, and always where the limits in
// force are enough to say. The next call that succeeds reports what it admitted as debt, but for what is
// unlimited. It returns how many tokens were admitted.
func (c *Client) takeFallback(now clock.Instant, least, n int64) (took int64) {
	switch {
	case c.stage == closed || c.admitsNone():
	case c.admitsAll():
		return n
	case c.coldDecides():
		if c.policy.ColdStart == lease.ColdStartAllow {
			took = n
		}
	case !c.Degraded():
	case c.policy.Fallback == lease.FallbackAllowAll:
		took = n
	case c.policy.Fallback == lease.FallbackLocalShare:
		took = c.takeShare(now, least, n)
	}
	if took > 0 {
		c.owe(now, took, c.dates(now))
	}
	return took
}

// dates returns for how long the limits count what is used now.
func (c *Client) dates(now clock.Instant) dating {
	return usedBy(now, c.host.Breaker().Server(now), c.limitsNow())
}

// coldDecides reports whether Policy.ColdStart decides without the store. It is for a process that knows
// nothing. A key that is new in an outage of a node that was heard of has Policy.Fallback, like the others.
func (c *Client) coldDecides() bool {
	return !c.heard.replied && !(c.Degraded() && c.host.Breaker().Active() > 0)
}

// fallbackAt is when the local share can serve n tokens, for a request that takeFallback refused at
// now. It is false where waiting does not help: with another fallback, before the first reply, or
// for more than the share ever holds.
func (c *Client) fallbackAt(now clock.Instant, n int64) (clock.Instant, bool) {
	if c.fallback == nil || !c.Degraded() || n > c.shareMost() || c.admitsNone() {
		return Never, false
	}
	return c.shareAt(now, n), true
}

// shareAwaited reports whether a request in line waits for the local share, which serves it before later ones.
// A request for more than the share ever holds waits for the store instead, and holds up no other.
func (c *Client) shareAwaited() bool {
	if c.queue.inLine == 0 || c.fallback == nil {
		return false
	}
	most := c.shareMost()
	for w := c.queue.head; w != nil; w = w.next {
		if w.inLine() && w.N <= most {
			return true
		}
	}
	return false
}

func (c *Client) admitsNone() bool { return SwitchOf(c.limitsNow()) == SwitchBlocked }

func (c *Client) admitsAll() bool { return SwitchOf(c.limitsNow()) == SwitchUnlimited }

// activeFor is for how many TTLs the largest active weight counts. A process that calls about once in
// a TTL is not counted now and then, and the parts would add up to more than 1.
const activeFor = 10

// active returns the weights, as last heard, of all that share the key, or else of any on its node.
func (c *Client) active() int64 {
	byCalls := c.heard.byCalls(c.weight)
	active := max(c.heard.active, c.mostActive, c.weight, byCalls)
	if byCalls == 0 {
		active = max(active, c.host.Breaker().Active())
	}
	return active
}

func (c *Client) ownPart() part { return part{c.limitsNow(), c.weight, c.active(), c.policy.Headroom} }

// seedShare brings the local share up to date with the limits in force and the last reply. A reply
// only lowers it: what was spent in an earlier outage stays spent.
func (c *Client) seedShare(now clock.Instant) *seeded {
	s, h, limits := c.fallback, &c.heard, c.limitsNow()
	if s == nil {
		s = new(seeded)
		c.fallback = s
	}
	known := slices.Equal(limits, h.limits) && (h.at > 0 || h.of == fingerprint(limits))
	if !slices.Equal(limits, s.limits) {
		s.follow(now, c.ownPart(), h.replied && !known || !h.replied && s.limits != nil || c.config.StartEmpty)
	}
	if at := max(h.at, h.executed); h.replied && known && s.reply != at {
		s.reply = at
		for k, l := range limits {
			if l.Windowed() {
				c.seedWindow(s, k, l)
			} else if empty := c.heardEmptyAt(now, k, l); s.emptyAt[k] == 0 || empty > s.emptyAt[k] {
				s.emptyAt[k] = empty
			}
		}
	}
	return s
}

// heardEmptyAt returns when the token bucket k would have been empty by what was heard of it, at
// now. Until every lease of that time has ended, it has no more than the others do not hold.
func (c *Client) heardEmptyAt(now clock.Instant, k int, l lease.Limit) clock.Instant {
	h, burst := &c.heard, c.burst(l)
	if h.at == 0 {
		return h.executed.Add(-worth(l, h.leftOf(k, burst)))
	}
	at, n := h.at, h.levels[k]
	if h.next[k] > 0 {
		at, n = at.Add(h.next[k]), n+1
	}
	empty := at.Add(-worth(l, n))
	if now < h.at.Add(h.leaseMax) {
		empty = max(empty, now.Add(-worth(l, max(0, burst+c.config.Overcommit-h.others))))
	}
	return empty
}

// seedWindow charges s with all that this process's part of what window k has left does not cover, at the
// reply: it waits for a whole window. For a calendar it waits until the boundary.
func (c *Client) seedWindow(s *seeded, k int, l lease.Limit) {
	h, p, replied := &c.heard, c.ownPart(), c.heard.at
	left := max(0, h.levels[k])
	if h.at == 0 {
		replied, left = h.executed, h.leftOf(k, c.burst(l))
	}
	w, next := s.window(replied, k, p), h.next[k]
	if h.at == 0 {
		next = 0
	}
	w.charge(kindOf(l).usedAt(l, int64(replied)/1000, next), p.burst(l)-p.of(left)-w.sum)
}

// takeShare takes up to n tokens from the local share. It takes none where there are fewer than least.
func (c *Client) takeShare(now clock.Instant, least, n int64) int64 {
	if c.shareMost() < max(1, least) {
		return 0
	}
	return c.seedShare(now).take(now, c.ownPart(), least, n)
}

// shareAt returns when the local share has n tokens, of which it can have as many.
func (c *Client) shareAt(now clock.Instant, n int64) (at clock.Instant) {
	s, p := c.seedShare(now), c.ownPart()
	for k := range s.limits {
		at = max(at, s.at(now, k, p, n))
	}
	return at
}

func (c *Client) shareMost() int64 { return c.ownPart().most() }

// forgive drops the debt that the local share has made good by refilling: the bucket has refilled, too. It
// does so only where the share has most of its burst. A share that is used up belongs to a process that wants
// more than its part, and what the debt takes too much makes up for what others have not reported yet.
func (c *Client) forgive(now clock.Instant) {
	cold := !c.heard.replied && c.policy.ColdStart == lease.ColdStartAllow // what that admitted is in no share
	if len(c.debt) == 0 || c.fallback == nil || cold || c.policy.Fallback != lease.FallbackLocalShare {
		return
	}
	s, p := c.seedShare(now), c.ownPart()
	missing := int64(0)
	for k, l := range s.limits {
		burst := p.burst(l)
		lacks := burst - s.has(now, k, p)
		if 2*lacks > burst {
			return
		}
		missing = max(missing, lacks)
	}
	c.debt.trim(missing)
}
