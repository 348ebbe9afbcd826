package protocol

import (
	"cmp"
	"math"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Decide answers a request that the pool has refused, and counts it. VerdictWait is followed by Enqueue.
func (c *Client) Decide(now clock.Instant, a Ask) Decision {
	d := c.decide(now, a)
	a.N = a.Most(c.Capacity())
	if d.Verdict != VerdictClosed && d.Verdict != VerdictExceedsBurst {
		c.sizer.missed += a.N
	}
	c.Denials.settled(a, &d)
	return d
}

func (c *Client) decide(now clock.Instant, a Ask) Decision {
	n, p := a.N, a.Patience
	switch {
	case n == 1 && p != InLine && now < c.Denials.ShutUntil():
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
	c.Holder.Expire(now) // a process that was stopped comes here before its timers run
	if p == InLine {
		return c.decideInLine(now, n, a.Deadline)
	}
	if c.Line.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Holder.Pool.Drawn(), Pooled: n, Took: n}
	}
	held := c.Holder.Pool.Held()
	switch s := c.State(now); {
	case p == UpTo && held > 0 && (s == StateDegraded || s == StateDenied && !c.Denials.spares(held+1)) &&
		c.Line.takeFor(held):
		return Decision{Verdict: VerdictAdmit, Draw: c.Holder.Pool.Drawn(), Pooled: held, Took: held}
	case s == StateDegraded, s == StateCold && p == NoWait:
		c.Refuse(n)
		if c.shareAwaited() && !c.fallback.coldDecides() {
			return Decision{Verdict: VerdictDeny, Source: lease.SourceFallback}
		}
		return c.without(now, least, n, lease.SourceFallback)
	case s == StateDenied && c.Line.inLine == 0 && c.Denials.spares(least):
		c.Denials.end() // it was a larger request that the bucket did not have enough for
		c.wake(false)   // Refuse may have asked for a call before
	case s == StateDenied:
		c.Line.refused = max(c.Line.refused, n) // asked for when the delay ends
		if n == 1 {
			c.Denials.judge(now, c.Line.inLine) // what was left when the reply came may have been spent
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
	if took := c.fallback.take(now, least, n); took > 0 {
		return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: took}
	}
	return Decision{Verdict: VerdictDeny, Source: denied}
}

func (c *Client) decideInLine(now clock.Instant, n int64, deadline clock.Instant) Decision {
	if c.Line.inLine == 0 && c.Line.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Holder.Pool.Drawn(), Pooled: n, Took: n}
	}
	if c.Failures.Degraded() || now < c.Denials.until && c.settings.admitsAll() {
		c.Refuse(n) // a request wants a probe
		if !c.shareAwaited() && c.fallback.take(now, n, n) > 0 {
			return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: n}
		}
	}
	if at := c.earliest(now, c.Line.lackingInLine+n); at > deadline {
		return Decision{Verdict: VerdictTooLate, EarliestAt: at}
	}
	return Decision{}
}

// hasten shortens the delay after a shortfall for a request that is smaller than what fell short.
func (c *Client) hasten(now clock.Instant, n int64, p Patience) {
	before := c.Denials.until
	if now >= before || c.settings.outdated() {
		return
	}
	if p == InLine {
		c.Denials.until = c.Denials.delayFor(c.Line.lackingInLine + n)
	} else if c.Line.inLine == 0 {
		c.Denials.until = c.Denials.delayFor(n)
	}
	if c.Denials.until < before {
		c.Reopen(now)
		c.wake(false)
	}
}

// wake asks for a Tick where no call is under way; the end of one brings a Tick by itself.
func (c *Client) wake(urgent bool) {
	if !c.Holder.calling {
		c.settings.host.Wake(urgent)
	}
}

// Refuse notes a request for n tokens that was refused without waiting, and has a call made for it
// where none is under way: the first since the last call does so for all.
func (c *Client) Refuse(n int64) {
	first := c.Line.refused == 0
	c.Line.refused = max(c.Line.refused, n)
	if first {
		c.wake(false)
	}
}

// Reopen is called at the time that Host.Shut named.
func (c *Client) Reopen(now clock.Instant) {
	if c.Denials.shutUntil.Load() != 0 {
		c.Denials.judge(now, c.Line.inLine)
	}
}

// RetryAt is when, after now, it is worth while to ask again for n tokens that were denied at now.
func (c *Client) RetryAt(now clock.Instant, n int64, source lease.Source) clock.Instant {
	if source == lease.SourceFallback {
		if at, ok := c.fallback.at(now, n); ok {
			return max(at, now.Add(fallbackPause)) // requests in line for the share go first
		}
		return now.Add(c.settings.callTimeout) // by then a call that finds the store well again has its answer
	}
	if now < c.Denials.until {
		return c.Denials.until
	}
	return now.Add(max(c.settings.rtt, 1)) // the call that the refusal has started is answered by then
}

// ReadyIn is how long a request for n tokens that begins to wait in line at now is likely to wait, by what
// was heard and without draws of other processes; math.MaxInt64 where nothing is known, or n is above the
// burst.
func (c *Client) ReadyIn(now clock.Instant, n int64) time.Duration {
	if !c.Holder.heard.replied || c.Failures.Degraded() || c.settings.outdated() || n > c.Capacity() {
		return math.MaxInt64
	}
	missing := n + c.Line.lackingInLine
	if missing <= c.Holder.Pool.Held() {
		return 0
	}
	return c.Holder.heard.Outlook(now, missing, c.Holder.Pool.Held(), false).RetryAfter
}

// earliest is a time before which a request in line cannot have its tokens, not even if other processes gave
// back all that they held at the last reply. ahead is the tokens that the request and those before it lack.
// It is 0 where no such time is known, or where what is known is older than a T: the next reply will tell.
func (c *Client) earliest(now clock.Instant, ahead int64) clock.Instant {
	if !c.bounded(now) {
		return 0
	}
	return c.earliestFor(now, ahead-c.Holder.here())
}

// bounded reports whether what was heard bounds when tokens can be there.
func (c *Client) bounded(now clock.Instant) bool {
	h := &c.Holder.heard
	return h.at != 0 && !c.Failures.Degraded() && !c.Outdated() && c.resets == 0 && now < h.at.Add(h.ttl)
}

// earliestFor is earliest for that many tokens more than here, where it is bounded.
func (c *Client) earliestFor(now clock.Instant, ahead int64) clock.Instant {
	if ahead <= 0 {
		return 0
	}
	at := max(now, c.Holder.heard.earliest(ahead))
	if !c.Holder.calling && !c.Denials.spares(ahead) {
		at = max(at, c.Denials.until) // no call brings any before
	}
	return at
}

// Enqueue has w wait, for which Decide has just said VerdictWait. Host.Settled tells how that ends.
// The user says when w has waited for long enough, with TimeOut or Cancel.
func (c *Client) Enqueue(now clock.Instant, w *Waiter) {
	c.Line.push(w)
	urgent := true
	if w.inLine() {
		if now < c.Denials.until && c.Denials.spares(c.Line.lackingInLine) {
			c.Denials.end() // it was a larger request that the bucket did not have enough for
		}
		if c.Line.inLine == 1 {
			c.Line.collect(w) // what is left in the pool, which is less than all
		}
		urgent = now >= c.Denials.until
	}
	c.wake(urgent)
}

// Serve hands out the tokens of an accepted reply, and ends the waits that it shows to be hopeless.
func (c *Client) Serve(now clock.Instant, got Accepted) {
	c.Line.distribute(now, got)
	c.turnAway(now)
}

// turnAway ends, after a reply, the waits that are hopeless (9.7).
func (c *Client) turnAway(now clock.Instant) {
	if c.settings.outdated() || c.resets > 0 {
		return // the next reply tells
	}
	seq := c.Holder.open.Seq // of the call that was answered
	ahead := -c.Holder.here()
	capacity, denies, bounded := c.Capacity(), now < c.Denials.until, c.bounded(now)
	admitsAll := denies && c.settings.admitsAll()
	last := c.earliestFor(now, c.Line.lackingInLine+ahead)
	for w := c.Line.head; w != nil; {
		next := w.next
		switch {
		case w.N > capacity && w.Patience != UpTo:
			c.Line.settle(w, Decision{Verdict: VerdictExceedsBurst})
		case admitsAll:
			c.settleFallback(now, w)
		case w.inLine():
			ahead += w.lacks()
			if !bounded || last <= w.Deadline || w.lacks() == 0 {
				break
			}
			if at := c.earliestFor(now, ahead); at > w.Deadline {
				ahead += c.Holder.here() - w.lacks()
				c.Line.settle(w, Decision{Verdict: VerdictTooLate, EarliestAt: at})
				ahead -= c.Holder.here() // with what it had collected
			}
		case w.asked != seq && c.Line.inLine == 0 && c.Denials.spares(w.least()):
			// It came during a call for a larger one. askAgain makes another call.
		case denies:
			c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceStore})
		}
		w = next
	}
	c.Line.serveFromPool() // with the tokens that ended waits had collected
	c.askAgain(now)
}

// askAgain ends the delay after a shortfall if that was for a larger request, which has left, and
// the bucket is known to have enough for the next one.
func (c *Client) askAgain(now clock.Instant) {
	if w := c.Line.head; w != nil && now < c.Denials.until && c.Denials.spares(w.least()) {
		c.Denials.end()
		c.settings.host.Wake(true)
	}
}

// shareAwaited reports whether a request in line waits for the local share, which serves it before later
// ones. A request for more than the share ever holds waits for the store instead, and holds up no other.
func (c *Client) shareAwaited() bool {
	if c.Line.inLine == 0 || c.fallback.seeded == nil {
		return false
	}
	most := c.fallback.most()
	for w := c.Line.head; w != nil; w = w.next {
		if w.inLine() && w.N <= most {
			return true
		}
	}
	return false
}

// serveWithout decides waiting requests without the store, first in first out. A request in line that is not
// served waits on: for the local share, which again says when to look at, or for the store.
func (c *Client) serveWithout(now clock.Instant) (again clock.Instant) {
	again = Never
	blocked := false // by one in line that the local share has too little for
	for w := c.Line.head; w != nil; {
		next := w.next
		if w.inLine() && !blocked {
			c.Line.collect(w) // what the one before gave back when the fallback served it
		}
		if !blocked && w.lacks() == 0 {
			c.Line.settle(w, Decision{Verdict: VerdictAdmit})
		} else if !blocked && (c.Line.serveUpTo(w, lease.SourceLocal) || c.settleFallback(now, w)) {
			// it is served
		} else if !w.inLine() {
			c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
		} else if at, ok := c.fallback.at(now, w.N); ok && !blocked {
			// Not at once, or a refusal for any other reason would be repeated without end.
			blocked, again = true, max(at, now.Add(fallbackPause))
		}
		alike := c.Line.lacking == c.Line.lackingInLine // all the others are in line
		if alike && w.waiting && (blocked || c.fallback.seeded == nil) && c.Holder.Pool.Held() == 0 {
			return again // they get nothing, either, and there may be many
		}
		w = next
	}
	return again
}

func (c *Client) settleFallback(now clock.Instant, w *Waiter) bool {
	least := w.N
	if w.Patience == UpTo {
		least = 1
	}
	took := c.fallback.take(now, least, w.N)
	if took > 0 {
		c.Line.settle(w, Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: took})
	}
	return took > 0
}

// TimeOut ends the wait of a request that waits for one call, after CallTimeout, unless it has
// ended. Whether it is admitted is up to Policy.Fallback.
func (c *Client) TimeOut(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	if !c.Line.serveUpTo(w, lease.SourceLocal) && !c.settleFallback(now, w) {
		c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
	}
	if c.Holder.Pool.Held() > 0 { // with none it would look at all of many requests for each that times out
		c.Line.serveFromPool()
	}
	c.settings.host.Wake(false) // there may be something to give back now
}

// Cancel ends the wait of a request whose user does not wait any more, unless it has ended.
func (c *Client) Cancel(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	c.Line.settle(w, Decision{Verdict: VerdictCancelled})
	c.Line.serveFromPool()
	c.askAgain(now)
	c.settings.host.Wake(false) // there may be something to give back now
}

// GiveBack gives back n tokens of draw d with which a request was admitted, as if it had never been
// asked: by now they are worth what was not refilled since, or nothing where the bucket is another
// one. Decision says d and pooled, the part that may go back to the pool; of tokens that the user
// took from Pool itself that is all of them, with the Draw that Pool.Drawn gave before. After Rest
// the next Client of the key takes them, with a pooled of 0.
//
// It is false for a Client that is closed, which counts them as admitted: they are burnt.
func (c *Client) GiveBack(now clock.Instant, n, pooled int64, d pool.Draw) bool {
	if c.stage == closed {
		return false
	}
	c.Holder.sendBack(n-pooled, d)
	c.Holder.putBack(now, pooled, d)
	c.Line.serveFromPool()
	c.askAgain(now)
	c.wake(false)
	return true
}

// Charge has the bucket take n tokens more than this process was granted, or as many as Policy.MaxOvershoot
// allows one request, now or when it has them: a request was admitted for fewer than it has then used. It
// returns how many that are. A Client that is closed before the next call has been answered forgets them.
func (c *Client) Charge(now clock.Instant, n int64) (charged int64) {
	burst := int64(exact.MaxUnits)
	for _, l := range c.settings.limitsNow() {
		burst = min(burst, l.Capacity())
	}
	bursts := cmp.Or(c.settings.policy.MaxOvershoot, defaultOvershoot)
	if burst <= lease.WaitingMax/bursts {
		n = min(n, burst*bursts)
	}
	c.Holder.charges(now, n, c.fallback.dates(now))
	return n
}

// defaultOvershoot is Policy.MaxOvershoot's default: far beyond any estimate, paid in ten bursts' time.
const defaultOvershoot = 10
