package hybrid

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// distribute hands out what a reply brought, first in first out: the tokens drawn for waiting requests to those
// that the call counted, and only to them, what was reserved to the patient ones, the pool's to all. A request of
// Allow that cannot have all of its tokens stands in nobody's way; a patient one takes what there is and is waited
// for. A token whose request has gone travels back.
func (e *entry) distribute(now clock.Instant, got lease.Accepted, seq int64) {
	left, reserved := got.Waited, got.Reserved
	for w := e.queue.head; w != nil; {
		next := w.next
		if now >= w.until {
			e.forfeit(w)
		}
		w.until = e.keepUntil(now)
		own := int64(0)
		if w.asked == seq {
			own = min(left, w.lacks())
		}
		if w.patient {
			left -= own
			e.queue.give(w, own, got.Drawn)
			n := min(reserved, w.lacks())
			reserved -= n
			e.queue.givePooled(w, n, got.Epoch, got.Drawn)
			if e.gather(w); w.lacks() > 0 {
				break
			}
			e.settle(w, outcome{ok: true, source: SourceStore})
		} else if rest := w.lacks() - own; rest <= reserved || e.takeQueued(rest) {
			if rest <= reserved {
				reserved -= rest
			}
			left -= own
			e.queue.give(w, own, got.Drawn)
			e.settle(w, outcome{ok: true, source: SourceStore})
		}
		w = next
	}
	for w := e.queue.head; w != nil && left > 0; w = w.next {
		if w.asked == seq {
			n := min(left, w.lacks())
			e.queue.give(w, n, got.Drawn)
			left -= n
		}
	}
	e.undraw(left, got.Drawn)
	e.putBack(reserved, got.Epoch, got.Drawn)
}

// fill serves the queue from the pool, where tokens have come back to it.
func (e *entry) fill() {
	for w := e.queue.head; w != nil; {
		next := w.next
		if w.patient {
			if e.gather(w); w.lacks() > 0 {
				return
			}
			e.settle(w, outcome{ok: true})
		} else if e.takeQueued(w.lacks()) {
			e.settle(w, outcome{ok: true})
		}
		w = next
	}
}

// gather gives a patient request what the pool has, up to what it lacks.
func (e *entry) gather(w *waiter) {
	for w.lacks() > 0 {
		n := min(w.lacks(), e.holder.Pool.Held())
		if n == 0 {
			return
		}
		if epoch, ok := e.takeIn(n); ok {
			if w.got == 0 {
				w.until = e.keepUntil(e.l.cfg.Clock.Now())
			}
			e.queue.givePooled(w, n, epoch, e.holder.Drawn())
		}
	}
}

// takeQueued takes n tokens or none from the pool. The caller holds the lock.
func (e *entry) takeQueued(n int64) bool {
	_, ok := e.takeIn(n)
	return ok
}

// takeIn takes n tokens or none for a request that was counted as missed, and says in which report interval.
func (e *entry) takeIn(n int64) (lease.Epoch, bool) {
	epoch, ok := e.holder.Pool.TakeQueued(n)
	if ok && e.l.cfg.Policy.StrictExpiry && e.holder.Deadline() <= e.l.cfg.Clock.Now() {
		e.holder.PutBack(n, epoch, e.holder.Drawn()) // to be burnt by Expire: no report comes between
		e.holder.Expire(e.l.cfg.Clock.Now())
		return 0, false
	}
	if ok {
		e.holder.Served(n)
	}
	return epoch, ok
}

// undraw gives back n tokens that were drawn for requests that are not admitted.
func (e *entry) undraw(n int64, drawn lease.Drawn) {
	e.holder.Unused(n, drawn)
	e.holder.Served(-n)
}

// putBack is undraw for tokens that came through the pool in an epoch. One whose time has passed meanwhile may not be
// seen in the pool again, not even for a moment.
func (e *entry) putBack(n int64, epoch lease.Epoch, drawn lease.Drawn) {
	if e.l.cfg.Clock.Now() >= e.holder.Deadline() {
		e.undraw(n, drawn)
		return
	}
	e.holder.PutBack(n, epoch, drawn)
	e.holder.Served(-n)
}

// keepUntil is how long a waiting request keeps what it has gathered, counted from the last reply: there is one in
// every T, and who waits through an outage starts again after it, for the bucket has forgotten what it leased.
func (e *entry) keepUntil(now clock.Instant) clock.Instant { return now.Add(2 * e.holder.TTL()) }

// forfeit burns what w has gathered, because nothing was heard of the bucket for too long.
func (e *entry) forfeit(w *waiter) {
	e.holder.Forfeit(w.got)
	e.holder.Served(-w.got)
	e.queue.give(w, -w.got, w.drawn)
	w.pooled = 0
}

// settle takes w off the queue and tells it out.
func (e *entry) settle(w *waiter, out outcome) {
	unused := !out.ok || out.source == SourceFallback
	if unused && e.l.cfg.Clock.Now() >= w.until {
		e.forfeit(w)
	}
	e.queue.remove(w)
	if unused {
		e.undraw(w.got-w.pooled, w.drawn)
		e.putBack(w.pooled, w.epoch, w.drawn)
	}
	w.told = true
	w.ready <- out
}

func (e *entry) settleAll(out outcome) {
	for e.queue.head != nil {
		e.settle(e.queue.head, out)
	}
}

// turnAway ends, after a reply, the waits that are in vain: where the limit has become smaller than the request, of
// Allow where the bucket is known to be empty for now, of Wait where the deadline cannot be met.
func (e *entry) turnAway(now clock.Instant, seq int64) {
	if e.holder.Outdated() || e.resets > 0 {
		return // the next reply tells
	}
	ahead := int64(0)
	capacity := e.capacity.Load()
	for w := e.queue.head; w != nil; {
		next := w.next
		switch {
		case w.n > capacity:
			e.settle(w, outcome{err: errExceedsBurst(w.n, capacity)})
		case !w.patient && w.asked != seq && e.queue.patients == 0 && e.holder.Spares(w.n):
			// It came during a call for a larger one; askAgain.
		case !w.patient && now < e.holder.DeniedUntil():
			e.settle(w, outcome{source: SourceStore})
		case !w.patient:
		default:
			if err := e.inVain(now, ahead+w.lacks(), w.deadline); err != nil {
				e.settle(w, outcome{err: err})
			} else {
				ahead += w.lacks()
			}
		}
		w = next
	}
	e.fill() // with what those who left had gathered
	e.askAgain(now)
}

// askAgain ends the delay of a larger request that has left, where the bucket is known to have enough for the next.
func (e *entry) askAgain(now clock.Instant) {
	if w := e.queue.head; w != nil && now < e.holder.DeniedUntil() && e.holder.Spares(w.lacks()) {
		e.endDelay()
		e.kick(true)
	}
}

// serveWithout decides for those who wait without the store, first in first out, and says when to ask again for
// those who may wait for the local share.
func (e *entry) serveWithout(now clock.Instant) (next clock.Instant) {
	next = lease.Never
	blocked := false
	for w := e.queue.head; w != nil; {
		following := w.next
		if w.patient && !blocked {
			e.gather(w) // what the one before had gathered, if the fallback served it
		}
		if !blocked && w.lacks() == 0 {
			e.settle(w, outcome{ok: true})
		} else if !blocked && e.admitWithout(now, w.n) {
			e.settle(w, outcome{ok: true, source: SourceFallback})
		} else if !w.patient {
			e.settle(w, outcome{source: SourceFallback})
		} else if at, ok := e.holder.FallbackAt(now, w.n); !ok {
			e.settle(w, outcome{err: errAway})
		} else if !blocked {
			// Not now: what was refused for any other reason would be asked again and again.
			blocked, next = true, max(at, now.Add(gather))
		}
		w = following
	}
	return next
}

// expire ends w's wait after CallTimeout.
func (e *entry) expire(w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !w.told {
		e.settle(w, outcome{ok: e.admitWithout(e.l.cfg.Clock.Now(), w.n), source: SourceFallback})
		e.kick(false) // there may be something to give back now
	}
}

// abandon ends w's wait because its context ended, unless it was told something in the same moment.
func (e *entry) abandon(w *waiter, err error) outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !w.told {
		e.settle(w, outcome{err: err})
		e.fill()
		e.askAgain(e.l.cfg.Clock.Now())
		e.kick(false) // there may be something to give back now
	}
	return <-w.ready
}

// errAway is what a request that waits is told where the store is away and the fallback does not help.
var errAway = fmt.Errorf("%w: and Policy.Fallback gives nothing", ErrUnavailable)

func errExceedsBurst(n, capacity int64) error {
	return fmt.Errorf("%w: n is %d, the burst is %d", ErrExceedsBurst, n, capacity)
}
