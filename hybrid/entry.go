package hybrid

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// entry is one key of the table: the lease protocol's Holder behind a lock, and who waits for it.
type entry struct {
	l    *Limiter
	slot *slot

	proposed []Limit // by this process

	holder lease.Holder // its Pool is used without the lock
	// gate is when the bucket may have tokens again, where it is known to be empty; 0 where it is
	// not. Requests for one token are denied before, without the lock.
	gate   atomic.Int64
	kicked atomic.Bool // is on the scheduler's ready list
	lowHit atomic.Bool // a Take reported low
	view   atomic.Pointer[view]
	// capacity is the largest n that can ever be granted; a take of more is not demand.
	capacity atomic.Int64
	node     atomic.Int32 // of the store; nodeUnknown before the first answer

	mu      sync.Mutex
	queue   queue
	refused int64         // the largest n refused without queueing since the last call
	renames int           // how often another process turned out to use the instance id
	heardAt clock.Instant // when the capacity was last heard
	gone    bool          // left the table, or its key went to rest
	missed  int64         // by the pool, when it went
	closed  bool
	leaver  *leaver       // while Shutdown waits for this entry
	flight  *lease.Call   // under way; nil once it is answered or overdue
	opener  clock.Timer   // opens the gate; nil before it was shut for the first time
	resets  int           // under way: who waits is not turned away meanwhile
	giveAll int64         // while a reset is under way, calls give everything back until one from this seq on has ended
	ended   int64         // seq of the last call that was answered or has failed
	endings chan struct{} // closed when a call ends, or the entry; nil where nobody waits for that
	outage  *outage       // that this key is part of; nil while calls succeed
	counted uint64        // the last Stats that looked at this entry

	// The scheduler's own.
	due      clock.Instant
	index    int  // in its heap; -1 for none
	calling  bool // is among those whose call is being built
	pressing bool // somebody waits for its next call

	// Guarded by the scheduler's lock.
	readyNext *entry
	isReady   bool
	urgent    bool          // somebody waits
	restSeen  int64         // attempts when restAt was set
	restAt    clock.Instant // when it goes to rest if it stays unused; 0 while it is in use
}

// take is the hot path.
func (e *entry) take(n int64, strict bool) bool {
	var t lease.Taken
	switch {
	case n > 1 && n > e.capacity.Load():
		return false
	case strict:
		t = e.holder.Pool.TakeStrict(n, e.l.cfg.Clock)
	case n == 1:
		t = e.holder.Pool.Take()
	default:
		t = e.holder.Pool.TakeN(n)
	}
	if t == lease.TookLow {
		e.low()
	}
	return t.Ok()
}

// judgeGate shuts the gate where the bucket is known to be empty at now, and opens it otherwise. It
// is called after everything that changes what is known. The caller holds the lock.
func (e *entry) judgeGate(now clock.Instant) {
	until := e.holder.DeniedUntil()
	if now >= until || e.holder.Spares(1) {
		e.openGate()
		return
	}
	if e.opener == nil {
		e.opener = e.l.cfg.Clock.AfterFunc(until.Sub(now), e.gateDue)
	} else {
		e.opener.Reset(until.Sub(now))
	}
	if e.gate.Swap(int64(until)) == 0 && e.l.cfg.Events.Denied == nil { // whoever listens is told of every denial
		e.holder.Pool.Deny(true)
	}
}

// openGate lets requests for one token ask again. The caller holds the lock.
func (e *entry) openGate() {
	if e.gate.Swap(0) == 0 {
		return
	}
	e.opener.Stop()
	if e.l.cfg.Events.Denied == nil {
		e.holder.Pool.Deny(false)
	}
}

// endDelay ends the delay after a shortfall. The caller holds the lock.
func (e *entry) endDelay() {
	e.holder.Retry()
	e.openGate()
}

// gateDue opens the gate in time for those who do not read the clock, which is Allow alone. It is a
// timer of the entry's own because the scheduler may be busy when the time has come, and is never
// as far when clock.Manual's Advance returns.
func (e *entry) gateDue() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gate.Load() != 0 {
		e.judgeGate(e.l.cfg.Clock.Now())
	}
}

// low starts a prefetch.
func (e *entry) low() {
	e.lowHit.Store(true)
	e.kick(false)
}

// kick puts e on the scheduler's ready list, urgent where somebody waits. It needs no lock.
func (e *entry) kick(urgent bool) {
	if !e.kicked.Swap(true) || urgent {
		e.l.scheduler.add(e, urgent)
	}
}

// wanted notes a request for n tokens that was refused without waiting, and starts a call for it where none is
// under way: the first since the last call does so for all. The caller holds the lock.
func (e *entry) wanted(n int64) {
	first := e.refused == 0
	e.refused = max(e.refused, n)
	if first && e.flight == nil {
		e.kick(false)
	}
}

// input is what the Holder cannot know. What waits lacks no more than what the pool does not have.
// Where a round trip takes longer than CallTimeout, those who wait for no more than one call will
// have gone when it is answered: they count as refused, so that what is drawn goes to the pool, for
// whoever asks then, and not to them in vain. The caller holds the lock.
func (e *entry) input() lease.Input {
	in := lease.Input{
		RTT:     e.l.nodes.of(int(e.node.Load())).quantile(),
		Refused: e.refused,
		Closing: e.leaver != nil || e.resets > 0 && e.ended < e.giveAll,
	}
	lacking := e.queue.lacking
	if in.RTT >= e.l.cfg.CallTimeout {
		lacking = e.queue.patient
		in.Refused += e.queue.lacking - lacking
	}
	in.Waiting = max(0, lacking-e.holder.Pool.Held())
	return in
}

// poll asks the Holder whether a call is due.
func (e *entry) poll(now clock.Instant) (call bool, next clock.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kicked.Store(false)
	if e.gone || e.closed {
		return false, lease.Never
	}
	if e.lowHit.Swap(false) {
		e.holder.Low()
	}
	if e.leaver != nil && e.holder.Idle() {
		e.finishLocked(ErrClosed)
		return false, lease.Never
	}
	call, next = e.holder.Poll(now, e.input())
	if e.queue.patients > 0 && e.holder.Degraded() {
		next = min(next, e.serveWithout(now))
	}
	if call || !e.unused() {
		e.restAt = 0
		e.l.keys.idle.remove(e.slot)
		return call, next
	}
	if seen := e.holder.Attempts(); e.restAt == 0 || seen != e.restSeen {
		e.restAt, e.restSeen = now.Add(e.holder.TTL()), seen
		e.l.keys.idle.remove(e.slot)
		e.l.keys.idle.push(e.slot, now, e.holder.Lifetime())
	} else if now >= e.restAt && next == lease.Never && e.rest(now) {
		return false, lease.Never
	}
	if now >= e.restAt {
		return false, next // until it leaves
	}
	return false, min(next, e.restAt)
}

// unused reports whether nothing would be lost by forgetting e now but that the bucket is known to be empty,
// which the next request would ask again. The caller holds the lock.
func (e *entry) unused() bool {
	return !e.gone && !e.closed && e.queue.head == nil && e.holder.Idle()
}

// build opens the call; nil where the entry has closed meanwhile or its call has just been built.
func (e *entry) build(now clock.Instant) *lease.Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || e.closed || e.flight != nil {
		return nil
	}
	seq := e.l.nextSeq()
	in := e.input()
	if e.queue.head != nil {
		in.Need = max(1, e.queue.need(e.holder.Gather())-e.holder.Pool.Held())
	}
	r := e.holder.Build(now, seq, in)
	if r.Seq == seq {
		for w := e.queue.head; w != nil; w = w.next {
			w.asked = seq
		}
		e.refused = 0
	}
	// A Call of its own for each: the store may still be filling that of an overdue one.
	e.flight = &lease.Call{Key: e.slot.name, Request: *r, Node: int(e.node.Load()), Owner: e}
	return e.flight
}

// close ends the entry at once and tells its waiters err.
func (e *entry) close(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaver != nil && !e.closed && !e.holder.Idle() {
		e.leaver.failed.Add(1) // Close cuts Shutdown short
	}
	e.finishLocked(err)
}

func (e *entry) finishLocked(err error) {
	if e.closed {
		return
	}
	e.closed = true
	e.tellEnded()
	e.failsNoMore(0, false)
	e.openGate() // every request is to find out
	e.settleAll(outcome{err: err})
	e.holder.Close()
	if e.leaver != nil {
		e.leaver.done()
	}
}

// leave starts giving everything back, for Shutdown.
func (e *entry) leave(lv *leaver) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.gone {
		lv.done()
		return
	}
	e.leaver = lv
	e.settleAll(outcome{err: ErrClosed})
	e.kick(true)
}

// rename answers ErrStale: another process, such as a clone of this one's machine, calls under the same id.
func (e *entry) rename() {
	e.renames++
	id := e.l.instance + "." + strconv.Itoa(e.renames) + "." + strconv.FormatUint(e.l.seed.Add(0x9e3779b97f4a7c15), 36)
	e.holder.Rename(id)
	e.l.id.Store(&id) // the clone calls for other keys too
}
