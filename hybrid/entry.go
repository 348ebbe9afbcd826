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

	client  protocol.Client                // its Pool, Low and ShutUntil are used without the lock
	heard   atomic.Pointer[protocol.Heard] // from the last reply; nil before the first
	node    atomic.Pointer[storeNode]      // of the store
	callsOn atomic.Pointer[storeNode]      // the node that has admitted the last call
	woken   atomic.Bool                    // is on the scheduler's ready list

	mu       sync.Mutex
	denied   bool          // the last request that its pool did not serve was denied; see Joined.scarcest
	leaving  bool          // Shutdown waits for this entry
	crowded  bool          // the burst is too small for the fleet's budget of calls
	given    bool          // its limits are those of a KeyWithLimits, which Refresh leaves alone
	asked    int64         // the number of the Refresh before which LimitsFor was asked
	flight   *lease.Call   // under way; nil once it is answered or overdue
	reopener clock.Timer   // ends the denial in advance; nil before the first
	heardAt  clock.Instant // when the capacity was last heard
	endings  chan struct{} // closed when a call ends, or the entry; nil where nothing waits for that
	seen     uint64        // the last Stats that looked at this entry

	voided    int64 // of the tokens burnt: the bucket did not know the lease
	burntTold int64 // tokens burnt when that was last announced

	// The scheduler's own.
	due      clock.Instant
	index    int  // in its heap; -1 for none
	pressing bool // a request waits for its next call

	// Guarded by the scheduler's lock.
	readyNext *entry
	isReady   bool
	urgent    bool // a request waits
}

// with calls f with the lock.
func (e *entry) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// take takes n tokens from the pool, if there is an entry. It is the hot path.
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

// took finishes a take of one token that Begin did not serve.
func (e *entry) took(left, mark int64) bool {
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

// poll asks the client whether a call is due, and when to ask again at the latest.
func (e *entry) poll(now clock.Instant) (call bool, next clock.Instant) {
	defer e.m.observer.queue.run()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.woken.Store(false)
	if e.client.Closed() {
		return false, protocol.Never
	}
	e.locateLocked()
	due := e.client.Tick(now, e.node.Load().rtt())
	if e.client.Failures.Degraded() { // a reset does not wait for a node that is away
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

// restLocked ends an entry that is not used, and has its slot remember what the next one must know;
// false where something would be lost.
func (e *entry) restLocked(now clock.Instant) bool {
	lifetime := e.client.Lifetime()
	m, ok := e.client.Rest()
	if ok {
		e.endLocked()
		e.m.keys.idle.rest(e.slot, e, m, now, lifetime)
	}
	return ok
}

func (e *entry) timeOut(w *protocol.Waiter, after time.Duration) clock.Timer {
	return e.m.cfg.Clock.AfterFunc(after, func() { e.with(func() { e.client.TimeOut(e.Now(), w) }) })
}

func (e *entry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return
	}
	if e.leaving && !e.client.Idle() {
		e.m.lost.Add(1) // Close cuts Shutdown short
	}
	e.endLocked()
}

// leave starts giving everything back, for Shutdown.
func (e *entry) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.Closed() {
		e.leaving = true
		e.m.leaving.Add(1)
		e.client.Leave()
	}
}

// endLocked ends the entry, once. A Key that still points to it finds out with its next request.
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return
	}
	if !e.m.observer.see(e.tally, &e.seen, e.client.Denials.Collect, e.client.Limits()) {
		return
	}
	e.client.Line.Waiters(func(*protocol.Waiter) { st.Waiting++ })
	st.InUse++
	if e.client.Failures.Degraded() {
		st.Degraded++
	}
}

// lostLocked announces the tokens that were burnt since it was last called.
func (e *entry) lostLocked(reason LossReason) {
	burnt := e.client.Holder.Account().Burnt
	e.m.observer.lost(e.slot.name, burnt-e.burntTold, reason)
	e.burntTold = burnt
}

// outlook is the outlook of a request for n tokens, without the lock once there has been a reply.
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

// limits are those in force as last heard; nil before the first reply.
func (e *entry) limits() []Limit {
	if h := e.heard.Load(); h != nil {
		return h.Limits()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.client.Heard(); h.Replied() { // by a draw, before the key had an entry
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

// The methods that make an entry a protocol.Host. The lock is held when they are called.

// Now implements protocol.Host.
func (e *entry) Now() clock.Instant { return e.m.cfg.Clock.Now() }

// Wake implements protocol.Host: the scheduler asks e soon. It needs no lock.
func (e *entry) Wake(urgent bool) {
	if !e.woken.Swap(true) || urgent {
		e.m.scheduler.add(e, urgent)
	}
}

// Shut implements protocol.Host with a timer of the entry's own, as the scheduler may be busy when the
// time has come. It is for Allow, which does not read the clock.
func (e *entry) Shut(until clock.Instant) {
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

// Handed and Forfeited implement protocol.Host.
func (e *entry) Handed(*protocol.Waiter, int64, protocol.Origin) {}
func (e *entry) Passed(_, _ *protocol.Waiter, _ int64)           {}
func (e *entry) Forfeited(*protocol.Waiter)                      {}

// Settled implements protocol.Host.
func (e *entry) Settled(w *protocol.Waiter, d protocol.Decision) {
	e.countLocked(d, w.Ask)
	if d.Verdict == protocol.VerdictCancelled && e.m.cfg.Policy.Shadow && !w.Uncounted {
		e.m.observer.ended.Add(w.N)
	}
	w.Owner.(*waiter).told <- d
}

// countLocked counts a decision on a request by what it rests on.
func (e *entry) countLocked(d protocol.Decision, a protocol.Ask) {
	switch d.Source {
	case SourceFallback:
		n := a.N
		if a.Uncounted {
			n = d.Took
		}
		e.node.Load().countFallback(n, d.Took)
	case SourceStore:
		e.m.observer.awaited.Add(d.Took)
	}
}

// book counts n tokens as denied.
func (e *entry) book(n int64, source Source) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if source == SourceFallback {
		e.node.Load().countFallback(n, 0)
	}
	if e.client.Closed() { // its counts have gone to the Limiter's
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
	e.m.id.Store(&id) // the clone calls for other keys too
	return id
}

func (e *entry) bucketChanged(limits []Limit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.Closed() {
		e.client.BucketChanged(limits)
		e.heardAt = 0
		e.Wake(true)
	}
}

// refund has n tokens of draw d, nil if that is not known, travel with the next call; it is false where e has
// ended.
func (e *entry) refund(n int64, d *pool.Draw) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false
	}
	e.client.Holder.Refund(min(n, e.client.Capacity()), d)
	e.Wake(false)
	return true
}

// charge reports how many of n tokens it charges, and is not ok where e has ended.
func (e *entry) charge(n int64) (charged int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return 0, false
	}
	charged = e.client.Charge(e.Now(), n)
	e.Wake(false)
	return charged, true
}

// beginReset gives back what is held, with a call that is made now, and returns when that has ended or the
// node is away. No call asks for tokens until endReset.
func (e *entry) beginReset(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := int64(0)
	if !e.client.Idle() {
		first = e.m.seq.Load() + 1 // a call that is under way may have been built too early
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

// lacks is for how long e's key is likely to deny a request for n tokens: 0 where it is likely to
// admit it, or nothing is known. sure reports that it denies without a call. Where other processes
// draw from the bucket too, the last denial says more than the last reply.
func (e *entry) lacks(n int64) (in time.Duration, sure bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Now()
	in = e.client.ReadyIn(now, n)
	switch {
	case n > e.client.Capacity():
		return in, true
	case n > e.client.Holder.Pool.Held() && e.client.Failures.Degraded() && e.m.cfg.Policy.Fallback == FallbackDeny:
		return in, true
	case in == math.MaxInt64, in == 1 && !e.denied: // nothing is known, or they should be there by now
		return 0, false
	}
	return in, in > 1 && e.client.State(now) == protocol.StateDenied
}

// denies reports whether e is sure to deny a request that does not wait in line, whatever its n.
func (e *entry) denies() bool {
	return e != nil && e.client.Holder.Pool.Denies() && e.Now() < e.client.Denials.ShutUntil()
}

func (e *entry) callEndedLocked() {
	if e.endings != nil {
		close(e.endings)
		e.endings = nil
	}
}

// build opens the call that n has admitted; nil where e has closed, or its call has just been built.
func (e *entry) build(n *storeNode, now clock.Instant) *lease.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != nil {
		return nil
	}
	e.callsOn.Store(n)
	r := e.client.Build(now, e.m.nextSeq(), n.rtt())
	// A Call of its own for each: the store may still be filling that of an overdue one.
	e.flight = &lease.Call{Key: e.m.storedKey(e.slot.name), Request: *r, Node: int(n.number), Owner: e}
	return e.flight
}

// admit reports whether n, which is e's node, takes a call now, and if not when it does. An
// entry that leaves gives nothing back to a node that is away: Shutdown does not wait for that.
func (e *entry) admit(n *storeNode, now clock.Instant) (ok bool, again clock.Instant) {
	defer e.m.observer.queue.run()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false, protocol.Never
	}
	if n.breaker.Admit(now) {
		return true, 0
	}
	if e.leaving && n.breaker.Away() {
		e.failLocked(now, n.why())
	}
	return false, e.client.Failures.Turn(now)
}

// turn returns when e may ask again while its node takes no call.
func (e *entry) turn(now clock.Instant) clock.Instant {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client.Failures.Turn(now)
}

// locateLocked has e follow its key to another node while its own is not known or away.
func (e *entry) locateLocked() {
	if n := e.node.Load(); n.number == nodeUnknown || n.breaker.Away() {
		e.node.Store(e.m.nodeOf(e.slot.name, int(n.number)))
	}
}

// receive implements caller. Of a call that was overdue the grant still counts, if no later call
// has been made; the error does not.
func (e *entry) receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64) {
	defer e.m.observer.queue.run()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return 0
	}
	e.node.Store(n)
	switch {
	case c.Err == nil && e.acceptLocked(c, now):
		e.flight = nil // also that of a retry, should this be the late reply to the first sending
		granted = c.Grant.Granted
	case c == e.flight:
		e.failLocked(now, cmp.Or(c.Err, errForeign))
	}
	e.callEndedLocked()
	e.Wake(e.leaving || e.client.Line.HasWaiters())
	return granted
}

func (e *entry) name() string { return e.slot.name }

// overdue implements caller: the calls of an entry fail later.
func (e *entry) overdue() {}

func (e *entry) at() *storeNode { return e.callsOn.Load() }

func (e *entry) awaits(c *lease.Call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flight == c && !e.client.Closed()
}

func (e *entry) abandon(c *lease.Call, now clock.Instant, err error) {
	defer e.m.observer.queue.run()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != c {
		return
	}
	e.failLocked(now, err)
	e.callEndedLocked()
	e.Wake(e.leaving || e.client.Line.HasWaiters())
}

// acceptLocked takes in the reply to c, if it is the first one to the open call.
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
	o.heard(e.client.Limits(), e.node.Load().shortest())
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
		e.m.lost.Add(1) // its tokens expire at the store
		e.endLocked()
	}
}

// refresh proposes what LimitsFor says by now for e's key, which has this name. If two refreshes
// race, the later one wins: it was asked for after both changes.
func (e *entry) refresh(ctx context.Context, key string) error {
	asked := e.m.refreshed()
	var given bool
	if e.with(func() { given = e.given }); given {
		return nil
	}
	c, err := e.m.proposer.of(ctx, key, nil)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.given && asked >= e.asked {
		e.asked = asked
		e.client.Propose(e.Now(), e.m.proposer.share(c))
	}
	return nil
}

// insist has e propose c, which a KeyWithLimits was given.
func (e *entry) insist(c *lease.Config) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given = true
	e.client.Propose(e.Now(), c)
	e.client.Insist(e.Now())
}
