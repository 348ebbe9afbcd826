package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// entry is one key in one process, with a protocol.Client. TestProcessesAreGrantedWhatHybridIs compares the
// behaviour of an entry with package hybrid.
type entry struct {
	fleet  *fleet
	p      *process
	key    int32
	id     int32
	shard  int32 // index of the key's Redis shard
	alive  bool
	client protocol.Client

	pressing bool          // a request waits for the entry's next call
	flight   int64         // number of the call under way; 0 for none
	asked    int64         // seq of the last call
	leaveAt  clock.Instant // when the process forgets the entry

	charged int64 // tokens that requests used beyond their reservations
	paid    int64 // number of charged tokens that replies of the bucket have confirmed

	last   execution   // the last call of the entry that the bucket has executed
	handed audit.Drawn // tokens of the present reply for waiting requests, less those handed out

	state protocol.Key // at rest until the client starts
}

// atRest is a key that has no entry in its process.
type atRest struct {
	key   protocol.Key
	until clock.Instant // when the process forgets the key
}

type waiter struct {
	protocol.Waiter
	e       *entry
	request request
	audited []audit.Drawn // the auditor's record of the tokens that the waiter has so far
	id      int32
}

func (e *entry) newWaiter(r *request, ask protocol.Ask) *waiter {
	id, w := e.fleet.waiters.take()
	*w = waiter{e: e, request: *r, audited: w.audited[:0], id: id}
	w.Waiter = protocol.Waiter{Ask: ask, Owner: w}
	return w
}

func (e *entry) isAdversary() bool { return e.p.group.load.Kind == scenario.Adversary }

// take tries to admit a request from the pool, on the hot path.
func (e *entry) take(n int64) bool {
	if e.p.policy.StrictExpiry {
		e.client.Holder.Expire(e.Now())
	}
	var t pool.Taken
	if n == 1 {
		t = e.client.Holder.Pool.Take()
	} else {
		t = e.client.Holder.Pool.TakeN(n)
	}
	if t == pool.TookLow {
		e.client.Low()
		e.Wake(false)
	}
	return t.OK()
}

func (e *entry) decide(r request) {
	if e.take(r.n) {
		if x := r.reservation; x != nil {
			x.tokens, x.draw = r.n, e.client.Holder.Pool.Drawn()
		}
		e.fleet.books.audit.Admit(e.fleet.time.now, r.key, r.n)
		e.answer(&r, true, r.n)
		return
	}
	now, g := e.Now(), e.p.group
	ask := protocol.Ask{N: r.n, Patience: g.patience, Deadline: now.Add(g.waits)}
	d := e.client.Decide(now, ask)
	switch {
	case d.Verdict == protocol.VerdictWait:
		w := e.newWaiter(&r, ask)
		e.fleet.time.at(e.p.after(e.fleet.time.now, g.waits), evWaitEnd, w.id)
		e.client.Enqueue(now, &w.Waiter)
	case d.OK() && d.Source != lease.SourceFallback:
		if x := r.reservation; x != nil {
			x.tokens, x.draw = r.n, d.Draw
		}
		e.fleet.books.audit.Admit(e.fleet.time.now, r.key, r.n)
		e.answer(&r, true, r.n)
	default:
		e.answer(&r, d.OK(), 0)
	}
}

// answer delivers the decision to a request; see books.answered. In shadow mode a denied request proceeds,
// unless its process has ended meanwhile.
func (e *entry) answer(r *request, ok bool, tokens int64) {
	e.fleet.books.answered(r, ok, tokens)
	if !ok && e.p.group.Shadow && e.p.state == running {
		e.fleet.books.shadow(r)
		ok = true
	}
	if x := r.reservation; x != nil && ok {
		e.fleet.demand.hold(x)
	} else if x != nil {
		e.fleet.demand.reservations.give(x.id)
	}
}

func (w *waiter) end() {
	if w.Patience == protocol.InLine {
		w.e.client.Cancel(w.e.Now(), &w.Waiter)
	} else {
		w.e.client.TimeOut(w.e.Now(), &w.Waiter)
	}
}

// The following methods of entry implement protocol.Host.

func (e *entry) Now() clock.Instant { return e.p.local(e.fleet.time.now) }

// Wake polls e at the end of this instant.
func (e *entry) Wake(urgent bool) {
	e.pressing = e.pressing || urgent
	e.askAt(e.fleet.time.now)
}

// DeniesOne schedules nothing, because every request reads the clock.
func (e *entry) DeniesOne(clock.Instant) {}

func (e *entry) Handed(w *protocol.Waiter, n int64, from protocol.Origin) {
	x := w.Owner.(*waiter)
	if from == protocol.FromGrant {
		x.audited = append(x.audited, e.handed.Part(n))
		e.handed.N -= n
		return
	}
	x.audited = append(x.audited, e.fleet.books.audit.Open(e.fleet.time.now, e.key, n))
}

// Passed moves the oldest records of w to another waiter: the tokens that w keeps came last, from the pool.
func (e *entry) Passed(w, to *protocol.Waiter, n int64) {
	from, x := w.Owner.(*waiter), to.Owner.(*waiter)
	for n > 0 {
		first := &from.audited[0]
		part := first.Part(min(n, first.N))
		x.audited = append(x.audited, part)
		if n, first.N = n-part.N, first.N-part.N; first.N == 0 {
			from.audited = from.audited[1:]
		}
	}
}

func (e *entry) Forfeited(w *protocol.Waiter) {
	x := w.Owner.(*waiter)
	e.fleet.books.audit.Close(e.key, false, x.audited...)
	x.audited = x.audited[:0]
}

func (e *entry) Settled(w *protocol.Waiter, d protocol.Decision) { e.settled(w, w.Got(), d) }

// settled delivers decision d to the request of w, which has drawn tokens from the bucket.
func (e *entry) settled(w *protocol.Waiter, tokens int64, d protocol.Decision) {
	x := w.Owner.(*waiter)
	r := x.request
	admitted := d.OK() && d.Source != lease.SourceFallback
	if y := r.reservation; admitted && y != nil {
		y.tokens, y.draw = tokens, d.Draw
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

// spend makes an adversary spend all tokens of a lease that is about to end.
func (e *entry) spend() {
	if e.p.pausedUntil == 0 && e.Now() < e.client.Holder.Deadline() {
		e.fleet.demand.drain(e)
	}
}

func (e *entry) rest() bool {
	m, ok := e.client.Rest()
	if ok {
		k := e.state
		k.Rest(m, false)
		e.p.rest(e.key, atRest{k, e.leaveAt}, e.Now())
		e.finish()
	}
	return ok
}

// finish ends e, which is alive: its held tokens are burnt, and its waiters are denied.
func (e *entry) finish() {
	e.activate()
	e.client.Close()
	e.fleet.books.close(e)
	e.forget()
}

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

func (e *entry) schedule(next clock.Instant) {
	if next != protocol.Never {
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

func (e *entry) ask() {
	call, next := e.poll()
	if !call {
		e.pressing = false
		e.schedule(next)
		return
	}
	l := e.fleet.network.linkOf(e)
	if len(l.open) == 0 && !l.rules.Gate(e.Now(), e.pressing) && !(e.pressing && l.rules.Hold()) {
		l.held = append(l.held, e)
		e.schedule(l.rules.Next())
		return
	}
	e.call(next)
	held := l.held
	l.held = l.held[:0]
	for _, h := range held { // calls that were held back travel with this call
		if !h.alive || h.flight != 0 || h == e {
			continue
		}
		if call, next := h.poll(); call {
			h.call(next)
		} else {
			h.schedule(next)
		}
	}
}

// poll reports whether the client wants to make a call, and when to poll again.
func (e *entry) poll() (call bool, next clock.Instant) {
	now := e.Now()
	due := e.client.Tick(now, e.fleet.network.linkOf(e).rules.RTT())
	e.fleet.books.lapse(e)
	switch {
	case e.client.Closed():
		e.finish()
		return false, protocol.Never
	case due.Use == protocol.InUse:
		return due.Call, due.At
	case due.Use == protocol.UseEnded:
		e.leaveAt = now.Add(e.client.Lifetime())
	case due.Use == protocol.Restable && e.rest():
		return false, protocol.Never
	}
	if now >= e.leaveAt {
		e.finish()
		return false, protocol.Never
	}
	return false, min(due.At, e.leaveAt)
}

// call adds e's call to the batch that e's link sends at the end of this instant, and schedules e's next poll
// at next. If the shard accepts no calls now, call postpones the call.
func (e *entry) call(next clock.Instant) {
	e.pressing = false
	n, l, now := e.fleet.network, e.fleet.network.linkOf(e), e.Now()
	b := n.batchOn(l)
	if b == nil { // too many batches are under way
		again := now.Add(node.Window)
		if l.breaker.Away() {
			again = max(again, e.client.Failures.Turn(now))
			e.poll() // the fallback answers waiting requests
		}
		e.schedule(again)
		return
	}
	if !l.breaker.Admit(now) {
		e.putOff()
		return
	}
	if e.isAdversary() {
		e.fleet.demand.drain(e)
	}
	e.p.seq++
	r := e.client.Build(now, e.p.seq, l.rules.RTT())
	e.fleet.books.owing(e, r)
	e.asked = r.Seq
	b.calls = append(b.calls, n.newCall(e, r))
	e.flight = n.made
	e.schedule(next)
}

// putOff makes e retry when e's shard may accept calls. The fallback answers e's waiters. A process that
// leaves gives nothing back to a shard that is away.
func (e *entry) putOff() {
	now, b := e.Now(), e.Breaker()
	if e.client.State(now) == protocol.StateLeaving && b.Away() {
		e.fail(now, lease.ErrUnavailable)
	}
	if e.alive {
		_, next := e.poll()
		e.schedule(min(next, e.client.Failures.Turn(now)))
	}
}

func (e *entry) receive(c *call) {
	if e.drew(c) {
		return
	}
	e.activate()
	now := e.Now()
	err := c.err
	if err == nil {
		err = lease.ErrUnavailable // the error if the reply belongs to another call
		if got, ok := e.client.Accept(now, &c.grant); ok {
			e.flight = 0
			e.handed = e.fleet.books.accepted(c)
			e.client.Serve(now, got)
			e.fleet.books.audit.Close(e.key, false, e.handed) // tokens for requests that no longer wait
			if e.isAdversary() {
				at := e.p.when(e.fleet.time.now, e.client.Holder.Deadline()) - 1
				e.fleet.time.at(max(e.fleet.time.now, at), evSpend, e.id)
			}
		}
	}
	if c.number == e.flight {
		e.fail(now, err)
	}
	e.Wake(e.client.Line.HasWaiters() || e.client.State(now) == protocol.StateLeaving)
}

func (e *entry) fail(now clock.Instant, err error) {
	e.flight = 0
	e.client.Fail(now, err)
	if e.client.Closed() {
		e.finish()
	}
}

func (e *entry) awaits(number int64) bool { return e.alive && e.flight == number }

func (e *entry) overdue(number int64) {
	if e.awaits(number) {
		e.activate()
		now := e.Now()
		e.fail(now, lease.ErrUnavailable)
		e.Wake(e.client.State(now) == protocol.StateLeaving)
	}
}

// activate starts e's client, which takes over a draw under way, unless the client has started.
func (e *entry) activate() {
	if !e.state.AtRest() {
		return
	}
	p, f, now := e.p, e.fleet, e.Now()
	e.client.Start(now, e, protocol.ClientConfig{
		ID: p.id, Seed: p.holders.Uint64(), Policy: &p.policy, Proposed: &p.config, CallTimeout: f.s.CallTimeout,
	})
	if d := e.state.Activate(now, &e.client); d != nil {
		f.time.at(p.when(f.time.now, d.Sent.Add(f.s.CallTimeout)), evWaitEnd, d.For.Owner.(*waiter).id)
	}
	if f.s.Keys.Count == 1 {
		p.single = e
	}
	e.Wake(false)
}

// drew processes the reply to a draw of e, and reports whether the reply only admits the request. For any
// other reply, the caller starts e's client.
func (e *entry) drew(c *call) bool {
	d, b, now := e.state.UnderWay(), e.fleet.books, e.Now()
	if d == nil || c.err != nil {
		return false
	}
	from, ok := e.state.Drew(now, d, e.Breaker(), &c.grant)
	if !ok {
		return false
	}
	w, n := d.For.Owner.(*waiter), d.For.N
	w.audited = append(w.audited, b.accepted(c))
	b.ended = b.ended.Plus(protocol.Account{Granted: n, Admitted: n})
	e.forget()
	e.p.rest(e.key, atRest{e.state, now.Add(e.state.Lifetime(&e.p.config))}, now)
	e.settled(d.For, n, protocol.Decision{
		Verdict: protocol.VerdictAdmit, Source: lease.SourceStore, Draw: from, Took: n,
	})
	return true
}
