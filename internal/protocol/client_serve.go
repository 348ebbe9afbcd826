package protocol

import (
	"cmp"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Waiter is one request that waits for tokens. Its user makes it, or uses it again after it was
// settled: the fields that the user sets are those in upper case.
type Waiter struct {
	N        int64
	Patience Patience      // OneCall, UpTo or InLine
	Deadline clock.Instant // of one InLine; Never for none
	Owner    any           // the user's own

	got     int64         // tokens that it has so far
	until   clock.Instant // got is lost from then on: nothing has been heard of the bucket for too long
	draw    pool.Draw     // of the oldest of them, but with the interval of pooled
	pooled  int64         // of got: taken from the pool in that interval, where they may go back to
	asked   int64         // seq of the last call that counted it as waiting; 0 for none yet
	since   int64         // and of the first one
	drawnBy int64         // seq of the first call that brought got, or what another one has passed on
	waiting bool
	prev    *Waiter
	next    *Waiter
}

// Got is how many tokens w has: none after it was settled without them.
func (w *Waiter) Got() int64 { return w.got }

func (w *Waiter) lacks() int64 { return w.N - w.got }

func (w *Waiter) least() int64 {
	if w.Patience == UpTo {
		return 1
	}
	return w.lacks()
}

func (w *Waiter) inLine() bool { return w.Patience == InLine }

type queue struct {
	head, tail    *Waiter
	lacking       int64 // tokens that all of them lack
	lackingInLine int64 // the part of those that wait in line
	inLine        int   // how many of them do
}

func (q *queue) push(w *Waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	w.waiting = true
	q.count(w, w.lacks(), 1)
}

func (q *queue) remove(w *Waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	q.count(w, -w.lacks(), -1)
	w.prev, w.next = nil, nil
	w.waiting = false
}

func (q *queue) count(w *Waiter, tokens int64, waiters int) {
	q.lacking += tokens
	if w.inLine() {
		q.lackingInLine += tokens
		q.inLine += waiters
	}
}

func (q *queue) join(seq int64) {
	for w := q.head; w != nil; w = w.next {
		if w.asked == 0 {
			w.since = seq
		}
		w.asked = seq
	}
}

// need is the fewest tokens that serve anybody: with fewer, a grant is useless. A request in line collects,
// at least portion tokens at a time.
func (q *queue) need(portion int64) int64 {
	least := int64(0)
	for w := q.head; w != nil; w = w.next {
		n := w.least()
		if w.inLine() {
			n = min(n, portion)
		}
		if least == 0 || n < least {
			least = n
		}
		if w.inLine() {
			break // no later one is served before it
		}
	}
	return max(1, least)
}

// HasWaiters reports whether any request waits.
func (c *Client) HasWaiters() bool { return c.queue.head != nil }

// Waiters calls f for every request that waits, in the order in which they came.
func (c *Client) Waiters(f func(*Waiter)) {
	for w := c.queue.head; w != nil; w = w.next {
		f(w)
	}
}

// Serve hands out the tokens of an accepted reply, and ends the waits that it shows to be hopeless.
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

func (c *Client) serveFromPool() {
	for w := c.queue.head; w != nil; {
		next := w.next
		if !c.serve(w, 0, &Accepted{}, lease.SourceLocal) {
			return
		}
		w = next
	}
}

// serve gives w own tokens of got.Waited, and the rest from got.Reserved and the pool. One that waits for
// one call gets all that it lacks or nothing. One in line takes what there is; while it lacks any, goOn is
// false and no later request may be served.
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

// takeFor takes n tokens or none from the pool for a request that it has refused before.
func (c *Client) takeFor(n int64) bool {
	if !c.Pool.TakeQueued(n) {
		return false
	}
	if c.policy.StrictExpiry && c.Deadline() <= c.host.Now() {
		c.burnTaken(n)
		c.Expire(c.host.Now())
		return false
	}
	return true
}

func (c *Client) give(w *Waiter, n int64, d pool.Draw, from Origin) {
	if n == 0 {
		return
	}
	if w.got == 0 {
		w.draw, w.drawnBy = d, c.open.Seq
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

// turnAway ends, after a reply, the waits that are hopeless (9.7).
func (c *Client) turnAway(now clock.Instant) {
	if c.Outdated() || c.resets > 0 {
		return // the next reply tells
	}
	seq := c.open.Seq // of the call that was answered
	ahead := -c.here()
	capacity, denies, bounded := c.Capacity(), now < c.deniedUntil, c.bounded(now)
	admitsAll := denies && c.admitsAll()
	last := c.earliestFor(now, c.queue.lackingInLine+ahead)
	for w := c.queue.head; w != nil; {
		next := w.next
		switch {
		case w.N > capacity && w.Patience != UpTo:
			c.settle(w, Decision{Verdict: VerdictExceedsBurst})
		case admitsAll:
			c.settleFallback(now, w)
		case w.inLine():
			ahead += w.lacks()
			if !bounded || last <= w.Deadline || w.lacks() == 0 {
				break
			}
			if at := c.earliestFor(now, ahead); at > w.Deadline {
				ahead += c.here() - w.lacks()
				c.settle(w, Decision{Verdict: VerdictTooLate, EarliestAt: at})
				ahead -= c.here() // with what it had collected
			}
		case w.asked != seq && c.queue.inLine == 0 && c.spares(w.least()):
			// It came during a call for a larger one. askAgain makes another call.
		case denies:
			c.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceStore})
		}
		w = next
	}
	c.serveFromPool() // with the tokens that ended waits had collected
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

// fallbackPause is the least time between two looks at the local share for requests that wait for it.
const fallbackPause = time.Millisecond

// serveWithout decides waiting requests without the store, first in first out. A request in line that is not
// served waits on: for the local share, which again says when to look at, or for the store.
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
		} else if at, ok := c.fallbackAt(now, w.N); ok && !blocked {
			// Not at once, or a refusal for any other reason would be repeated without end.
			blocked, again = true, max(at, now.Add(fallbackPause))
		}
		alike := c.queue.lacking == c.queue.lackingInLine // all the others are in line
		if alike && w.waiting && (blocked || c.fallback == nil) && c.Pool.Held() == 0 {
			return again // they get nothing, either, and there may be many
		}
		w = next
	}
	return again
}

// forfeit burns what w has collected, because nothing was heard of the bucket for too long.
func (c *Client) forfeit(w *Waiter) {
	if w.got == 0 {
		return
	}
	c.burnTaken(w.got)
	c.queue.count(w, w.got, 0)
	w.got, w.pooled = 0, 0
	c.host.Forfeited(w)
}

// settle takes w off the queue and tells it d. Tokens that it does not need go back.
func (c *Client) settle(w *Waiter, d Decision) {
	if !d.OK() || d.Source == lease.SourceFallback {
		now := c.host.Now()
		if now >= w.until {
			c.forfeit(w)
		}
		c.sendBack(w.got-w.pooled-c.passOn(w), w.draw)
		c.putBack(now, w.pooled, w.draw)
		c.queue.count(w, w.got, 0)
		w.got, w.pooled = 0, 0
	} else {
		d.Draw, d.Pooled, d.Took = w.draw, w.pooled, w.got
	}
	c.book(w.N, &d)
	c.queue.remove(w)
	c.host.Settled(w, d)
}

// passOn gives what was drawn for w, which is not admitted, to those in line that every call counted which
// drew it: as if it had been handed to them at once (9.6). A token that travels back is worth only what the
// bucket has not refilled since. serveFromPool settles those that have all then.
func (c *Client) passOn(w *Waiter) (passed int64) {
	left := w.got - w.pooled
	for x := c.queue.head; x != nil && left > 0; x = x.next {
		n := min(left, x.lacks())
		if x == w || !x.inLine() || x.since == 0 || x.since > w.drawnBy || n == 0 {
			continue
		}
		if x.got == 0 {
			x.draw, x.drawnBy, x.until = w.draw, w.drawnBy, w.until
		}
		if x.draw.Epoch != w.draw.Epoch {
			x.draw.Epoch = 0 // a part is of a bucket that is gone: worth nothing on its way back
		}
		x.draw.Running, x.drawnBy = min(x.draw.Running, w.draw.Running), min(x.drawnBy, w.drawnBy)
		x.until = min(x.until, w.until)
		x.got += n
		c.queue.count(x, -n, 0)
		c.host.Passed(w, x, n)
		left, passed = left-n, passed+n
	}
	return passed
}

func (c *Client) settleAll(d Decision) {
	for c.queue.head != nil {
		c.settle(c.queue.head, d)
	}
}

// TimeOut ends the wait of a request that waits for one call, after CallTimeout, unless it has
// ended. Whether it is admitted is up to Policy.Fallback.
func (c *Client) TimeOut(now clock.Instant, w *Waiter) {
	if !w.waiting {
		return
	}
	if !c.serveUpTo(w, lease.SourceLocal) && !c.settleFallback(now, w) {
		c.settle(w, Decision{Verdict: VerdictDeny, Source: lease.SourceFallback})
	}
	if c.Pool.Held() > 0 { // with none it would look at all of many requests for each that times out
		c.serveFromPool()
	}
	c.host.Wake(false) // there may be something to give back now
}

func (c *Client) settleFallback(now clock.Instant, w *Waiter) bool {
	least := w.N
	if w.Patience == UpTo {
		least = 1
	}
	took := c.takeFallback(now, least, w.N)
	if took > 0 {
		c.settle(w, Decision{Verdict: VerdictAdmit, Source: lease.SourceFallback, Took: took})
	}
	return took > 0
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
	c.sendBack(n-pooled, d)
	c.putBack(now, pooled, d)
	c.serveFromPool()
	c.askAgain(now)
	c.wake(false)
	return true
}

// attribute counts what was denied since it was last called to the limit that binds, by what is known now.
func (c *Client) attribute() {
	n := c.Denied() - c.attributed
	if n <= 0 {
		return
	}
	c.attributed += n
	l := c.heard.limits[c.heard.binding()]
	for i := range c.denials {
		if c.denials[i].limit == l {
			c.denials[i].tokens += n
			return
		}
	}
	c.denials = append(c.denials, denials{l, n})
}

// tellDenied is how many tokens were denied since it was last called, for one call to report. They
// decide nothing, so they are lost where that call is given up or the key rests before it.
func (c *Client) tellDenied() int64 {
	c.attribute()
	n := min(c.attributed-c.deniedTold, lease.WaitingMax)
	c.deniedTold += n
	return n
}

type denials struct {
	limit  lease.Limit
	tokens int64
}

// CollectDenials calls f with the tokens that were denied since it was last called, and the limit
// that was the reason, as far as was known when they were: that with the longest wait.
func (c *Client) CollectDenials(f func(l lease.Limit, tokens int64)) {
	c.attribute()
	for _, d := range c.denials {
		f(d.limit, d.tokens)
	}
	c.denials = c.denials[:0]
}

// Charge has the bucket take n tokens more than this process was granted, or as many as Policy.MaxOvershoot
// allows one request, now or when it has them: a request was admitted for fewer than it has then used. It
// returns how many that are. A Client that is closed before the next call has been answered forgets them.
func (c *Client) Charge(now clock.Instant, n int64) (charged int64) {
	burst := int64(exact.MaxUnits)
	for _, l := range c.limitsNow() {
		burst = min(burst, l.Capacity())
	}
	bursts := cmp.Or(c.policy.MaxOvershoot, defaultOvershoot)
	if burst <= lease.WaitingMax/bursts {
		n = min(n, burst*bursts)
	}
	c.charges(now, n, c.dates(now))
	return n
}

// defaultOvershoot is Policy.MaxOvershoot's default: far beyond any estimate, paid in ten bursts' time.
const defaultOvershoot = 10
