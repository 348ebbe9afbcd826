package engine

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is what hybrid's draw.go and node.go do: a key at rest that is asked seldom makes each
// request a draw (docs/protocol.md section 8.17). Its entry has no client then. Whatever does not
// end with a plain reply starts that client, which takes the draw over.

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
	now, shard := p.local(f.time.now), r.key%int32(f.s.Redis.Shards)
	m := p.resting[r.key]
	if now >= m.until {
		m = memory{}
	}
	l, breaker := f.network.linkFor(p, shard, m.known), f.network.breakerAt(p, shard)
	terms := protocol.Terms{ID: p.id, Policy: &p.policy, Proposed: &p.config, RTT: l.latency.Quantile()}
	if breaker.Away(now) || 4*terms.RTT > f.s.CallTimeout || !m.of.Draws(now, r.n, &terms) || !breaker.Admit(now) {
		return false
	}
	delete(p.resting, r.key)
	id, w := f.waiters.take()
	e := f.add(p, r.key)
	*w = waiter{id: id, e: e, request: *r, audited: w.audited[:0]}
	w.Waiter = protocol.Waiter{N: r.n, Patience: protocol.OneCall, Deadline: protocol.Never, Owner: w}
	p.seq++
	e.known, e.asked, e.draw = m.known, p.seq, &draw{waiter: w, memory: m, sent: now}
	e.draw.memory.of.Draw(now, p.seq, r.n, &terms, &e.draw.request)
	e.flight = f.network.draw(l, e, &e.draw.request)
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
	e.p.rest(e.key, memory{of: *m, until: now.Add(m.Lifetime(&e.p.config)), known: true}, now)
	e.settled(d.waiter, d.N, protocol.Decision{
		Verdict: protocol.VerdictAdmit, Source: lease.SourceStore, Draw: from, Took: d.N,
	})
	return true
}

// lanesFree is how many batches of draws are under way on a link before further ones are held back.
const lanesFree = 2

// lane collects the draws of one link into batches.
type lane struct {
	waiting  []call
	underWay int
	sentAt   clock.Instant
}

// draw has e's draw travel with the next batch of l's lane, and returns the number of the call.
func (n *network) draw(l *link, e *entry, r *lease.Request) int64 {
	c := n.newCall(e, r)
	l.lane.waiting = append(l.lane.waiting, c)
	n.depart(e.p, l)
	return c.number
}

// depart sends what waits in l's lane: at once while few batches are under way, otherwise when one
// of them has come back, or a batchWindow after the last. To a shard that is away none goes.
func (n *network) depart(p *process, l *link) {
	a, now := &l.lane, p.local(n.time.now)
	again := a.sentAt.Add(batchWindow)
	if a.underWay >= lanesFree && now < again && len(a.waiting) < batchSize {
		if at := p.when(n.time.now, again); len(a.waiting) > 0 && !n.time.expects(at, evLane, l.id) {
			n.time.at(at, evLane, l.id)
		}
		return
	}
	waiting := a.waiting
	a.waiting = nil
	var batches []*batch
	for _, c := range waiting {
		e := c.entry
		if !e.alive || e.Breaker().Away(now) {
			e.overdue(c.number)
			continue
		}
		i := slices.IndexFunc(batches, func(b *batch) bool { return b.shard == e.shard && len(b.calls) < batchSize })
		if i < 0 {
			i = len(batches)
			batches = append(batches, n.newBatch(batch{p: p, life: p.life, link: l, shard: e.shard, draws: true}))
		}
		batches[i].calls = append(batches[i].calls, c)
	}
	for _, b := range batches {
		a.underWay++
		a.sentAt = now
		n.flush(b)
	}
}
