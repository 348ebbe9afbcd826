package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// entry is one key in one process: lease's Holder, who waits for it, and when it is asked next. What it decides is what
// hybrid decides, step by step; TestOneProcessIsGrantedWhatHybridIs holds the two against each other.
type entry struct {
	fleet  *fleet
	p      *process
	key    int32
	id     int32
	shard  int32
	alive  bool
	known  bool // a node has answered for it
	holder lease.Holder

	gate     bool // closed: the bucket is known to be empty for now
	lowHit   bool
	pressing bool // somebody waits for its next call
	leaving  bool // the process shuts down
	queue    queue
	refused  int64 // the largest n refused without queueing since the last call
	view     view
	flight   int64 // number of the call under way; 0 for none
	asked    int64 // seq of the last call

	pollSeq  uint64        // the event that asks it next; 0 for none
	pollAt   int64         // when that is
	spendSeq uint64        // an adversary's: the event in which it spends what is left of the lease
	restSeen int64         // attempts when restAt was set
	restAt   clock.Instant // when it goes to rest if it stays unused; 0 while it is in use
	leaveAt  clock.Instant // when it is forgotten

	executed executed // the last of its calls that the bucket has executed
}

// memory is what is left of an entry at rest.
type memory struct {
	of    lease.Memory
	until clock.Instant // then it is forgotten
	known bool
}

// view is what the last reply said.
type view struct {
	heard      bool
	limits     []lease.Limit
	levels     [lease.LimitsMax]int64
	others     int64
	at, made   clock.Instant
	shortOf    int64
	shortUntil clock.Instant
}

// earliest is a time before which n tokens cannot be there, even if the others gave back all that they held.
func (v *view) earliest(n int64) clock.Instant {
	at := v.made
	n -= v.others
	rest := time.Duration(never)
	for k, l := range v.limits {
		at = max(at, v.made.Add(timeFor(l, n-v.levels[k]-1)))
		rest = min(rest, timeFor(l, n-v.shortOf))
	}
	if v.shortOf > 0 && n >= v.shortOf {
		at = max(at, v.shortUntil.Add(rest))
	}
	return at
}

// timeFor is how long l takes to make n tokens.
func timeFor(l lease.Limit, n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	d := float64(n) / float64(l.Tokens) * float64(l.Per)
	if d >= never {
		return never
	}
	return time.Duration(d)
}

// now is the process's monotonic clock.
func (e *entry) now() clock.Instant { return e.p.local(e.fleet.time.now) }

func (e *entry) isAdversary() bool { return e.p.group.load.Kind == scenario.Adversary }

// verb is how its requests ask.
func (e *entry) verb() string {
	if e.isAdversary() {
		return scenario.VerbTry
	}
	return e.p.group.load.Verb
}

// take is the hot path.
func (e *entry) take(n int64) bool {
	if n > 1 && n > e.holder.Capacity() {
		return false
	}
	if e.p.policy.StrictExpiry {
		e.holder.Expire(e.now())
	}
	var t lease.Taken
	if n == 1 {
		t = e.holder.Pool.Take()
	} else {
		t = e.holder.Pool.TakeN(n)
	}
	if t == lease.TookLow {
		e.lowHit = true
		e.kick(false)
	}
	return t.Ok()
}

// decide answers a request whose tokens the pool did not have.
func (e *entry) decide(r request) {
	now := e.now()
	if now >= e.holder.DeniedUntil() {
		e.setGate(false) // the clock decides, and not whose event of this moment comes first
	}
	if r.n == 1 && e.verb() != scenario.VerbWait && e.gate {
		e.fleet.answer(&r, false, 0)
		return
	}
	if r.n > e.holder.Capacity() {
		e.fleet.answer(&r, false, 0)
		return
	}
	verb := e.verb()
	if before := e.holder.DeniedUntil(); now < before && !e.holder.Outdated() {
		if verb == scenario.VerbWait {
			e.holder.Hasten(e.queue.patient + r.n)
		} else if e.queue.patients == 0 {
			e.holder.Hasten(r.n)
		}
		if e.holder.DeniedUntil() < before && e.flight == 0 {
			e.kick(false)
		}
	}
	e.holder.Expire(now)
	if verb == scenario.VerbWait {
		e.wait(r, now)
		return
	}
	if e.takeQueued(r.n) {
		e.fleet.answer(&r, true, r.n)
		return
	}
	switch {
	case e.holder.Degraded(), verb == scenario.VerbTry && !e.holder.Replied():
		e.wanted(r.n)
		ok := (e.queue.patients == 0 || !e.holder.Replied()) && e.admitWithout(now, r.n)
		e.fleet.answer(&r, ok, 0)
		return
	case now < e.holder.DeniedUntil() && e.queue.patients == 0 && e.holder.Spares(r.n):
		e.holder.Retry()
		if e.flight == 0 {
			e.kick(false)
		}
	case now < e.holder.DeniedUntil():
		e.refused = max(e.refused, r.n)
		if r.n == 1 && !e.holder.Spares(1) {
			e.setGate(true)
		}
		e.fleet.answer(&r, false, 0)
		return
	}
	if verb == scenario.VerbTry {
		e.wanted(r.n)
		e.fleet.answer(&r, false, 0)
		return
	}
	e.enqueue(r, false, e.fleet.s.CallTimeout, e.fleet.s.CallTimeout)
	if e.flight == 0 {
		e.kick(true)
	}
}

// wait serves a request that waits in line, or queues it.
func (e *entry) wait(r request, now clock.Instant) {
	if e.queue.patients == 0 && e.takeQueued(r.n) {
		e.fleet.answer(&r, true, r.n)
		return
	}
	if e.holder.Degraded() {
		e.wanted(r.n)
		if e.queue.patients == 0 && e.admitWithout(now, r.n) {
			e.fleet.answer(&r, true, 0)
			return
		}
		if _, ok := e.holder.FallbackAt(now, r.n); !ok {
			e.fleet.answer(&r, false, 0)
			return
		}
	}
	limit := e.p.group.load.Deadline
	if e.inVain(now, e.queue.patient+r.n, now.Add(limit)) {
		e.fleet.answer(&r, false, 0)
		return
	}
	patience := limit
	if d := &e.p.group.load.Patience; d.P > 0 {
		patience = min(limit, time.Duration(d.Sample(&e.p.stream)))
	}
	e.enqueue(r, true, limit, patience)
	if now < e.holder.DeniedUntil() && e.holder.Spares(e.queue.patient) {
		e.holder.Retry()
	}
	if e.queue.patients == 1 {
		e.gather(e.queue.head)
	}
	if e.flight == 0 {
		e.kick(now >= e.holder.DeniedUntil())
	}
}

// inVain reports whether a request certainly cannot have its tokens by its deadline.
func (e *entry) inVain(now clock.Instant, ahead int64, deadline clock.Instant) bool {
	v := &e.view
	if !v.heard || e.holder.Degraded() || e.holder.Outdated() || now >= v.at.Add(e.holder.TTL()) {
		return false
	}
	if ahead -= e.holder.Pool.Held() + e.holder.Pending(); ahead <= 0 {
		return false
	}
	at := max(now, v.earliest(ahead))
	if e.flight == 0 && !e.holder.Spares(ahead) {
		at = max(at, e.holder.DeniedUntil())
	}
	return at > deadline
}

// wanted notes a request that was refused without waiting, and starts a call for it: the first since the last call
// does so for all.
func (e *entry) wanted(n int64) {
	first := e.refused == 0
	e.refused = max(e.refused, n)
	if first && e.flight == 0 {
		e.kick(false)
	}
}

// admitWithout decides on n tokens without the store.
func (e *entry) admitWithout(now clock.Instant, n int64) bool {
	if !e.holder.TakeFallback(now, n) {
		return false
	}
	e.holder.Served(n)
	e.fleet.books.admittedWithout(e.key, n)
	return true
}

func (e *entry) setGate(closed bool) {
	if e.gate != closed {
		e.gate = closed
		e.holder.Pool.Deny(closed)
	}
}

// takeQueued takes n tokens or none from the pool for a request that was counted as missed and is
// admitted with them.
func (e *entry) takeQueued(n int64) bool {
	_, ok := e.takeFor(n)
	if ok {
		e.fleet.books.admitted(e.key, n)
	}
	return ok
}

// takeFor is takeQueued for a request that may wait on.
func (e *entry) takeFor(n int64) (lease.Epoch, bool) {
	epoch, ok := e.holder.Pool.TakeQueued(n)
	if ok {
		e.holder.Served(n)
	}
	return epoch, ok
}
