package engine

import (
	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A key at rest that is asked seldom makes each request a draw (docs/protocol.md section 8.17), as in
// package hybrid. Its entry has no client then. A draw that does not end with a plain reply starts
// that client, which takes it over.

// draw is a request of a key at rest on its way to the store and back.
type draw struct {
	*waiter
	memory  memory
	sent    clock.Instant
	request lease.Request
}

// drawFor makes r, of a key that has no entry, a draw. It is false where an entry has to decide.
func (f *fleet) drawFor(r *request) bool {
	p := r.p
	if p.group.patience != protocol.OneCall {
		return false
	}
	now, l := p.local(f.time.now), f.network.linkTo(p, r.key%int32(f.s.Redis.Shards))
	m := p.resting[r.key]
	if now >= m.until {
		m = memory{}
	}
	terms := protocol.Terms{ID: p.id, Policy: &p.policy, Proposed: &p.config, RTT: l.rules.RTT()}
	if l.breaker.Away(now) || 4*terms.RTT > f.s.CallTimeout || !m.of.Draws(now, r.n, &terms) || !l.breaker.Admit(now) {
		return false
	}
	delete(p.resting, r.key)
	id, w := f.waiters.take()
	e := f.add(p, r.key)
	*w = waiter{id: id, e: e, request: *r, audited: w.audited[:0]}
	w.Waiter = protocol.Waiter{N: r.n, Patience: protocol.OneCall, Deadline: protocol.Never, Owner: w}
	p.seq++
	e.asked, e.draw = p.seq, &draw{waiter: w, memory: m, sent: now}
	e.draw.memory.of.Draw(now, p.seq, r.n, &terms, &e.draw.request)
	e.flight = f.network.draw(e, now, &e.draw.request)
	return true
}

// use brings e into use, if it draws.
func (e *entry) use() {
	d := e.draw
	if d == nil {
		return
	}
	e.draw = nil
	e.start(d.memory.of)
	e.client.TakeOver(d.sent, &d.request, &d.Waiter)
	e.fleet.time.at(e.p.when(e.fleet.time.now, d.sent.Add(e.fleet.s.CallTimeout)), evWaitEnd, d.id)
	e.Wake(false)
}

// drew takes in the reply to e's draw, if that admits the request and says nothing else.
func (e *entry) drew(c *call) bool {
	d, b := e.draw, e.fleet.books
	if d == nil || c.err != nil {
		return false
	}
	m := &d.memory.of
	from, ok := m.Drew(d.sent, &e.p.config, &c.request, &c.grant)
	if !ok {
		return false
	}
	d.audited = append(d.audited, b.accepted(c))
	b.ended = b.ended.Plus(protocol.Account{Granted: d.N, Admitted: d.N})
	e.draw = nil
	e.forget()
	now := e.Now()
	e.p.rest(e.key, memory{of: *m, until: now.Add(m.Lifetime(&e.p.config))}, now)
	e.settled(d.waiter, d.N, protocol.Decision{
		Verdict: protocol.VerdictAdmit, Source: lease.SourceStore, Draw: from, Took: d.N,
	})
	return true
}
