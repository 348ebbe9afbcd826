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
	hop    int32  // how many shards of the key p takes before this one
	bucket int32  // the number of its bucket: every key has as many as it has shards
	next   *entry // of the next hop; see nextHop
	id     int32
	shard  int32 // of Redis
	alive  bool
	known  bool // a node has answered for it
	client lease.Client

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
	of    lease.Memory
	until clock.Instant // then it is forgotten
	known bool
}

// waiter is a request that waits for tokens.
type waiter struct {
	lease.Waiter
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
	return t.OK()
}

// decide answers a request, now or later.
func (e *entry) decide(r request) {
	if e.take(r.n) {
		e.admitTaken(&r)
		return
	}
	if e.fleet.s.Policy.Shards > 1 {
		e.decideShards(r)
		return
	}
	e.decideRefused(r)
}

// admitTaken admits r with tokens of the pool.
func (e *entry) admitTaken(r *request) {
	if r.reservation == 0 {
		e.fleet.books.audit.Admit(e.fleet.time.now, r.key, r.n)
	} else {
		e.admit(r, lease.Decision{Draw: e.client.Pool.Drawn(), Pooled: r.n})
	}
	e.answer(r, true, r.n)
}

// decideRefused answers a request that the pool has refused.
func (e *entry) decideRefused(r request) {
	now, g := e.Now(), e.p.group
	d := e.client.Decide(now, r.n, g.patience, now.Add(g.waits))
	switch {
	case d.Verdict == lease.VerdictWait:
		e.enqueue(r, now)
	case d.OK() && d.Source != lease.SourceFallback:
		e.admit(&r, d)
		e.answer(&r, true, r.n)
	case d.OK() || !e.goOn(r, d):
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
	w.Waiter = lease.Waiter{N: r.n, Patience: g.patience, Deadline: now.Add(g.waits), Owner: w}
	limit := g.waits
	if r.until > 0 {
		limit = min(limit, time.Duration(r.until-e.fleet.time.now))
	}
	if x := &g.load.Patience; g.patience == lease.InLine && x.P > 0 {
		limit = min(limit, time.Duration(x.Sample(&e.p.stream)))
	}
	e.fleet.time.at(e.p.after(e.fleet.time.now, limit), evWaitEnd, w.id)
	e.client.Enqueue(now, &w.Waiter)
}

// end ends w's wait, because its time is over.
func (w *waiter) end() {
	if w.Patience == lease.InLine {
		w.e.client.Cancel(w.e.Now(), &w.Waiter)
	} else {
		w.e.client.TimeOut(w.e.Now(), &w.Waiter)
	}
}

// What follows makes an entry a lease.Host.

// Now is the process's monotonic clock.
func (e *entry) Now() clock.Instant { return e.p.local(e.fleet.time.now) }

// Wake has e asked at once, after everything else of this instant.
func (e *entry) Wake(urgent bool) {
	e.pressing = e.pressing || urgent
	e.askAt(e.fleet.time.now)
}

// Shut has nothing happen at that time, because every request reads the clock.
func (e *entry) Shut(clock.Instant) {}

func (e *entry) Handed(w *lease.Waiter, n int64, from lease.Origin) {
	x := w.Owner.(*waiter)
	if from == lease.FromGrant {
		x.audited = append(x.audited, e.handed.Part(n))
		e.handed.N -= n
		return
	}
	x.audited = append(x.audited, e.fleet.books.audit.Open(e.fleet.time.now, e.key, n))
}

func (e *entry) Forfeited(w *lease.Waiter) {
	x := w.Owner.(*waiter)
	e.fleet.books.audit.Close(e.key, false, x.audited...)
	x.audited = x.audited[:0]
}

func (e *entry) Settled(w *lease.Waiter, d lease.Decision) {
	e.settled(w.Owner.(*waiter), w.Got(), d)
}

// settled tells the request of x, which has so many tokens of the bucket's, what became of it.
func (e *entry) settled(x *waiter, tokens int64, d lease.Decision) {
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
	if d.OK() || !e.goOn(r, d) {
		e.answer(&r, d.OK(), tokens)
	}
}

func (e *entry) Breaker() *lease.Breaker { return e.fleet.network.breakerOf(e) }

func (e *entry) NewID() string { return e.p.rename() }

// schedule sets when e is asked next, if it is still alive.
func (e *entry) schedule(next clock.Instant) {
	if next != lease.Never {
		e.askAt(e.p.when(e.fleet.time.now, next))
	} else if e.alive {
		e.fleet.time.cancel(evPoll, e.id)
	}
}

func (e *entry) askAt(at int64) {
	if e.alive && !e.fleet.time.expects(at, evPoll, e.id) {
		e.fleet.time.at(at, evPoll, e.id)
	}
}

// ask polls e, and sends its call if it is time.
func (e *entry) ask() {
	call, next := e.poll()
	if !call {
		e.pressing = false
		e.schedule(next)
		return
	}
	l := e.fleet.network.linkOf(e)
	again := l.lastSent.Add(batchWindow)
	if len(l.open) == 0 && e.Now() < again && !(e.pressing && l.underWay == 0) {
		l.held = append(l.held, e.id)
		e.schedule(again)
		return
	}
	e.call()
	held := l.held
	l.held = l.held[:0]
	for _, id := range held { // what was held back goes along
		h := e.fleet.entries.all[id]
		if !h.alive || h.flight != 0 || h == e || h.p != e.p || e.fleet.network.linkOf(h) != l {
			continue
		}
		if call, next := h.poll(); call {
			h.call()
		} else {
			h.schedule(next)
		}
	}
}

// poll asks the client whether a call is due, and when to ask again.
func (e *entry) poll() (call bool, next clock.Instant) {
	now := e.Now()
	due := e.client.Tick(now, e.fleet.network.linkOf(e).latency.Quantile())
	e.fleet.books.lapse(e)
	switch {
	case e.client.Closed():
		e.finish()
		return false, lease.Never
	case due.Use == lease.InUse:
		return due.Call, due.At
	case due.Use == lease.UseEnded:
		e.leaveAt = now.Add(e.client.Lifetime())
	case due.Use == lease.Restable && e.rest():
		return false, lease.Never
	}
	if now >= e.leaveAt {
		e.finish()
		return false, lease.Never
	}
	return false, min(due.At, e.leaveAt)
}

// spend has an adversary spend what is left of a lease that is about to end.
func (e *entry) spend() {
	if e.p.pausedUntil == 0 && e.Now() < e.client.Deadline() {
		e.fleet.demand.drain(e)
	}
}

// call builds e's call into the batch that its link sends at the end of this instant, if the shard
// takes any now.
func (e *entry) call() {
	e.pressing = false
	if !e.Breaker().Admit(e.Now()) {
		e.putOff()
		return
	}
	if e.isAdversary() {
		e.fleet.demand.drain(e)
	}
	e.p.seq++
	r := e.client.Build(e.Now(), e.p.seq, e.fleet.network.linkOf(e).latency.Quantile())
	e.fleet.books.owing(e, r)
	e.asked = r.Seq
	e.flight = e.fleet.network.add(e, r)
	_, next := e.poll() // while the call is under way the lease may end
	e.schedule(next)
}

// putOff has e ask again later whether its shard takes calls. Who waits is told what the fallback
// says, and a process that leaves gives nothing back to a shard that is away.
func (e *entry) putOff() {
	now, b := e.Now(), e.Breaker()
	again := b.Turn(now)
	if e.client.Pool.Held() > 0 {
		again = min(again, e.client.Deadline())
	}
	if e.client.State(now) == lease.StateLeaving && b.Away() {
		e.fail(now, lease.ErrUnavailable)
	}
	if !e.alive {
		return
	}
	if _, next := e.poll(); next > now {
		again = min(next, again)
	}
	e.schedule(again)
}

// receive takes in what the store answered to one call.
func (e *entry) receive(c *call) {
	if e.drew(c) {
		return
	}
	e.use()
	now := e.Now()
	e.known = true
	err := c.err
	if err == nil {
		err = lease.ErrUnavailable // a reply to another call
		if got, ok := e.client.Accept(now, &c.grant); ok {
			e.flight = 0
			e.serve(now, got, c)
		}
	}
	if c.number == e.flight {
		e.fail(now, err)
	}
	e.Wake(e.client.HasWaiters() || e.client.State(now) == lease.StateLeaving)
}

// serve hands out what an accepted reply brought.
func (e *entry) serve(now clock.Instant, got lease.Accepted, c *call) {
	e.handed = e.fleet.books.accepted(c)
	e.client.Serve(now, got)
	e.fleet.books.audit.Close(e.key, false, e.handed) // what was drawn for requests that have gone
	if e.isAdversary() {
		now := e.fleet.time.now
		e.fleet.time.at(max(now, e.p.when(now, e.client.Deadline())-1), evSpend, e.id)
	}
}

// fail takes in a call without a grant.
func (e *entry) fail(now clock.Instant, err error) {
	e.flight = 0
	e.client.Fail(now, err)
	if e.client.Closed() {
		e.finish()
	}
}

// overdue ends the wait for the call with this number.
func (e *entry) overdue(number int64) {
	if e.alive && e.flight == number {
		e.use()
		now := e.Now()
		e.fail(now, lease.ErrUnavailable)
		e.Wake(e.client.State(now) == lease.StateLeaving)
	}
}

// rest lets e go, but for what it must know of its bucket.
func (e *entry) rest() bool {
	m, ok := e.client.Rest()
	if ok {
		e.p.rest(e.bucket, memory{of: m, until: e.leaveAt, known: e.known}, e.Now())
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
	delete(e.p.entries, e.bucket)
	if e.p.single == e {
		e.p.single = nil
	}
	e.fleet.time.cancel(evPoll, e.id)
	e.fleet.time.cancel(evSpend, e.id)
	e.fleet.entries.give(e.id)
}
