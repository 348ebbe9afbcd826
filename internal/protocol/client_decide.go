package protocol

import (
	"math"
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
	// InLine collects tokens until it has them all, and nobody who came later is served before.
	InLine
)

// Verdict is what becomes of a request.
type Verdict int8

const (
	VerdictWait         Verdict = iota // not known yet: Enqueue it
	VerdictAdmit                       // it has its tokens
	VerdictDeny                        // the tokens are not there
	VerdictExceedsBurst                // they never will be
	VerdictTooLate                     // they cannot be there by its deadline
	VerdictUnavailable                 // the store is away and Policy.Fallback gives nothing
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

// Decide answers a request for n tokens that the pool has refused and counted. deadline is that of
// one InLine, Never for none. VerdictWait is followed by Enqueue.
func (c *Client) Decide(now clock.Instant, n int64, p Patience, deadline clock.Instant) Decision {
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
	case p == UpTo && held > 0 && (s == StateDegraded || s == StateDenied && !c.spares(held+1)) && c.takeFor(held):
		return Decision{Verdict: VerdictAdmit, Draw: c.Pool.Drawn(), Pooled: held, Took: held}
	case s == StateDegraded, s == StateCold && p == NoWait:
		c.Refuse(n)
		// Those who wait for the local share go before.
		if c.queue.inLine > 0 && !c.coldDecides() {
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
	// No call that is not under way yet goes to a busy node before so long.
	waits := c.host.Breaker().RestsUntil().Sub(now)
	if !c.calling && waits > c.callTimeout {
		c.deniedUntil = now.Add(waits - c.callTimeout)
		c.refused = max(c.refused, n)
		c.judgeDenial(now)
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

// decideInLine is Decide for a request that waits in line.
func (c *Client) decideInLine(now clock.Instant, n int64, deadline clock.Instant) Decision {
	if c.queue.inLine == 0 && c.takeFor(n) {
		return Decision{Verdict: VerdictAdmit, Draw: c.Pool.Drawn(), Pooled: n, Took: n}
	}
	if c.Degraded() || now < c.deniedUntil && c.admitsAll() {
		c.Refuse(n) // somebody wants a probe
		if c.queue.inLine == 0 && c.takeFallback(now, n, n) > 0 {
			return Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: n}
		}
		if _, ok := c.fallbackAt(now, n); !ok {
			return Decision{Verdict: VerdictUnavailable}
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
		c.shortenDelay(c.queue.lackingInLine + n)
	} else if c.queue.inLine == 0 {
		c.shortenDelay(n)
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
	was := clock.Instant(c.shutUntil.Swap(int64(until)))
	if was == 0 && until == 0 {
		return
	}
	if was == 0 || until == 0 {
		c.Pool.Deny(until != 0)
	}
	c.host.Shut(until)
}

// RetryAt is when it is worth while to ask again for n tokens that were denied at now; it is later
// than now.
func (c *Client) RetryAt(now clock.Instant, n int64, source lease.Source) clock.Instant {
	if source == lease.SourceFallback {
		if at, ok := c.fallbackAt(now, n); ok {
			return max(at, now.Add(fallbackPause)) // those who wait in line for the share go first
		}
		return now.Add(c.callTimeout) // by then a call that finds the store well again has its answer
	}
	if now < c.deniedUntil {
		return c.deniedUntil
	}
	return now.Add(max(c.rtt, 1)) // the call that the refusal has started is answered by then
}

// ReadyIn is how long a request for n tokens that begins to wait in line at now is likely to wait,
// by what was heard and if nobody else draws; math.MaxInt64 where nothing is known, or n is above
// the burst.
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

// earliest is a time before which a request in line cannot have its tokens, not even if other
// processes gave back all that they held at the last reply. ahead is what the request and those
// before it lack. It is 0 where no such time is known, or where what is known is older than a T:
// the next reply will tell.
func (c *Client) earliest(now clock.Instant, ahead int64) clock.Instant {
	h := &c.heard
	if h.at == 0 || c.Degraded() || c.Outdated() || c.resets > 0 || now >= h.at.Add(c.TTL()) {
		return 0
	}
	ahead -= c.Pool.Held() + c.pending()
	if ahead <= 0 {
		return 0
	}
	at := max(now, h.earliest(ahead))
	if !c.calling && !c.spares(ahead) {
		at = max(at, c.deniedUntil) // no call brings any before
	}
	return at
}
