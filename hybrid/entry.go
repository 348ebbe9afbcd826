package hybrid

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// entry is one key in use: a protocol.Client behind a lock.
type entry struct {
	l    *Limiter
	slot *slot

	client protocol.Client                // its Pool, Low and ShutUntil are used without the lock
	heard  atomic.Pointer[protocol.Heard] // from the last reply; nil before the first
	node   atomic.Pointer[node]           // of the store
	calls  atomic.Pointer[node]           // the node that has admitted the last call
	woken  atomic.Bool                    // is on the scheduler's ready list

	mu       sync.Mutex
	denied   bool          // the last request that its pool did not serve was denied; see Joined.scarcest
	leaving  bool          // Shutdown waits for this entry
	crowded  bool          // see warnCrowd
	given    bool          // its limits are those of a KeyWith, which Refresh leaves alone
	asked    int64         // the number of the Refresh before which LimitsFor was asked
	flight   *lease.Call   // under way; nil once it is answered or overdue
	reopener clock.Timer   // ends the denial in advance; nil before the first
	heardAt  clock.Instant // when the capacity was last heard
	endings  chan struct{} // closed when a call ends, or the entry; nil where nobody waits for that
	outage   *outage       // that this key is part of; nil while calls succeed
	failedAt clock.Instant // when that began
	counted  uint64        // the last Stats that looked at this entry

	voided    int64 // of the tokens burnt: the bucket did not know the lease
	burntTold int64 // tokens burnt when that was last announced

	// The scheduler's own.
	due      clock.Instant
	index    int  // in its heap; -1 for none
	pressing bool // somebody waits for its next call

	// Guarded by the scheduler's lock.
	readyNext *entry
	isReady   bool
	urgent    bool // somebody waits
}

// entry is the entry of a key that is in use, or comes back into use now, or comes into the table
// now. Without create it is nil for a key that the table does not have.
func (l *Limiter) entry(name string, create bool) (*entry, error) {
	return l.entryOf(name, create, nil)
}

// entryOf is entry for a request that came by k; nil where it came by name.
func (l *Limiter) entryOf(name string, create bool, k *Key) (*entry, error) {
	if err := l.checkGiven(k); err != nil {
		return nil, err
	}
	for {
		s := l.keys.load(name)
		if s == nil && !create {
			if s = l.keys.find(name); s == nil {
				return nil, nil
			}
		}
		if s != nil {
			if e := s.entry.Load(); e != nil {
				return e, nil
			}
		}
		own, err := l.proposedFor(s, name, k)
		if err == nil && s == nil {
			s, err = l.addSlot(name)
		}
		if err != nil {
			return nil, err
		}
		if e := l.rouse(s, own); e != nil {
			if l.refreshes.Load() != own.asked {
				_ = l.refresh(e, name) // what LimitsFor said may have been outdated already
			}
			return e, nil
		}
	}
}

// addSlot is the slot of a key that has none.
func (l *Limiter) addSlot(name string) (*slot, error) {
	if l.keys.size.Load() >= int64(l.cfg.KeysMax) && !l.makeRoom() {
		return nil, fmt.Errorf("%w: all of KeysMax (%d) keys are in use", ErrUnavailable, l.cfg.KeysMax)
	}
	return l.keys.add(name), nil
}

// rouse is the entry of a key that was at rest or is new, for which this process proposes own. It
// is nil where the slot has left the table.
func (l *Limiter) rouse(s *slot, own proposed) *entry {
	e := &entry{l: l, slot: s, index: -1, given: own.given, asked: own.asked}
	e.client.Start(l.cfg.Clock.Now(), e, protocol.ClientConfig{
		ID:          *l.id.Load(),
		Policy:      &l.cfg.Policy,
		Proposed:    *own.config,
		CallTimeout: l.cfg.CallTimeout,
		Seed:        rand.Uint64(),
		Stripes:     runtime.GOMAXPROCS(0),
	})
	have, took := l.keys.idle.rouse(s, e)
	switch {
	case have == nil:
		l.keys.remove(s)
	case have == e && l.state.Load() != stateOpen && (took == nil || l.state.Load() == stateClosed):
		e.close() // Close or Shutdown may have come too early to see it; Shutdown sees all with a draw
	case have == e:
		if took != nil {
			e.timeOut(took)
		}
		e.Wake(false) // so that it goes to rest even if it never needs a call
	}
	return have
}

// take takes n tokens from the pool, if there is an entry. It is the hot path.
func (e *entry) take(n int64) bool {
	if e == nil || n <= 0 {
		return false
	}
	var t pool.Taken
	switch {
	case e.l.cfg.Policy.StrictExpiry:
		t = e.client.Pool.TakeStrict(n, e.l.cfg.Clock)
	case n == 1:
		t = e.client.Pool.Take()
	default:
		t = e.client.Pool.TakeN(n)
	}
	if t == pool.TookLow {
		e.low()
	}
	return t.OK()
}

// low starts a prefetch.
func (e *entry) low() {
	e.client.Low()
	e.Wake(false)
}

// poll asks the client whether a call is due, and when to ask again at the latest.
func (e *entry) poll(now clock.Instant) (call bool, next clock.Instant) {
	defer e.l.herald.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken.Store(false)
	if e.client.Closed() {
		return false, protocol.Never
	}
	due := e.client.Tick(now, e.node.Load().rtt())
	e.announceLost(LossExpired)
	if e.client.Closed() {
		e.endLocked()
		return false, protocol.Never
	}
	switch due.Use {
	case protocol.InUse:
		e.l.keys.idle.remove(e.slot)
	case protocol.UseEnded:
		e.l.keys.idle.push(e.slot, now, e.client.Lifetime())
	case protocol.Restable:
		if e.restLocked(now) {
			return false, protocol.Never
		}
	}
	return due.Call, due.At
}

// build opens the call, which n has admitted; nil where the entry has closed meanwhile or its call
// has just been built.
func (e *entry) build(n *node, now clock.Instant) *lease.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != nil {
		return nil
	}
	e.calls.Store(n)
	r := e.client.Build(now, e.l.nextSeq(), n.rtt())
	// A Call of its own for each: the store may still be filling that of an overdue one.
	e.flight = &lease.Call{Key: e.l.storedKey(e.slot.name), Request: *r, Node: int(n.number), Owner: e}
	return e.flight
}

// admitted reports whether n, which is e's node, takes a call now, and if not when to ask again. An
// entry that leaves gives nothing back to a node that is away, as nobody waits for that.
func (e *entry) admitted(n *node, now clock.Instant) (ok bool, again clock.Instant) {
	defer e.l.herald.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false, protocol.Never
	}
	if n.breaker.Admit(now) {
		return true, 0
	}
	e.sufferLocked(now)
	again = n.breaker.Turn(now)
	if e.client.Pool.Held() > 0 {
		again = min(again, e.client.Deadline())
	}
	if e.leaving && n.breaker.Away(now) {
		e.failLocked(now, n.why())
	}
	e.tellEndedLocked()
	return false, again
}

// close ends the entry at once.
func (e *entry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return
	}
	if e.leaving && !e.client.Idle() {
		e.l.notGivenBack.Add(1) // Close cuts Shutdown short
	}
	e.endLocked()
}

// leave starts giving everything back, for Shutdown.
func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.Closed() {
		e.leaving = true
		e.l.leaving.Add(1)
		e.client.Leave()
	}
}

// endLocked ends the entry, once, and tells the rest of the Limiter. A Key that still points to it
// finds out with its next request.
func (e *entry) endLocked() {
	e.client.Close()
	e.tellEndedLocked()
	e.failsNoMoreLocked(0, false)
	if e.leaving {
		e.l.leaving.Done()
	}
	e.l.counters.retire(e)
}

// Waiting implements lease.Awaited.
func (e *entry) Waiting(most int) (all []context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.Waiters(func(w *protocol.Waiter) {
		if len(all) < most {
			all = append(all, w.Owner.(*waiter).ctx)
		}
	})
	return all
}

// The methods that make an entry a protocol.Host. The lock is held when they are called.

// Now implements protocol.Host.
func (e *entry) Now() clock.Instant { return e.l.cfg.Clock.Now() }

// Wake implements protocol.Host: it has the scheduler ask e soon, urgently where somebody waits. It
// needs no lock.
func (e *entry) Wake(urgent bool) {
	if !e.woken.Swap(true) || urgent {
		e.l.scheduler.add(e, urgent)
	}
}

// Shut implements protocol.Host with a timer of the entry's own, as the scheduler may be busy when the
// time has come. It is for Allow, which does not read the clock.
func (e *entry) Shut(until clock.Instant) {
	switch {
	case until == 0:
		e.reopener.Stop()
	case e.reopener == nil:
		e.reopener = e.l.cfg.Clock.AfterFunc(until.Sub(e.Now()), func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.client.Reopen(e.Now())
		})
	default:
		e.reopener.Reset(until.Sub(e.Now()))
	}
}

// Handed and Forfeited implement protocol.Host.
func (e *entry) Handed(*protocol.Waiter, int64, protocol.Origin) {}
func (e *entry) Forfeited(*protocol.Waiter)                      {}

// Settled implements protocol.Host.
func (e *entry) Settled(w *protocol.Waiter, d protocol.Decision) {
	e.countSource(d)
	switch {
	case d.Verdict == protocol.VerdictClosed, d.Verdict == protocol.VerdictExceedsBurst:
		e.client.Uncount(w.N) // no limit has denied it
	case d.Verdict == protocol.VerdictCancelled && e.l.cfg.Policy.Shadow:
		e.client.Uncount(w.N) // or it would count as shadowed
		e.l.counters.ended.Add(w.N)
	}
	w.Owner.(*waiter).told <- d
}

// Breaker implements protocol.Host.
func (e *entry) Breaker() *protocol.Breaker { return e.node.Load().breaker }

// NewID implements protocol.Host.
func (e *entry) NewID() string {
	id := e.l.instance + "." + randomText()
	e.l.id.Store(&id) // the clone calls for other keys too
	return id
}
