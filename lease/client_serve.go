package lease

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// distribute hands out what a reply brought, first in first out. Tokens that were drawn for waiting
// requests go to those that the call counted, and only to them; reserved ones to requests in line;
// those of the pool to all. A request that waits for one call and cannot have all of its tokens is
// passed over. One in line takes what there is, and those behind it wait. A token whose request has
// gone travels back.
func (c *Client) distribute(now clock.Instant, got Accepted) {
	drawn, reserved := got.Waited, got.Reserved
	seq := c.open.Seq // of the call that was answered
	for w := c.queue.head; w != nil; {
		next := w.next
		if now >= w.until {
			c.forfeit(w)
		}
		w.until = c.keepUntil(now)
		own := int64(0)
		if w.asked == seq {
			own = min(drawn, w.lacks())
		}
		if w.inLine() {
			drawn -= own
			c.give(w, own, got.Drawn)
			n := min(reserved, w.lacks())
			reserved -= n
			c.givePooled(w, n, got.Interval, got.Drawn)
			if c.collect(w); w.lacks() > 0 {
				break
			}
			c.settle(w, Decision{Verdict: VerdictAdmit, Source: SourceStore})
		} else if missing := w.lacks() - own; missing <= reserved || c.tryTake(missing) {
			if missing <= reserved {
				reserved -= missing
			}
			drawn -= own
			c.give(w, own, got.Drawn)
			c.givePooled(w, missing, got.Interval, got.Drawn)
			c.settle(w, Decision{Verdict: VerdictAdmit, Source: SourceStore})
		}
		w = next
	}
	for w := c.queue.head; w != nil && drawn > 0; w = w.next {
		if w.asked == seq {
			n := min(drawn, w.lacks())
			c.give(w, n, got.Drawn)
			drawn -= n
		}
	}
	c.Unused(drawn, got.Drawn)
	c.returnToPool(reserved, got.Interval, got.Drawn)
}

// serveFromPool serves the queue after tokens have come back to the pool.
func (c *Client) serveFromPool() {
	for w := c.queue.head; w != nil; {
		next := w.next
		if w.inLine() {
			if c.collect(w); w.lacks() > 0 {
				return
			}
			c.settle(w, Decision{Verdict: VerdictAdmit})
		} else if missing := w.lacks(); c.tryTake(missing) {
			c.givePooled(w, missing, c.Pool.Interval(), c.Drawn())
			c.settle(w, Decision{Verdict: VerdictAdmit})
		}
		w = next
	}
}

// collect gives a request in line what the pool has, up to what it lacks.
func (c *Client) collect(w *Waiter) {
	for w.lacks() > 0 {
		n := min(w.lacks(), c.Pool.Held())
		if n == 0 {
			return
		}
		if interval, ok := c.takeFor(n); ok {
			if w.got == 0 {
				w.until = c.keepUntil(c.host.Now())
			}
			c.givePooled(w, n, interval, c.Drawn())
		}
	}
}

// takeFor takes n tokens or none from the pool for a request that was counted as missed, and says
// in which report interval.
func (c *Client) takeFor(n int64) (Interval, bool) {
	interval, ok := c.takeWaiting(n)
	if ok && c.policy.StrictExpiry && c.deadline <= c.host.Now() {
		c.putBack(n, interval, c.Drawn()) // to be burnt by Expire: no report comes between
		c.Expire(c.host.Now())
		return 0, false
	}
	return interval, ok
}

// tryTake is takeFor for one that needs no interval.
func (c *Client) tryTake(n int64) bool {
	_, ok := c.takeFor(n)
	return ok
}

// give hands w n of the tokens that were drawn for waiting requests.
func (c *Client) give(w *Waiter, n int64, drawn Drawn) {
	c.queue.give(w, n, drawn)
	if n > 0 {
		c.host.Handed(w, n, FromGrant)
	}
}

// givePooled hands w n tokens that were taken from the pool, or withheld from it, in interval.
func (c *Client) givePooled(w *Waiter, n int64, interval Interval, drawn Drawn) {
	if w.interval != interval {
		w.pooled, w.interval = 0, interval // what came before can no longer go back to the pool
	}
	w.pooled += n
	c.queue.give(w, n, drawn)
	if n > 0 {
		c.host.Handed(w, n, FromPool)
	}
}

// returnToPool gives back n tokens that came through the pool within interval and were not used. If
// their lease has ended meanwhile they may not be in the pool again, not even for a moment.
func (c *Client) returnToPool(n int64, interval Interval, drawn Drawn) {
	if n == 0 {
		return
	}
	if c.host.Now() >= c.deadline {
		c.Unused(n, drawn)
		return
	}
	c.putBack(n, interval, drawn)
}

// keepUntil is how long a waiting request keeps what it has collected, from the last reply on.
// While the store is well there is a reply in every T. After an outage of two T the bucket has
// forgotten what it leased, so the request starts again.
func (c *Client) keepUntil(now clock.Instant) clock.Instant { return now.Add(2 * c.TTL()) }

// forfeit burns what w has collected, because nothing was heard of the bucket for too long.
func (c *Client) forfeit(w *Waiter) {
	if w.got == 0 {
		return
	}
	c.Forfeit(w.got)
	c.queue.give(w, -w.got, w.drawn)
	w.pooled = 0
	c.host.Forfeited(w)
}

// settle takes w off the queue and tells it d. Tokens that it does not need go back.
func (c *Client) settle(w *Waiter, d Decision) {
	needed := d.OK() && d.Source != SourceFallback
	if !needed && c.host.Now() >= w.until {
		c.forfeit(w)
	}
	c.queue.remove(w)
	if !needed {
		c.Unused(w.got-w.pooled, w.drawn)
		c.returnToPool(w.pooled, w.interval, w.drawn)
		w.got, w.pooled = 0, 0
	}
	c.host.Settled(w, d)
}

func (c *Client) settleAll(d Decision) {
	for c.queue.head != nil {
		c.settle(c.queue.head, d)
	}
}

// turnAway ends, after a reply, the waits that are in vain: of requests above the burst, of those
// that wait for one call if the bucket is known to be empty for now, and of those in line whose
// deadline cannot be met.
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
		case w.N > capacity:
			c.settle(w, Decision{Verdict: VerdictExceedsBurst})
		case !w.inLine() && w.asked != seq && c.queue.inLine == 0 && c.spares(w.N):
			// It came during a call for a larger one. askAgain makes another call.
		case !w.inLine() && now < c.deniedUntil:
			c.settle(w, Decision{Verdict: VerdictDeny, Source: SourceStore})
		case !w.inLine():
		default:
			if at := c.earliest(now, ahead+w.lacks()); at > w.Deadline {
				c.settle(w, Decision{Verdict: VerdictTooLate, EarliestAt: at})
			} else {
				ahead += w.lacks()
			}
		}
		w = next
	}
	c.serveFromPool() // with what those who left had collected
	c.askAgain(now)
}

// askAgain ends the delay after a shortfall if that was for a larger request, which has left, and
// the bucket is known to have enough for the next one.
func (c *Client) askAgain(now clock.Instant) {
	if w := c.queue.head; w != nil && now < c.deniedUntil && c.spares(w.lacks()) {
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
		} else if !blocked && c.takeFallback(now, w.N) {
			c.settle(w, Decision{Verdict: VerdictAdmit, Source: SourceFallback})
		} else if !w.inLine() {
			c.settle(w, Decision{Verdict: VerdictDeny, Source: SourceFallback})
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

// TimeOut ends the wait of a request that waits for one call, after CallTimeout, unless it has
// ended. Whether it is admitted is up to Policy.Fallback.
func (c *Client) TimeOut(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	d := Decision{Verdict: VerdictDeny, Source: SourceFallback}
	if c.takeFallback(now, w.N) {
		d.Verdict = VerdictAdmit
	}
	c.settle(w, d)
	c.host.Wake(false) // there may be something to give back now
}

// Cancel ends the wait of a request whose user does not wait any more, unless it has ended.
func (c *Client) Cancel(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	c.settle(w, Decision{Verdict: VerdictCancelled})
	c.serveFromPool()
	c.askAgain(now)
	c.host.Wake(false) // there may be something to give back now
}
