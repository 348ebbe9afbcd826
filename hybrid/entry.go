package hybrid

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// entry is one key in use: a lease.Client behind a lock, and what the rest of the Limiter keeps of
// the key.
type entry struct {
	l    *Limiter
	slot *slot

	client lease.Client                // its Pool, Low and ShutUntil are used without the lock
	heard  atomic.Pointer[lease.Heard] // from the last reply; nil before the first
	node   atomic.Int32                // of the store; nodeUnknown before the first answer
	woken  atomic.Bool                 // is on the scheduler's ready list

	mu       sync.Mutex
	gone     bool          // left the table, or its key went to rest: another entry takes its place
	missed   int64         // by the pool, when it went
	flight   *lease.Call   // under way; nil once it is answered or overdue
	reopener clock.Timer   // ends the denial in advance; nil before the first
	renames  int           // how often another process turned out to use the instance id
	heardAt  clock.Instant // when the capacity was last heard
	leaver   *leaver       // while Shutdown waits for this entry
	endings  chan struct{} // closed when a call ends, or the entry; nil where nobody waits for that
	outage   *outage       // that this key is part of; nil while calls succeed
	counted  uint64        // the last Stats that looked at this entry

	// The scheduler's own.
	due      clock.Instant
	index    int    // in its heap; -1 for none
	calledIn uint64 // the last round in which it had a call due
	pressing bool   // somebody waits for its next call

	// Guarded by the scheduler's lock.
	readyNext *entry
	isReady   bool
	urgent    bool // somebody waits
}

// take is the hot path.
func (e *entry) take(n int64, strict bool) bool {
	var t lease.Taken
	switch {
	case strict:
		t = e.client.Pool.TakeStrict(n, e.l.cfg.Clock)
	case n == 1:
		t = e.client.Pool.Take()
	default:
		t = e.client.Pool.TakeN(n)
	}
	if t == lease.TookLow {
		e.low()
	}
	return t.Ok()
}

// low starts a prefetch.
func (e *entry) low() {
	e.client.Low()
	e.wake(false)
}

// wake has the scheduler ask e soon, urgently where somebody waits. It needs no lock.
func (e *entry) wake(urgent bool) {
	if !e.woken.Swap(true) || urgent {
		e.l.scheduler.add(e, urgent)
	}
}

// rtt is the 99th percentile of the round trips to e's node.
func (e *entry) rtt() time.Duration { return e.l.nodes.of(int(e.node.Load())).rtt() }

// poll asks the client whether a call is due, and when to ask again at the latest.
func (e *entry) poll(now clock.Instant) (call bool, next clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken.Store(false)
	if e.client.Closed() {
		return false, lease.Never
	}
	due := e.client.Tick(now, e.rtt())
	if e.client.Closed() {
		e.endedLocked()
		return false, lease.Never
	}
	idle := &e.l.keys.idle
	switch due.Use {
	case lease.InUse:
		idle.remove(e.slot)
	case lease.UseEnded:
		idle.remove(e.slot)
		idle.push(e.slot, now, e.client.Lifetime())
	case lease.Restable:
		if e.restLocked(now) {
			return false, lease.Never
		}
	}
	return due.Call, due.At
}

// build opens the call; nil where the entry has closed meanwhile or its call has just been built.
func (e *entry) build(now clock.Instant) *lease.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != nil {
		return nil
	}
	r := e.client.Build(now, e.l.nextSeq(), e.rtt())
	// A Call of its own for each: the store may still be filling that of an overdue one.
	e.flight = &lease.Call{Key: e.slot.name, Request: *r, Node: int(e.node.Load()), Owner: e}
	return e.flight
}

// close ends the entry at once.
func (e *entry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return
	}
	if e.leaver != nil && !e.client.Idle() {
		e.leaver.failed.Add(1) // Close cuts Shutdown short
	}
	e.client.Close()
	e.endedLocked()
}

// leave starts giving everything back, for Shutdown.
func (e *entry) leave(lv *leaver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		lv.done()
		return
	}
	e.leaver = lv
	e.client.Leave()
}

// endedLocked tells the rest of the Limiter that the client has ended.
func (e *entry) endedLocked() {
	e.tellEndedLocked()
	e.failsNoMoreLocked(0, false)
	if e.leaver != nil {
		e.leaver.done()
	}
}

// The methods that make an entry a lease.Host. The lock is held when they are called.

// Now implements lease.Host.
func (e *entry) Now() clock.Instant { return e.l.cfg.Clock.Now() }

// Wake implements lease.Host.
func (e *entry) Wake(urgent bool) { e.wake(urgent) }

// Shut implements lease.Host with a timer of the entry's own, because the scheduler may be busy
// when the time has come, and is never as far when clock.Manual's Advance returns.
func (e *entry) Shut(until clock.Instant) {
	switch {
	case until == 0:
		e.reopener.Stop()
	case e.reopener == nil:
		e.reopener = e.l.cfg.Clock.AfterFunc(until.Sub(e.Now()), e.reopen)
	default:
		e.reopener.Reset(until.Sub(e.Now()))
	}
}

// reopen ends the denial in advance in time for those who do not read the clock, which is Allow
// alone.
func (e *entry) reopen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.Reopen(e.Now())
}

// Handed implements lease.Host.
func (e *entry) Handed(*lease.Waiter, int64, lease.Origin) {}

// Forfeited implements lease.Host.
func (e *entry) Forfeited(*lease.Waiter) {}

// Settled implements lease.Host.
func (e *entry) Settled(w *lease.Waiter, d lease.Decision) {
	e.countFallback(d, w.N)
	w.Owner.(chan lease.Decision) <- d
}

// NewID implements lease.Host: another process, such as a clone of this one's machine, calls under
// the same id.
func (e *entry) NewID() string {
	e.renames++
	id := e.l.instance + "." + strconv.Itoa(e.renames) + "." + strconv.FormatUint(e.l.nextSeed(), 36)
	e.l.id.Store(&id) // the clone calls for other keys too
	return id
}
