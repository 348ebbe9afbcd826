package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// entry is one key in one process: a lease.Client, and when it is asked next.
// TestOneProcessIsGrantedWhatHybridIs holds what it does against hybrid.
type entry struct {
	fleet  *fleet
	p      *process
	key    int32
	id     int32
	shard  int32
	alive  bool
	known  bool // a node has answered for it
	client lease.Client

	pressing bool  // somebody waits for its next call
	flight   int64 // number of the call under way; 0 for none
	asked    int64 // seq of the last call

	pollSeq  uint64        // the event that asks it next; 0 for none
	pollAt   int64         // when that is
	spendSeq uint64        // an adversary's: the event in which it spends what is left of the lease
	leaveAt  clock.Instant // when it is forgotten

	last   execution   // the last of its calls that the bucket has executed
	handed audit.Drawn // what the present reply brought for waiting requests, until they have it
}

// memory is what is left of an entry at rest.
type memory struct {
	of    lease.Memory
	until clock.Instant // then it is forgotten
	known bool
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
	if e.p.policy.StrictExpiry {
		e.client.Expire(e.now())
	}
	var t lease.Taken
	if n == 1 {
		t = e.client.Pool.Take()
	} else {
		t = e.client.Pool.TakeN(n)
	}
	if t == lease.TookLow {
		e.client.Low()
		e.Wake(false)
	}
	return t.Ok()
}

// decide answers a request whose tokens the pool did not have, or has it wait.
func (e *entry) decide(r request) {
	now := e.now()
	patience, limit := lease.OneCall, e.fleet.s.CallTimeout
	switch e.verb() {
	case scenario.VerbTry:
		patience = lease.NoWait
	case scenario.VerbWait:
		patience, limit = lease.InLine, e.p.group.load.Deadline
	}
	d := e.client.Decide(now, r.n, patience, now.Add(limit))
	if d.Verdict == lease.VerdictWait {
		e.enqueue(r, now, patience, limit)
		return
	}
	tokens := int64(0)
	if d.OK() && d.Source == lease.SourceFallback {
		e.fleet.books.admittedWithout(e.key, r.n)
	} else if d.OK() {
		e.fleet.books.admitted(e.key, r.n)
		tokens = r.n
	}
	e.fleet.answer(&r, d.OK(), tokens)
}

// enqueue has r wait, up to limit as far as the client knows. A user may lose patience before.
func (e *entry) enqueue(r request, now clock.Instant, patience lease.Patience, limit time.Duration) {
	w := e.fleet.newWaiter()
	w.e, w.request = e, r
	w.Waiter = lease.Waiter{N: r.n, Patience: patience, Deadline: now.Add(limit), Owner: w}
	if d := &e.p.group.load.Patience; patience == lease.InLine && d.P > 0 {
		limit = min(limit, time.Duration(d.Sample(&e.p.stream)))
	}
	w.endSeq = e.fleet.time.at(e.p.after(e.fleet.time.now, limit), evWaitEnd, w.id)
	e.client.Enqueue(now, &w.Waiter)
}

// waiter is a request that waits for tokens.
type waiter struct {
	lease.Waiter
	e       *entry
	request request
	audited []audit.Drawn // what it has so far, as the auditor knows it
	endSeq  uint64        // the event that ends its wait
	id      int32
}

// ended is the event of the end of w's wait.
func (w *waiter) ended(ev event) {
	switch {
	case w.endSeq != ev.seq:
	case w.e.p.pausedUntil > 0:
		w.endSeq = w.e.fleet.time.at(w.e.p.resumed(), evWaitEnd, w.id)
	case w.Patience == lease.InLine:
		w.e.client.Cancel(w.e.now(), &w.Waiter)
	default:
		w.e.client.TimeOut(w.e.now(), &w.Waiter)
	}
}

// The methods that make an entry a lease.Host.

// Now implements lease.Host.
func (e *entry) Now() clock.Instant { return e.now() }

// Wake implements lease.Host: e is asked at once, after everything else of this instant.
func (e *entry) Wake(urgent bool) {
	e.pressing = e.pressing || urgent
	if e.pollSeq == 0 || e.pollAt != e.fleet.time.now {
		e.pollAt = e.fleet.time.now
		e.pollSeq = e.fleet.time.at(e.fleet.time.now, evPoll, e.id)
	}
}

// Shut implements lease.Host: every request reads the clock here, so nothing has to happen at that
// time.
func (e *entry) Shut(clock.Instant) {}

// Handed implements lease.Host.
func (e *entry) Handed(w *lease.Waiter, n int64, from lease.Origin) {
	x := w.Owner.(*waiter)
	if from == lease.FromGrant {
		x.audited = append(x.audited, e.handed.Part(n))
		e.handed.N -= n
		return
	}
	x.audited = append(x.audited, e.fleet.books.audit.Open(e.fleet.time.now, e.key, n))
}

// Forfeited implements lease.Host.
func (e *entry) Forfeited(w *lease.Waiter) {
	x := w.Owner.(*waiter)
	e.fleet.books.audit.Close(e.key, false, x.audited...)
	x.audited = x.audited[:0]
}

// Settled implements lease.Host.
func (e *entry) Settled(w *lease.Waiter, d lease.Decision) {
	x := w.Owner.(*waiter)
	fallback := d.OK() && d.Source == lease.SourceFallback
	e.fleet.books.audit.Close(e.key, d.OK() && !fallback, x.audited...)
	if fallback {
		e.fleet.books.admittedWithout(e.key, w.N)
	}
	r, tokens := x.request, w.Got()
	e.fleet.freeWaiter(x)
	e.fleet.answer(&r, d.OK(), tokens)
}

// NewID implements lease.Host.
func (e *entry) NewID() string { return e.p.rename() }
