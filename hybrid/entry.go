package hybrid

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// entry is one key in use: a protocol.Client behind a lock.
type entry struct {
	m    *member
	slot *slot

	client   protocol.Client                // the key's state machine; Pool, Low and DeniesOneUntil need no lock
	heard    atomic.Pointer[protocol.Heard] // the last reply; nil before the first
	node     atomic.Pointer[storeNode]
	callNode atomic.Pointer[storeNode] // node that admitted the last call
	woken    atomic.Bool               // whether the entry is on the scheduler's ready list

	mu        sync.Mutex
	denied    bool          // whether the last request that the pool did not serve was denied
	leaving   bool          // whether Shutdown waits for this entry
	crowded   bool          // whether the burst is too small for Policy.CallsPerSecond
	byHandle  bool          // whether the limits come from KeyWithLimits, so that Refresh keeps them
	refreshes int64         // number of Refresh calls when LimitsFor last ran
	flight    *lease.Call   // call under way; nil once the call was answered or has failed
	reopener  clock.Timer   // timer that ends a period of denials; nil before its first use
	heardAt   clock.Instant // time when the store last reported the burst
	endings   chan struct{} // closed when a call or the entry ends; nil without a waiting Reset
	seen      uint64        // number of the last Stats call that counted the entry

	voided         int64 // tokens burnt because the bucket did not know the lease
	burntAnnounced int64 // burnt tokens that Events.Lost has announced

	// Only the scheduler's goroutine uses due, index and pressing.
	due      clock.Instant
	index    int  // index in the scheduler's heap; -1 outside of the heap
	pressing bool // whether a request waits for the next call

	// The scheduler's lock guards readyNext, isReady and urgent.
	readyNext *entry
	isReady   bool
	urgent    bool // whether a request waits
}

type waiter struct {
	protocol.Waiter
	answer chan protocol.Decision
	ctx    context.Context
}

func (e *entry) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// whileOpen calls f with e's lock, unless e has ended, and reports whether it has called f.
func (e *entry) whileOpen(f func()) (open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if open = !e.client.Closed(); open {
		f()
	}
	return open
}

// take takes n tokens from e's pool, on the hot path. take returns false if e is nil.
func (e *entry) take(n int64) bool {
	if e == nil || n <= 0 {
		return false
	}
	var t pool.Taken
	switch {
	case e.m.cfg.Policy.StrictExpiry:
		t = e.client.Holder.Pool.TakeStrict(n, e.m.cfg.Clock)
	case n == 1:
		t = e.client.Holder.Pool.Take()
	default:
		t = e.client.Holder.Pool.TakeN(n)
	}
	if t == pool.TookLow {
		e.low()
	}
	return t.OK()
}

// finishTake finishes a take of one token that Pool.Begin did not complete.
func (e *entry) finishTake(left, mark int64) bool {
	p := &e.client.Holder.Pool
	if mark == pool.MarkStriped {
		i := pool.Pin()
		ok := p.TakeAt(i)
		pool.Unpin(i)
		if ok {
			return true
		}
	}
	t := p.End(left, mark)
	if t == pool.TookLow {
		e.low()
	}
	return t.OK()
}

func (e *entry) low() {
	e.client.Low()
	e.Wake(false)
}

// poll reports whether e has a call due, and returns the latest time for the next poll.
func (e *entry) poll(now clock.Instant) (call bool, next clock.Instant) {
	defer e.m.observer.queue.Run()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken.Store(false)
	if e.client.Closed() {
		return false, protocol.Never
	}
	e.locateLocked()
	due := e.client.Tick(now, e.node.Load().rtt())
	if e.client.Failures.Degraded() { // Reset does not wait while the node is away
		e.callEndedLocked()
	}
	e.lostLocked(LossExpired)
	if e.client.Closed() {
		e.endLocked()
		return false, protocol.Never
	}
	switch due.Use {
	case protocol.InUse:
		e.m.keys.idle.remove(e.slot)
	case protocol.UseEnded:
		e.m.keys.idle.push(e.slot, now, e.client.Lifetime())
	case protocol.Restable:
		if e.restLocked(now) {
			return false, protocol.Never
		}
	}
	return due.Call, due.At
}

// restLocked ends an unused entry and keeps its state in the slot, or returns false if state would be lost.
func (e *entry) restLocked(now clock.Instant) bool {
	lifetime := e.client.Lifetime()
	m, ok := e.client.Rest()
	if !ok {
		return false
	}
	e.endLocked()
	s, idle := e.slot, &e.m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	s.key.Rest(m, e.denied)
	s.key.Node = e.node.Load().number
	s.entry.Store(nil)
	if s.next == nil { // a concurrent pop may have unlinked s; drop then keeps s
		idle.linkLocked(s, now, lifetime)
	}
	return true
}

func (e *entry) timeOut(w *protocol.Waiter, after time.Duration) clock.Timer {
	return e.m.cfg.Clock.AfterFunc(after, func() { e.with(func() { e.client.TimeOut(e.Now(), w) }) })
}

func (e *entry) close() {
	e.whileOpen(func() {
		if e.leaving && !e.client.Idle() {
			e.m.lost.Add(1) // Close ends a Shutdown early
		}
		e.endLocked()
	})
}

func (e *entry) leave() {
	e.whileOpen(func() {
		e.leaving = true
		e.m.leaving.Add(1)
		e.client.Leave()
	})
}

// endLocked ends e. A handle that points to e finds the key's new entry at its next request.
func (e *entry) endLocked() {
	e.client.Close()
	e.callEndedLocked()
	if e.leaving {
		e.m.leaving.Done()
	}
	e.m.observer.retire(e.tally, e.seen, e.client.Denials.Collect)
}

func (e *entry) tally() tally {
	return tally{e.client.Holder.Account(), e.client.Denials.Count(), e.voided}
}

func (e *entry) addTo(st *Stats) {
	e.whileOpen(func() {
		if !e.m.observer.addToSum(e.tally, &e.seen, e.client.Denials.Collect, e.client.Limits()) {
			return
		}
		e.client.Line.Waiters(func(*protocol.Waiter) { st.Waiting++ })
		st.InUse++
		if e.client.Failures.Degraded() {
			st.Degraded++
		}
	})
}

func (e *entry) lostLocked(reason LossReason) {
	burnt := e.client.Holder.Account().Burnt
	e.m.observer.lost(e.slot.name, burnt-e.burntAnnounced, reason)
	e.burntAnnounced = burnt
}

// outlook returns the values of a Result for n tokens. outlook takes no lock after the first reply.
func (e *entry) outlook(n int64, admitted bool) protocol.Outlook {
	held := e.client.Holder.Pool.Held()
	if h := e.heard.Load(); h != nil {
		return h.Outlook(e.Now(), n, held, admitted)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st := lease.Status{Config: lease.Config{Limits: e.client.Limits()}}
	return protocol.StateOutlook(&st, n, held, e.m.cfg.Policy.Headroom, admitted)
}

func (e *entry) limits() []Limit {
	if h := e.heard.Load(); h != nil {
		return h.Limits()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.client.Heard(); h.Replied() { // a draw of the key had a reply before e began
		return e.client.Limits()
	}
	return nil
}

func (e *entry) smallest() Limit {
	e.mu.Lock()
	defer e.mu.Unlock()
	least := e.client.Limits()[0]
	for _, l := range e.client.Limits() {
		if l.Capacity() < least.Capacity() {
			least = l
		}
	}
	return least
}

// Waiting implements lease.Awaited.
func (e *entry) Waiting(most int) (all []context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.Line.Waiters(func(w *protocol.Waiter) {
		if len(all) < most {
			all = append(all, w.Owner.(*waiter).ctx)
		}
	})
	return all
}

// The methods below implement protocol.Host, whose callers hold the entry's lock.

// Now implements protocol.Host.
func (e *entry) Now() clock.Instant { return e.m.cfg.Clock.Now() }

// Wake implements protocol.Host: Wake makes the scheduler poll e soon, and needs no lock.
func (e *entry) Wake(urgent bool) {
	if !e.woken.Swap(true) || urgent {
		e.m.scheduler.add(e, urgent)
	}
}

// DeniesOne implements protocol.Host. A timer ends the denials in time even if the scheduler is busy.
func (e *entry) DeniesOne(until clock.Instant) {
	switch {
	case until == 0:
		e.reopener.Stop()
	case e.reopener == nil:
		e.reopener = e.m.cfg.Clock.AfterFunc(until.Sub(e.Now()), func() {
			e.with(func() { e.client.Reopen(e.Now()) })
		})
	default:
		e.reopener.Reset(until.Sub(e.Now()))
	}
}

// Handed, Passed and Forfeited implement protocol.Host.
func (e *entry) Handed(*protocol.Waiter, int64, protocol.Origin) {}
func (e *entry) Passed(_, _ *protocol.Waiter, _ int64)           {}
func (e *entry) Forfeited(*protocol.Waiter)                      {}

// Settled implements protocol.Host.
func (e *entry) Settled(w *protocol.Waiter, d protocol.Decision) {
	e.countLocked(d, w.Ask)
	if d.Verdict == protocol.VerdictCancelled && e.m.cfg.Policy.Shadow && !w.Uncounted {
		e.m.observer.ended.Add(w.N)
	}
	w.Owner.(*waiter).answer <- d
}

func (e *entry) countLocked(d protocol.Decision, a protocol.Ask) {
	switch d.Source {
	case SourceFallback:
		n := a.N
		if a.Uncounted {
			n = d.Took
		}
		e.node.Load().fallbacks.count(n, d.Took)
	case SourceStore:
		e.m.observer.awaited.Add(d.Took)
	}
}

func (e *entry) book(n int64, source Source) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if source == SourceFallback {
		e.node.Load().fallbacks.count(n, 0)
	}
	if e.client.Closed() { // the Limiter's counts already include e
		e.m.observer.countDenied(e.client.Limits()[0], n)
		return
	}
	e.client.Denials.Book(n)
}

// Breaker implements protocol.Host.
func (e *entry) Breaker() *protocol.Breaker { return e.node.Load().breaker }

// NewID implements protocol.Host.
func (e *entry) NewID() string {
	id := e.m.instance + "." + randomText()
	e.m.id.Store(&id) // new entries use the new id too, because a clone uses the old id
	return id
}

func (e *entry) bucketChanged(limits []Limit) {
	e.whileOpen(func() {
		e.client.BucketChanged(limits)
		e.heardAt = 0
		e.Wake(true)
	})
}

// refund adds a refund of n tokens to e's next call, or returns false if e has ended. d may be nil.
func (e *entry) refund(n int64, d *pool.Draw) bool {
	return e.whileOpen(func() {
		e.client.Holder.Refund(min(n, e.client.Capacity()), d)
		e.Wake(false)
	})
}

// charge charges up to n tokens and returns their number. ok is false if e has ended.
func (e *entry) charge(n int64) (charged int64, ok bool) {
	ok = e.whileOpen(func() {
		charged = e.client.Charge(e.Now(), n)
		e.Wake(false)
	})
	return charged, ok
}

// beginReset gives back e's holding with a new call, and returns when the call has ended, the node is away or
// ctx ends. No call of e asks for tokens until endReset.
func (e *entry) beginReset(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := int64(0)
	if !e.client.Idle() {
		first = e.m.seq.Load() + 1 // a call under way may have been built before the reset
	}
	e.client.BeginReset(first)
	for !e.client.Closed() && !e.client.Failures.Degraded() && !e.client.HasEnded(first) && ctx.Err() == nil {
		if e.endings == nil {
			e.endings = make(chan struct{})
		}
		ended := e.endings
		if e.flight == nil {
			e.Wake(true)
		}
		e.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

func (e *entry) endReset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.EndReset()
	e.Wake(e.client.Line.HasWaiters())
}

// deniesFor estimates how long e's key denies a request for n tokens: 0 if the key will probably admit the
// request, or if nothing is known. sure means that the key denies without a call. If other processes draw
// from the bucket too, the last denial predicts better than the last reply.
func (e *entry) deniesFor(n int64) (in time.Duration, sure bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	in = e.client.ReadyIn(now, n)
	switch {
	case n > e.client.Capacity():
		return in, true
	case n > e.client.Holder.Pool.Held() && e.client.Failures.Degraded() && e.m.cfg.Policy.Fallback == FallbackDeny:
		return in, true
	case in == math.MaxInt64, in == 1 && !e.denied: // nothing is known, or the bucket should have tokens
		return 0, false
	}
	return in, in > 1 && e.client.State(now) == protocol.StateDenied
}

// deniesNow reports whether e denies every request that does not wait in line.
func (e *entry) deniesNow() bool {
	return e != nil && e.client.Holder.Pool.Denies() && e.Now() < e.client.Denials.DeniesOneUntil()
}

func (e *entry) callEndedLocked() {
	if e.endings != nil {
		close(e.endings)
		e.endings = nil
	}
}

// build returns e's call to node n, or nil if e has ended or has a call under way.
func (e *entry) build(n *storeNode, now clock.Instant) *lease.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != nil {
		return nil
	}
	e.callNode.Store(n)
	r := e.client.Build(now, e.m.nextSeq(), n.rtt())
	// The Call is a new value, because the store may still write to that of an overdue call.
	e.flight = &lease.Call{Key: e.m.storedKey(e.slot.name), Request: *r, Node: int(n.number), Owner: e}
	return e.flight
}

// admit reports whether e's node n takes a call now, and otherwise returns when to ask again. If n is away,
// an entry that leaves fails at once, so that Shutdown does not wait for n.
func (e *entry) admit(n *storeNode, now clock.Instant) (ok bool, again clock.Instant) {
	defer e.m.observer.queue.Run()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false, protocol.Never
	}
	if n.breaker.Admit(now) {
		return true, 0
	}
	if e.leaving && n.breaker.Away() {
		e.failLocked(now, n.lastError())
	}
	return false, e.client.Failures.Turn(now)
}

// turn returns when e may ask its node again to take a call.
func (e *entry) turn(now clock.Instant) clock.Instant {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client.Failures.Turn(now)
}

// locateLocked moves e to the present node of its key if e's node is unknown or away.
func (e *entry) locateLocked() {
	if n := e.node.Load(); !n.isKnown() || n.breaker.Away() {
		e.node.Store(e.m.nodeOf(e.slot.name, int(n.number)))
	}
}

// receive implements caller. A reply to an overdue call counts if no later call was made; an error does not.
func (e *entry) receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64) {
	defer e.m.observer.queue.Run()
	e.whileOpen(func() {
		e.node.Store(n)
		switch {
		case c.Err == nil && e.acceptLocked(c, now):
			e.flight = nil // a late reply to the first call also ends its retry
			granted = c.Grant.Granted
		case c == e.flight:
			e.failLocked(now, cmp.Or(c.Err, errForeign))
		}
		e.callEndedLocked()
		e.Wake(e.leaving || e.client.Line.HasWaiters())
	})
	return granted
}

func (e *entry) name() string { return e.slot.name }

func (e *entry) calledNode() *storeNode { return e.callNode.Load() }

func (e *entry) overdue(c *lease.Call) (underWay bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flight == c && !e.client.Closed()
}

func (e *entry) abandon(c *lease.Call, now clock.Instant, err error) {
	defer e.m.observer.queue.Run()
	e.whileOpen(func() {
		if e.flight == c {
			e.failLocked(now, err)
			e.callEndedLocked()
			e.Wake(e.leaving || e.client.Line.HasWaiters())
		}
	})
}

// acceptLocked handles the reply to c, or returns false if c is not the open call or was answered before.
func (e *entry) acceptLocked(c *lease.Call, now clock.Instant) bool {
	e.lostLocked(LossExpired)
	o, key := e.m.observer, e.slot.name
	burnt, conflict, limits := e.client.Holder.Account().Burnt, e.client.Conflict(), e.client.Limits()
	before := e.client.Heard()
	got, ok := e.client.Accept(now, &c.Grant)
	if !ok {
		return false
	}
	burnt = e.client.Holder.Account().Burnt - burnt
	if c.Grant.Void && burnt > 0 {
		e.voided += burnt
		e.lostLocked(LossVoid)
		o.voided(key, burnt)
	}
	e.lostLocked(LossExpired)
	o.limitsChanged(key, limits, e.client.Limits())
	o.nearlyUsed(key, &c.Grant, now)
	o.lostBucket(key, c, before.Frozen())
	if e.client.Conflict() && !conflict {
		o.conflict(key, e.client.Limits(), c.Grant.Config.Version.Deploy)
	}
	wanted := protocol.BurstWanted(&c.Grant, c.Request.Weight)
	if wanted > 0 && !e.crowded {
		o.crowded(key, c.Grant.Config.CallBudget(), c.Grant.ActiveWeight/c.Request.Weight, wanted)
	}
	e.crowded = wanted > 0
	heard := e.client.Heard()
	e.heard.Store(&heard)
	if !e.client.Outdated() {
		e.heardAt = now
	}
	e.client.Serve(now, got)
	o.slowNetwork(e.client.Limits(), e.node.Load().shortest())
	return true
}

func (e *entry) failLocked(now clock.Instant, err error) {
	e.flight = nil
	e.m.observer.errors.Add(1)
	e.client.Fail(now, err)
	if e.client.Failures.InARow() == 1 {
		e.m.observer.keyFailed(e.slot.name, err)
	}
	if e.client.Closed() {
		e.m.lost.Add(1) // the tokens expire at the store
		e.endLocked()
	}
}

// proposeAgain proposes c unless a later Refresh, with a higher number in refreshes, has proposed already.
func (e *entry) proposeAgain(c *lease.Config, refreshes int64) {
	if !e.byHandle && refreshes >= e.refreshes {
		e.refreshes = refreshes
		e.client.Propose(e.Now(), c)
	}
}

// insist makes e propose c, the configuration of KeyWithLimits.
func (e *entry) insist(c *lease.Config) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byHandle = true
	e.client.Propose(e.Now(), c)
	e.client.Insist(e.Now())
}
