package protocol

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Serve hands out what an accepted reply brought, and ends the waits that it shows to be in vain.
func (c *Client) Serve(now clock.Instant, got Accepted) {
	c.distribute(now, got)
	c.turnAway(now)
}

// distribute hands out what a reply brought, first in first out. Tokens that were drawn for waiting
// requests go to those that the call counted, and only to them; reserved ones to requests in line;
// those of the pool to all. A token whose request has gone travels back.
func (c *Client) distribute(now clock.Instant, got Accepted) {
	seq := c.open.Seq // of the call that was answered
	for w := c.queue.head; w != nil; {
		next := w.next
		if now >= w.until {
			c.forfeit(w)
		}
		w.until = c.keepUntil(now)
		own := int64(0)
		if w.asked == seq {
			own = min(got.Waited, w.lacks())
		}
		if !c.serve(w, own, &got, lease.SourceStore) {
			break
		}
		w = next
	}
	for w := c.queue.head; w != nil && got.Waited > 0; w = w.next {
		if w.asked == seq {
			n := min(got.Waited, w.lacks())
			c.give(w, n, got.draw, FromGrant)
			got.Waited -= n
		}
	}
	for w := c.queue.head; w != nil; {
		next := w.next
		if w.asked == seq {
			c.serveUpTo(w, lease.SourceStore)
		}
		w = next
	}
	c.sendBack(got.Waited, got.draw)
	c.putBack(c.host.Now(), got.Reserved, got.draw)
}

// serveUpTo ends the wait of a request for what there is, where there is any.
func (c *Client) serveUpTo(w *Waiter, source lease.Source) (served bool) {
	if w.Patience != UpTo {
		return false
	}
	c.collect(w)
	if w.got == 0 {
		return false
	}
	c.settle(w, Decision{Verdict: VerdictAdmit, Source: source})
	return true
}

// serveFromPool serves the queue after tokens have come back to the pool.
func (c *Client) serveFromPool() {
	for w := c.queue.head; w != nil; {
		next := w.next
		if !c.serve(w, 0, &Accepted{}, lease.SourceLocal) {
			return
		}
		w = next
	}
}

// serve gives w own tokens of got.Waited, and the rest from got.Reserved and the pool. One that
// waits for one call gets all that it lacks or nothing. One in line takes what there is; while it
// lacks any, goOn is false and nobody behind it is to be served.
func (c *Client) serve(w *Waiter, own int64, got *Accepted, source lease.Source) (goOn bool) {
	d, n := got.draw, w.lacks()-own
	switch {
	case w.inLine():
		n = min(got.Reserved, n)
		got.Reserved -= n
	case n <= got.Reserved:
		got.Reserved -= n
	case c.takeFor(n):
		d = c.Pool.Drawn()
	default:
		return true
	}
	got.Waited -= own
	c.give(w, own, got.draw, FromGrant)
	c.give(w, n, d, FromPool)
	if w.inLine() {
		c.collect(w)
	}
	if w.lacks() > 0 {
		return false
	}
	c.settle(w, Decision{Verdict: VerdictAdmit, Source: source})
	return true
}

// collect gives a request in line what the pool has, up to what it lacks.
func (c *Client) collect(w *Waiter) {
	for w.lacks() > 0 {
		n := min(w.lacks(), c.Pool.Held())
		if n == 0 {
			return
		}
		if c.takeFor(n) {
			if w.got == 0 {
				w.until = c.keepUntil(c.host.Now())
			}
			c.give(w, n, c.Pool.Drawn(), FromPool)
		}
	}
}

// takeFor takes n tokens or none from the pool for a request that was counted as missed.
func (c *Client) takeFor(n int64) bool {
	if !c.Pool.TakeQueued(n) {
		return false
	}
	c.servedLater += n
	if c.policy.StrictExpiry && c.Deadline() <= c.host.Now() {
		c.burnTaken(n)
		c.Expire(c.host.Now())
		return false
	}
	return true
}

// give hands w n tokens of draw d.
func (c *Client) give(w *Waiter, n int64, d pool.Draw, from Origin) {
	if n == 0 {
		return
	}
	if w.got == 0 {
		w.draw = d
	}
	if from == FromPool {
		if w.draw.Interval != d.Interval {
			w.pooled, w.draw.Interval = 0, d.Interval // what came before can no longer go back to the pool
		}
		w.pooled += n
	}
	w.got += n
	c.queue.count(w, -n, 0)
	c.host.Handed(w, n, from)
}

// keepUntil is how long a waiting request keeps what it has collected, from the last reply on:
// after two T the bucket has forgotten what it leased.
func (c *Client) keepUntil(now clock.Instant) clock.Instant { return now.Add(2 * c.TTL()) }

// turnAway ends, after a reply, the waits that are in vain (9.7).
func (c *Client) turnAway(now clock.Instant) {
	if c.Outdated() || c.resets > 0 {
		return // the next reply tells
	}
	seq := c.open.Seq // of the call that was answered
	ahead := int64(0)
	capacity := c.Capacity()
	for w := c.queue.head; w != nil; {
		next := w.next
		switch {
		case w.N > capacity && w.Patience != UpTo:
			c.settle(w, Decision{Verdict: VerdictExceedsBurst})
		case now < c.deniedUntil && c.admitsAll():
			c.settleFallback(now, w)
		case w.inLine():
			if at := c.earliest(now, ahead+w.lacks()); at > w.Deadline {
				c.settle(w, Decision{Verdict: VerdictTooLate, EarliestAt: at})
			} else {
				ahead += w.lacks()
			}
		case w.asked != seq && c.queue.inLine == 0 && c.spares(w.least()):
			// It came during a call for a larger one. askAgain makes another call.
		case now < c.deniedUntil:
			c.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceStore})
		}
		w = next
	}
	c.serveFromPool() // with what those who left had collected
	c.askAgain(now)
}

// askAgain ends the delay after a shortfall if that was for a larger request, which has left, and
// the bucket is known to have enough for the next one.
func (c *Client) askAgain(now clock.Instant) {
	if w := c.queue.head; w != nil && now < c.deniedUntil && c.spares(w.least()) {
		c.endDelay()
		c.host.Wake(true)
	}
}

// fallbackPause is the least time between two looks at the local share for those who wait for it.
const fallbackPause = time.Millisecond

// serveWithout decides without the store for those who wait, first in first out. Some of those in
// line may wait for the local share: it says when to look again.
func (c *Client) serveWithout(now clock.Instant) (again clock.Instant) {
	again = Never
	blocked := false // by one in line that the local share has too little for
	for w := c.queue.head; w != nil; {
		next := w.next
		if w.inLine() && !blocked {
			c.collect(w) // what the one before gave back when the fallback served it
		}
		if !blocked && w.lacks() == 0 {
			c.settle(w, Decision{Verdict: VerdictAdmit})
		} else if !blocked && (c.serveUpTo(w, lease.SourceLocal) || c.settleFallback(now, w)) {
			// it is served
		} else if !w.inLine() {
			c.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
		} else if at, ok := c.fallbackAt(now, w.N); !ok {
			c.settle(w, Decision{Verdict: VerdictUnavailable})
		} else if !blocked {
			// Not at once, or a refusal for any other reason would be repeated without end.
			blocked, again = true, max(at, now.Add(fallbackPause))
		}
		w = next
	}
	return again
}
