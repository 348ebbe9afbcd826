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

// Decide answers a request that the pool has refused. After VerdictWait the caller calls Enqueue.
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
	case n == 1 && p != InLine && now < c.Denials.DeniesOneUntil():
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
	c.shortenDelay(now, least, p)
	c.Holder.Expire(now) // the timers of a process that was stopped may not have run yet
	if p == InLine {
		return c.decideInLine(now, n, a.Deadline)
	}
	if c.Line.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Holder.Pool.Drawn(), Pooled: n, Took: n}
	}
	held := c.Holder.Pool.Held()
	switch s := c.State(now); {
	case p == UpTo && held > 0 && (s == StateDegraded || s == StateDenied && !c.Denials.canServe(held+1)) &&
		c.Line.takeFor(held):
		return Decision{Verdict: VerdictAdmit, Draw: c.Holder.Pool.Drawn(), Pooled: held, Took: held}
	case s == StateDegraded, s == StateCold && p == NoWait:
		c.Refuse(n)
		if c.shareAwaited() && !c.fallback.coldDecides() {
			return Decision{Verdict: VerdictDeny, Source: lease.SourceFallback}
		}
		return c.without(now, least, n, lease.SourceFallback)
	case s == StateDenied && c.Line.inLine == 0 && c.Denials.canServe(least):
		c.Denials.end() // only a larger request fell short
		c.wake(false)   // Refuse wakes the host only once between two calls
	case s == StateDenied:
		c.Line.refused = max(c.Line.refused, n) // the call after the delay asks for these tokens
		if n == 1 {
			c.Denials.judge(now, c.Line.inLine) // tokens of the last reply may have been spent since
		}
		return c.without(now, least, n, lease.SourceLocal)
	}
	if p == NoWait {
		c.Refuse(n)
		return c.without(now, least, n, lease.SourceLocal)
	}
	return Decision{}
}

// without decides a request without a call. denied is the Source of a denial.
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
		c.Refuse(n) // a refused request makes a call due
		if !c.shareAwaited() && c.fallback.take(now, n, n) > 0 {
			return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: n}
		}
	}
	if at := c.earliest(now, c.Line.lackingInLine+n-c.Holder.here()); c.bounded(now) && at > deadline {
		return Decision{Verdict: VerdictTooLate, EarliestAt: at}
	}
	return Decision{}
}

// shortenDelay shortens the delay after a shortfall for a request that is smaller than the shortfall (8.11).
func (c *Client) shortenDelay(now clock.Instant, n int64, p Patience) {
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

// wake asks the host for a Tick, unless the end of a call will cause a Tick.
func (c *Client) wake(urgent bool) {
	if !c.Holder.calling {
		c.settings.host.Wake(urgent)
	}
}

// Refuse records a request for n tokens that was refused without waiting, which makes a call due.
func (c *Client) Refuse(n int64) {
	first := c.Line.refused == 0
	c.Line.refused = max(c.Line.refused, n)
	if first {
		c.wake(false)
	}
}

// Reopen checks, at the time that Host.DeniesOne named, whether requests for one token are still denied.
func (c *Client) Reopen(now clock.Instant) {
	if c.Denials.deniesOneUntil.Load() != 0 {
		c.Denials.judge(now, c.Line.inLine)
	}
}

// RetryAt returns when to retry a request for n tokens that was denied at now.
func (c *Client) RetryAt(now clock.Instant, n int64, source lease.Source) clock.Instant {
	if source == lease.SourceFallback {
		if at, ok := c.fallback.at(now, n); ok {
			return at
		}
		return now.Add(c.settings.callTimeout) // by that time a call may have found that the store answers
	}
	if now < c.Denials.until {
		return c.Denials.until
	}
	return now.Add(max(c.settings.rtt, 1)) // the refusal has started a call, which is answered by that time
}

// ReadyIn estimates how long a request for n tokens that joins the line at now will wait if no other process
// draws. ReadyIn returns math.MaxInt64 if nothing is known or n is above the burst.
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

// bounded reports whether the last reply gives a lower bound for when tokens can arrive.
func (c *Client) bounded(now clock.Instant) bool {
	h := &c.Holder.heard
	return h.at != 0 && !c.Failures.Degraded() && !c.Outdated() && c.resets == 0 && now < h.at.Add(h.ttl)
}

// earliest returns a time before which a request in line cannot have its tokens (9.8), if bounded is true.
// ahead is the number of tokens that the line lacks up to this request, less those that this process holds.
func (c *Client) earliest(now clock.Instant, ahead int64) clock.Instant {
	if ahead <= 0 {
		return 0
	}
	at := max(now, c.Holder.heard.earliest(ahead))
	if !c.Holder.calling && !c.Denials.canServe(ahead) {
		at = max(at, c.Denials.until) // no call brings tokens before the delay ends
	}
	return at
}

// Enqueue adds w, for which Decide has returned VerdictWait, to the queue. Host.Settled reports the end of
// the wait, which the user may cause with TimeOut or Cancel.
func (c *Client) Enqueue(now clock.Instant, w *Waiter) {
	c.Line.push(w)
	urgent := true
	if w.inLine() {
		if now < c.Denials.until && c.Denials.canServe(c.Line.lackingInLine) {
			c.Denials.end() // only a larger request fell short
		}
		if c.Line.inLine == 1 {
			c.Line.collect(w)
		}
		urgent = now >= c.Denials.until
	}
	c.wake(urgent)
}

// Serve hands out the tokens of an accepted reply, and turns away requests that cannot be served in time.
func (c *Client) Serve(now clock.Instant, got Accepted) {
	c.Line.distribute(now, got)
	c.turnAway(now)
}

// turnAway ends the waits of requests that, by the last reply, cannot be served in time (9.7).
func (c *Client) turnAway(now clock.Instant) {
	if c.settings.outdated() || c.resets > 0 {
		return // wait for the reply to a call after the change
	}
	seq := c.Holder.open.Seq // seq of the answered call
	ahead := -c.Holder.here()
	capacity, denies, bounded := c.Capacity(), now < c.Denials.until, c.bounded(now)
	admitsAll := denies && c.settings.admitsAll()
	last := c.earliest(now, c.Line.lackingInLine+ahead)
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
			if at := c.earliest(now, ahead); at > w.Deadline {
				ahead += c.Holder.here() - w.lacks()
				c.Line.settle(w, Decision{Verdict: VerdictTooLate, EarliestAt: at})
				ahead -= c.Holder.here() // here() now includes the tokens that w had collected
			}
		case w.asked != seq && c.Line.inLine == 0 && c.Denials.canServe(w.least()):
			// The request w joined during a call for a larger request: askAgain makes another call.
		case denies:
			c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceStore})
		}
		w = next
	}
	c.Line.serveFromPool() // hand out tokens that settled requests had collected
	c.askAgain(now)
}

// askAgain ends the delay after a shortfall if bucket and pool have enough for the first waiting request.
func (c *Client) askAgain(now clock.Instant) {
	if w := c.Line.head; w != nil && now < c.Denials.until && c.Denials.canServe(w.least()) {
		c.Denials.end()
		c.settings.host.Wake(true)
	}
}

// shareAwaited reports whether a request in line waits for the local share. A request for more than the share
// can ever have waits for the store, and holds up no other request (9.11).
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

// serveWithout decides waiting requests without the store, first in, first out. A request in line that is not
// served keeps waiting. again is the time for the next check of the local share.
func (c *Client) serveWithout(now clock.Instant) (again clock.Instant) {
	again = Never
	blocked := false // a request in line lacks more than the local share has
	for w := c.Line.head; w != nil; {
		next := w.next
		if w.inLine() && !blocked {
			c.Line.collect(w) // the fallback may have served an earlier request, which returned its tokens
		}
		if !blocked && w.lacks() == 0 {
			c.Line.settle(w, Decision{Verdict: VerdictAdmit})
		} else if !blocked && (c.Line.serveUpTo(w, lease.SourceLocal) || c.settleFallback(now, w)) {
			// served
		} else if !w.inLine() {
			c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
		} else if at, ok := c.fallback.at(now, w.N); ok && !blocked {
			blocked, again = true, at
		}
		alike := c.Line.lacking == c.Line.lackingInLine // all waiting requests are in line
		if alike && w.waiting && (blocked || c.fallback.seeded == nil) && c.Holder.Pool.Held() == 0 {
			return again // no request behind w can be served
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

// TimeOut ends the wait of w, a request that waits for one call, after CallTimeout: Policy.Fallback decides
// whether w is admitted. If w no longer waits, TimeOut does nothing.
func (c *Client) TimeOut(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	if !c.Line.serveUpTo(w, lease.SourceLocal) && !c.settleFallback(now, w) {
		c.Line.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
	}
	if c.Holder.Pool.Held() > 0 { // do not search a long queue for an empty pool
		c.Line.serveFromPool()
	}
	c.settings.host.Wake(false) // the request may have left tokens to give back
}

// Cancel ends the wait of w, whose caller has stopped waiting. If w no longer waits, Cancel does nothing.
func (c *Client) Cancel(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	c.Line.settle(w, Decision{Verdict: VerdictCancelled})
	c.Line.serveFromPool()
	c.askAgain(now)
	c.settings.host.Wake(false) // the request may have left tokens to give back
}

// GiveBack returns n tokens of draw d that an admitted request did not use (9.9). pooled is the number of
// these tokens that may go back to the pool. d and pooled come from the Decision. For tokens that the user
// took from Pool, d is the result of Pool.Drawn before the take, and pooled is n. After Rest, the key's next
// Client takes the tokens with pooled 0. A closed Client returns false.
func (c *Client) GiveBack(now clock.Instant, n, pooled int64, d pool.Draw) bool {
	if c.Closed() {
		return false
	}
	c.Holder.sendBack(n-pooled, d)
	c.Holder.putBack(now, pooled, d)
	c.Line.serveFromPool()
	c.askAgain(now)
	c.wake(false)
	return true
}

// Charge makes the bucket take n tokens beyond its grants, for requests that used more than they reserved.
// Charge returns the number of tokens charged, which Policy.MaxOvershoot bounds.
func (c *Client) Charge(now clock.Instant, n int64) (charged int64) {
	burst := int64(exact.MaxUnits)
	for _, l := range c.settings.limitsNow() {
		burst = min(burst, l.Capacity())
	}
	bursts := cmp.Or(c.settings.policy.MaxOvershoot, defaultOvershoot)
	if burst <= lease.WaitingMax/bursts {
		n = min(n, burst*bursts)
	}
	c.Holder.charge.add(n, int64(now), c.fallback.dates(now))
	return n
}

// defaultOvershoot is the default of Policy.MaxOvershoot, in bursts.
const defaultOvershoot = 10
