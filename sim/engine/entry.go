package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// entry is one key in one process: a protocol.Client, and when it is asked next.
// TestProcessesAreGrantedWhatHybridIs holds what it does against hybrid.
type entry struct {
	fleet  *fleet
	p      *process
	key    int32
	id     int32
	shard  int32 // of Redis
	alive  bool
	client protocol.Client

	pressing bool          // somebody waits for its next call
	flight   int64         // number of the call under way; 0 for none
	asked    int64         // seq of the last call
	leaveAt  clock.Instant // when it is forgotten
	draw     *draw         // under way, in place of a client that is started; nil for none

	charged int64 // tokens that requests used beyond what they had reserved
	paid    int64 // of them: the bucket has answered a call that told it so

	last   execution   // the last of its calls that the bucket has executed
	handed audit.Drawn // what the present reply brought for waiting requests, until they have it
}

// memory is what is left of an entry at rest.
type memory struct {
	of    protocol.Memory
	until clock.Instant // then it is forgotten
}

// waiter is a request that waits for tokens.
type waiter struct {
	protocol.Waiter
	e       *entry
	request request
	audited []audit.Drawn // what it has so far, as the auditor knows it
	id      int32
}

func (e *entry) isAdversary() bool { return e.p.group.load.Kind == scenario.Adversary }

// take is the hot path.
func (e *entry) take(n int64) bool {
	if e.p.policy.StrictExpiry {
		e.client.Expire(e.Now())
	}
	var t pool.Taken
	if n == 1 {
		t = e.client.Pool.Take()
	} else {
		t = e.client.Pool.TakeN(n)
	}
	if t == pool.TookLow {
		e.client.Low()
		e.Wake(false)
	}
	return t.OK()
}

// decide answers a request, now or later.
func (e *entry) decide(r request) {
	if e.take(r.n) {
		e.admitTaken(&r)
		return
	}
	e.decideRefused(r)
}

// admitTaken admits r with tokens of the pool.
func (e *entry) admitTaken(r *request) {
	if r.reservation == 0 {
		e.fleet.books.audit.Admit(e.fleet.time.now, r.key, r.n)
	} else {
		e.admit(r, protocol.Decision{Draw: e.client.Pool.Drawn(), Pooled: r.n})
	}
	e.answer(r, true, r.n)
}

// decideRefused answers a request that the pool has refused.
func (e *entry) decideRefused(r request) {
	now, g := e.Now(), e.p.group
	d := e.client.Decide(now, r.n, g.patience, now.Add(g.waits))
	switch {
	case d.Verdict == protocol.VerdictWait:
		e.enqueue(r, now)
	case d.OK() && d.Source != lease.SourceFallback:
		e.admit(&r, d)
		e.answer(&r, true, r.n)
	default:
		e.answer(&r, d.OK(), 0)
	}
}

// answer tells a request what became of it; see books.answered. In shadow mode what is denied goes
// on all the same, unless the process has ended.
func (e *entry) answer(r *request, ok bool, tokens int64) {
	e.fleet.books.answered(r, ok, tokens)
	if !ok && e.p.group.Shadow && e.p.state == running {
		e.fleet.books.shadow(r)
		ok = true
	}
	if x := e.fleet.reservationOf(r); x != nil {
		x.begin(e, ok)
	}
	if r.user >= 0 {
		e.fleet.demand.told(r.user, ok)
	}
}

// enqueue has r wait, as long as the client knows of, unless its user loses patience before.
func (e *entry) enqueue(r request, now clock.Instant) {
	id, w := e.fleet.waiters.take()
	w.id, w.e, w.request = id, e, r
	g := e.p.group
	w.Waiter = protocol.Waiter{N: r.n, Patience: g.patience, Deadline: now.Add(g.waits), Owner: w}
	limit := g.waits
	if x := &g.load.Patience; g.patience == protocol.InLine && x.P > 0 {
		limit = min(limit, time.Duration(x.Sample(&e.p.stream)))
	}
	e.fleet.time.at(e.p.after(e.fleet.time.now, limit), evWaitEnd, w.id)
	e.client.Enqueue(now, &w.Waiter)
}

// end ends w's wait, because its time is over.
func (w *waiter) end() {
	if w.Patience == protocol.InLine {
		w.e.client.Cancel(w.e.Now(), &w.Waiter)
	} else {
		w.e.client.TimeOut(w.e.Now(), &w.Waiter)
	}
}

// What follows makes an entry a protocol.Host.

// Now is the process's monotonic clock.
func (e *entry) Now() clock.Instant { return e.p.local(e.fleet.time.now) }

// Wake has e asked at once, after everything else of this instant.
func (e *entry) Wake(urgent bool) {
	e.pressing = e.pressing || urgent
	e.askAt(e.fleet.time.now)
}

// Shut has nothing happen at that time, because every request reads the clock.
func (e *entry) Shut(clock.Instant) {}

func (e *entry) Handed(w *protocol.Waiter, n int64, from protocol.Origin) {
	x := w.Owner.(*waiter)
	if from == protocol.FromGrant {
		x.audited = append(x.audited, e.handed.Part(n))
		e.handed.N -= n
		return
	}
	x.audited = append(x.audited, e.fleet.books.audit.Open(e.fleet.time.now, e.key, n))
}

func (e *entry) Forfeited(w *protocol.Waiter) {
	x := w.Owner.(*waiter)
	e.fleet.books.audit.Close(e.key, false, x.audited...)
	x.audited = x.audited[:0]
}

func (e *entry) Settled(w *protocol.Waiter, d protocol.Decision) {
	e.settled(w.Owner.(*waiter), w.Got(), d)
}

// settled tells the request of x, which has so many tokens of the bucket's, what became of it.
func (e *entry) settled(x *waiter, tokens int64, d protocol.Decision) {
	r := x.request
	admitted := d.OK() && d.Source != lease.SourceFallback
	if y := e.fleet.reservationOf(&r); admitted && y != nil {
		y.has(tokens, d)
		if y.cancelled { // which decides what becomes of them
			y.open = append(y.open, x.audited...)
			x.audited = x.audited[:0]
		}
	}
	e.fleet.books.audit.Close(e.key, admitted, x.audited...)
	id := x.id
	*x = waiter{audited: x.audited[:0]}
	e.fleet.time.cancel(evWaitEnd, id)
	e.fleet.waiters.give(id)
	e.answer(&r, d.OK(), tokens)
}

func (e *entry) Breaker() *protocol.Breaker { return e.fleet.network.linkOf(e).breaker }

func (e *entry) NewID() string { return e.p.rename() }

// spend has an adversary spend what is left of a lease that is about to end.
func (e *entry) spend() {
	if e.p.pausedUntil == 0 && e.Now() < e.client.Deadline() {
		e.fleet.demand.drain(e)
	}
}

// rest lets e go, but for what it must know of its bucket.
func (e *entry) rest() bool {
	m, ok := e.client.Rest()
	if ok {
		e.p.rest(e.key, memory{of: m, until: e.leaveAt}, e.Now())
		e.finish()
	}
	return ok
}

// finish ends e: what it holds is burnt, and whoever waits is turned away.
func (e *entry) finish() {
	if !e.alive {
		return
	}
	e.use()
	e.client.Close()
	e.fleet.books.close(e)
	e.forget()
}

// forget has e leave its process.
func (e *entry) forget() {
	e.alive = false
	delete(e.p.entries, e.key)
	if e.p.single == e {
		e.p.single = nil
	}
	e.fleet.time.cancel(evPoll, e.id)
	e.fleet.time.cancel(evSpend, e.id)
	e.fleet.entries.give(e.id)
}
