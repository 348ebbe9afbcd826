package protocol

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/lease"
)

// line is the queue of waiting requests, in order of arrival: docs/protocol.md section 9.
type line struct {
	*settings
	denials       *denials
	head, tail    *Waiter
	lacking       int64 // tokens that all waiting requests lack
	lackingInLine int64 // tokens that requests in line lack
	inLine        int   // number of requests in line
	refused       int64 // tokens of the largest request refused without waiting since the last call
}

func (l *line) push(w *Waiter) {
	w.prev, w.next = l.tail, nil
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	w.waiting = true
	l.count(w, w.lacks(), 1)
}

func (l *line) remove(w *Waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	l.count(w, -w.lacks(), -1)
	w.prev, w.next = nil, nil
	w.waiting = false
}

func (l *line) count(w *Waiter, tokens int64, waiters int) {
	l.lacking += tokens
	if w.inLine() {
		l.lackingInLine += tokens
		l.inLine += waiters
	}
}

func (l *line) join(seq int64) {
	for w := l.head; w != nil; w = w.next {
		if w.asked == 0 {
			w.since = seq
		}
		w.asked = seq
	}
}

// need returns the fewest tokens that serve any waiting request (9.5). A request in line needs at most
// portion tokens at a time.
func (l *line) need(portion int64) int64 {
	least := int64(0)
	for w := l.head; w != nil; w = w.next {
		n := w.least()
		if w.inLine() {
			n = min(n, portion)
		}
		if least == 0 || n < least {
			least = n
		}
		if w.inLine() {
			break // no later request is served before w
		}
	}
	return max(1, least)
}

// HasWaiters reports whether any request waits.
func (l *line) HasWaiters() bool { return l.head != nil }

// Waiters calls f for every waiting request, in order of arrival.
func (l *line) Waiters(f func(*Waiter)) {
	for w := l.head; w != nil; w = w.next {
		f(w)
	}
}

// distribute hands out the tokens of a reply, first in, first out (9.6). Tokens of a request that has gone
// become unused.
func (l *line) distribute(now clock.Instant, got Accepted) {
	seq := l.holder.open.Seq // seq of the answered call
	for w := l.head; w != nil; {
		next := w.next
		if now >= w.until {
			l.forfeit(w)
		}
		w.until = l.keepUntil(now)
		own := int64(0)
		if w.asked == seq {
			own = min(got.Waited, w.lacks())
		}
		if !l.serve(w, own, &got, lease.SourceStore) {
			break
		}
		w = next
	}
	for w := l.head; w != nil && got.Waited > 0; w = w.next {
		if w.asked == seq {
			n := min(got.Waited, w.lacks())
			l.give(w, n, got.draw, FromGrant)
			got.Waited -= n
		}
	}
	for w := l.head; w != nil; {
		next := w.next
		if w.asked == seq {
			l.serveUpTo(w, lease.SourceStore)
		}
		w = next
	}
	l.holder.sendBack(got.Waited, got.draw)
	l.holder.putBack(l.host.Now(), got.Reserved, got.draw)
}

// serveUpTo ends the wait of an UpTo request with the tokens of the pool, if there are any.
func (l *line) serveUpTo(w *Waiter, source lease.Source) (served bool) {
	if w.Patience != UpTo {
		return false
	}
	l.collect(w)
	if w.got == 0 {
		return false
	}
	l.settle(w, Decision{Verdict: VerdictAdmit, Source: source})
	return true
}

func (l *line) serveFromPool() {
	for w := l.head; w != nil; {
		next := w.next
		if !l.serve(w, 0, &Accepted{}, lease.SourceLocal) {
			return
		}
		w = next
	}
}

// serve gives w the tokens that it lacks: own of them from got.Waited, the others from got.Reserved and the
// pool. goOn is false if w is in line and still lacks tokens, so that no later request may be served.
func (l *line) serve(w *Waiter, own int64, got *Accepted, source lease.Source) (goOn bool) {
	d, n := got.draw, w.lacks()-own
	switch {
	case w.inLine():
		n = min(got.Reserved, n)
		got.Reserved -= n
	case n <= got.Reserved:
		got.Reserved -= n
	case l.takeFor(n):
		d = l.holder.Pool.Drawn()
	default:
		return true
	}
	got.Waited -= own
	l.give(w, own, got.draw, FromGrant)
	l.give(w, n, d, FromPool)
	if w.inLine() {
		l.collect(w)
	}
	if w.lacks() > 0 {
		return false
	}
	l.settle(w, Decision{Verdict: VerdictAdmit, Source: source})
	return true
}

func (l *line) collect(w *Waiter) {
	for w.lacks() > 0 {
		n := min(w.lacks(), l.holder.Pool.Held())
		if n == 0 {
			return
		}
		if l.takeFor(n) {
			if w.got == 0 {
				w.until = l.keepUntil(l.host.Now())
			}
			l.give(w, n, l.holder.Pool.Drawn(), FromPool)
		}
	}
}

// takeFor takes n tokens or none from the pool for a request that the pool has refused.
func (l *line) takeFor(n int64) bool {
	if !l.holder.Pool.TakeQueued(n) {
		return false
	}
	if l.policy.StrictExpiry && l.holder.Deadline() <= l.host.Now() {
		l.holder.burnTaken(n)
		l.holder.Expire(l.host.Now())
		return false
	}
	return true
}

func (l *line) give(w *Waiter, n int64, d pool.Draw, from Origin) {
	if n == 0 {
		return
	}
	if w.got == 0 {
		w.draw, w.drawnBy = d, l.holder.open.Seq
	}
	if from == FromPool {
		if w.draw.Interval != d.Interval {
			w.pooled, w.draw.Interval = 0, d.Interval // tokens of an earlier interval stay out of the pool
		}
		w.pooled += n
	}
	w.got += n
	l.count(w, -n, 0)
	l.host.Handed(w, n, from)
}

// keepUntil returns when the tokens that a request has collected are burnt, if no reply comes (9.9).
func (l *line) keepUntil(now clock.Instant) clock.Instant { return now.Add(2 * l.ttl()) }

// forfeit burns the tokens that w has collected.
func (l *line) forfeit(w *Waiter) {
	if w.got == 0 {
		return
	}
	l.holder.burnTaken(w.got)
	l.count(w, w.got, 0)
	w.got, w.pooled = 0, 0
	l.host.Forfeited(w)
}

// settle removes w from the queue and reports d to the host. Tokens that w does not use go back.
func (l *line) settle(w *Waiter, d Decision) {
	if !d.OK() || d.Source == lease.SourceFallback {
		now := l.host.Now()
		if now >= w.until {
			l.forfeit(w)
		}
		l.holder.sendBack(w.got-w.pooled-l.passOn(w), w.draw)
		l.holder.putBack(now, w.pooled, w.draw)
		l.count(w, w.got, 0)
		w.got, w.pooled = 0, 0
	} else {
		d.Draw, d.Pooled, d.Took = w.draw, w.pooled, w.got
	}
	l.denials.settled(w.Ask, &d)
	l.remove(w)
	l.host.Settled(w, d)
}

// passOn gives tokens that were drawn for w, which is not admitted, to requests in line that had come when
// the call was built (9.9). The bucket would credit returned tokens only in part.
func (l *line) passOn(w *Waiter) (passed int64) {
	left := w.got - w.pooled
	for x := l.head; x != nil && left > 0; x = x.next {
		n := min(left, x.lacks())
		if x == w || !x.inLine() || x.since == 0 || x.since > w.drawnBy || n == 0 {
			continue
		}
		if x.got == 0 {
			x.draw, x.drawnBy, x.until = w.draw, w.drawnBy, w.until
		}
		if x.draw.Epoch != w.draw.Epoch {
			x.draw.Epoch = 0 // some tokens come from a bucket that the store has lost
		}
		x.draw.Running, x.drawnBy = min(x.draw.Running, w.draw.Running), min(x.drawnBy, w.drawnBy)
		x.until = min(x.until, w.until)
		x.got += n
		l.count(x, -n, 0)
		l.host.Passed(w, x, n)
		left, passed = left-n, passed+n
	}
	return passed
}

func (l *line) settleAll(d Decision) {
	for l.head != nil {
		l.settle(l.head, d)
	}
}
