package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// waiter is a request that waits for tokens; see hybrid's.
type waiter struct {
	e        *entry
	request  request
	got      int64         // has so far
	audited  []drawn       // the same, as the auditor knows them
	until    clock.Instant // got is lost from then on
	drawn    lease.Drawn   // of the oldest of them
	pooled   int64         // of got: taken from the pool in epoch
	epoch    lease.Epoch
	asked    int64 // the call that counts it as waiting
	patient  bool
	deadline clock.Instant
	endSeq   uint64 // the event that ends its wait
	id       int32
	prev     *waiter
	next     *waiter
}

func (w *waiter) lacks() int64 { return w.request.n - w.got }

// queue is an entry's waiters, first in first out.
type queue struct {
	head, tail *waiter
	lacking    int64
	patient    int64
	patients   int
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.count(w, w.lacks(), 1)
}

func (q *queue) remove(w *waiter) {
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
}

func (q *queue) count(w *waiter, tokens int64, waiters int) {
	q.lacking += tokens
	if w.patient {
		q.patient += tokens
		q.patients += waiters
	}
}

func (q *queue) give(w *waiter, n int64, drawn lease.Drawn) {
	if w.got == 0 {
		w.drawn = drawn
	}
	w.got += n
	q.count(w, -n, 0)
}

func (q *queue) givePooled(w *waiter, n int64, e lease.Epoch, drawn lease.Drawn) {
	if w.epoch != e {
		w.pooled, w.epoch = 0, e
	}
	w.pooled += n
	q.give(w, n, drawn)
}

// need is the fewest tokens that serve anybody.
func (q *queue) need(gather int64) int64 {
	least := int64(0)
	for w := q.head; w != nil; w = w.next {
		n := w.lacks()
		if w.patient {
			n = min(n, gather)
		}
		if least == 0 || n < least {
			least = n
		}
		if w.patient {
			break
		}
	}
	return max(1, least)
}

// enqueue has r wait for up to limit, as far as the limiter knows. It is cancelled when its
// patience has run out.
func (e *entry) enqueue(r request, patient bool, limit, patience time.Duration) {
	w := e.fleet.newWaiter()
	w.e, w.request, w.patient = e, r, patient
	w.deadline = e.now().Add(limit)
	w.endSeq = e.fleet.time.at(e.p.after(e.fleet.time.now, patience), evWaitEnd, w.id)
	e.queue.push(w)
}

// settle takes w off the queue and answers it. store says that its tokens came from the bucket.
func (e *entry) settle(w *waiter, ok, store bool) {
	unused := !ok || !store
	if unused && e.now() >= w.until {
		e.forfeit(w)
	}
	e.queue.remove(w)
	e.fleet.books.audit.closeAll(e.key, w.audited, !unused)
	tokens := int64(0)
	if unused {
		e.undraw(w.got-w.pooled, w.drawn)
		e.putBack(w.pooled, w.epoch, w.drawn)
	} else {
		tokens = w.got
	}
	r := w.request
	e.fleet.freeWaiter(w)
	e.fleet.answer(&r, ok, tokens)
}

// undraw gives back, with the next call, n tokens that were drawn for requests that are not admitted.
func (e *entry) undraw(n int64, drawn lease.Drawn) {
	e.holder.Unused(n, drawn)
	e.holder.Served(-n)
}

// putBack is undraw for tokens that came through the pool.
func (e *entry) putBack(n int64, epoch lease.Epoch, drawn lease.Drawn) {
	if n == 0 {
		return
	}
	if e.now() >= e.holder.Deadline() {
		e.undraw(n, drawn)
		return
	}
	e.holder.PutBack(n, epoch, drawn)
	e.holder.Served(-n)
}

// forfeit burns what w has gathered.
func (e *entry) forfeit(w *waiter) {
	e.holder.Forfeit(w.got)
	e.holder.Served(-w.got)
	e.queue.give(w, -w.got, w.drawn)
	e.fleet.books.audit.closeAll(e.key, w.audited, false)
	w.audited, w.pooled = w.audited[:0], 0
}

func (w *waiter) take(d drawn) {
	if d.n > 0 {
		w.audited = append(w.audited, d)
	}
}

// give hands w n tokens of what a grant brought for requests that wait.
func (e *entry) give(w *waiter, n int64, of *drawn, since lease.Drawn) {
	w.take(drawn{of.draw, n})
	of.n -= n
	e.queue.give(w, n, since)
}

// givePooled hands w n tokens that were taken from the pool, or withheld from it, in epoch.
func (e *entry) givePooled(w *waiter, n int64, epoch lease.Epoch, since lease.Drawn) {
	w.take(e.fleet.books.audit.open(e.fleet.time.now, e.key, n))
	e.queue.givePooled(w, n, epoch, since)
}

// gather gives a patient request what the pool has.
func (e *entry) gather(w *waiter) {
	for w.lacks() > 0 {
		n := min(w.lacks(), e.holder.Pool.Held())
		if n == 0 {
			return
		}
		epoch, ok := e.takeFor(n)
		if !ok {
			return
		}
		if w.got == 0 {
			w.until = e.keepUntil()
		}
		e.givePooled(w, n, epoch, e.holder.Drawn())
	}
}

func (e *entry) keepUntil() clock.Instant { return e.now().Add(2 * e.holder.TTL()) }

// distribute hands out what a reply brought; waited is what of it was drawn for requests that wait.
func (e *entry) distribute(now clock.Instant, got lease.Accepted, waited drawn, seq int64) {
	left, reserved := got.Waited, got.Reserved
	for w := e.queue.head; w != nil; {
		next := w.next
		if now >= w.until {
			e.forfeit(w)
		}
		w.until = e.keepUntil()
		own := int64(0)
		if w.asked == seq {
			own = min(left, w.lacks())
		}
		if w.patient {
			left -= own
			e.give(w, own, &waited, got.Drawn)
			n := min(reserved, w.lacks())
			reserved -= n
			e.givePooled(w, n, got.Epoch, got.Drawn)
			if e.gather(w); w.lacks() > 0 {
				break
			}
			e.settle(w, true, true)
		} else if rest := w.lacks() - own; e.covers(rest, reserved) {
			if rest <= reserved {
				reserved -= rest
			}
			left -= own
			e.give(w, own, &waited, got.Drawn)
			e.givePooled(w, rest, got.Epoch, got.Drawn)
			e.settle(w, true, true)
		}
		w = next
	}
	for w := e.queue.head; w != nil && left > 0; w = w.next {
		if w.asked == seq {
			n := min(left, w.lacks())
			e.give(w, n, &waited, got.Drawn)
			left -= n
		}
	}
	e.fleet.books.audit.close(e.key, waited, false)
	e.undraw(left, got.Drawn)
	e.putBack(reserved, got.Epoch, got.Drawn)
}

// covers takes rest tokens from the pool unless what was reserved has as many.
func (e *entry) covers(rest, reserved int64) bool {
	if rest <= reserved {
		return true
	}
	_, ok := e.takeFor(rest)
	return ok
}

// fill serves the queue from the pool.
func (e *entry) fill() {
	for w := e.queue.head; w != nil; {
		next := w.next
		if w.patient {
			if e.gather(w); w.lacks() > 0 {
				return
			}
			e.settle(w, true, true)
		} else if lacks := w.lacks(); e.covers(lacks, 0) {
			e.givePooled(w, lacks, e.holder.Pool.Epoch(), e.holder.Drawn())
			e.settle(w, true, true)
		}
		w = next
	}
}

// turnAway ends, after a reply, the waits that are in vain.
func (e *entry) turnAway(now clock.Instant, seq int64) {
	if e.holder.Outdated() {
		return
	}
	ahead := int64(0)
	capacity := e.holder.Capacity()
	for w := e.queue.head; w != nil; {
		next := w.next
		switch {
		case w.request.n > capacity:
			e.settle(w, false, true)
		case !w.patient && w.asked != seq && e.queue.patients == 0 && e.holder.Spares(w.request.n):
			// It came during a call for a larger one; askAgain.
		case !w.patient && now < e.holder.DeniedUntil():
			e.settle(w, false, true)
		case !w.patient:
		case e.inVain(now, ahead+w.lacks(), w.deadline):
			e.settle(w, false, true)
		default:
			ahead += w.lacks()
		}
		w = next
	}
	e.fill()
	e.askAgain(now)
}

// askAgain ends the delay of a larger request that has left.
func (e *entry) askAgain(now clock.Instant) {
	if w := e.queue.head; w != nil && now < e.holder.DeniedUntil() && e.holder.Spares(w.lacks()) {
		e.holder.Retry()
		e.kick(true)
	}
}

// serveWithout decides for those who wait without the store, and says when to ask again.
func (e *entry) serveWithout(now clock.Instant) (next clock.Instant) {
	next = lease.Never
	blocked := false
	for w := e.queue.head; w != nil; {
		following := w.next
		if w.patient && !blocked {
			e.gather(w)
		}
		if !blocked && w.lacks() == 0 {
			e.settle(w, true, true)
		} else if !blocked && e.admitWithout(now, w.request.n) {
			e.settle(w, true, false)
		} else if !w.patient {
			e.settle(w, false, false)
		} else if at, ok := e.holder.FallbackAt(now, w.request.n); !ok {
			e.settle(w, false, false)
		} else if !blocked {
			blocked, next = true, max(at, now.Add(batchPause))
		}
		w = following
	}
	return next
}

// ended is the event of the end of w's wait.
func (w *waiter) ended(ev event) {
	switch {
	case w.endSeq != ev.seq:
	case w.e.p.pausedUntil > 0:
		w.endSeq = w.e.fleet.time.at(w.e.p.resumed(), evWaitEnd, w.id)
	default:
		w.e.waitEnded(w)
	}
}

// waitEnded ends w's wait after CallTimeout or at its deadline.
func (e *entry) waitEnded(w *waiter) {
	now := e.now()
	if w.patient {
		e.settle(w, false, true)
		e.fill()
		e.askAgain(now)
	} else {
		e.settle(w, e.admitWithout(now, w.request.n), false)
	}
	e.kick(false)
}
