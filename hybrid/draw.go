package hybrid

import (
	"context"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// draw is the call for one request whose key is at rest: a lease call that leases nothing (docs/protocol.md
// section 8.17). A draw needs no entry, no place in the scheduler and no timer of its own. If the reply does
// not admit the request, a new entry takes over the draw as its own call, and queues the request.
type draw struct {
	waiter
	m        *member
	slot     *slot
	call     lease.Call
	state    protocol.Draw
	target   *storeNode    // node of the key as last known
	until    clock.Instant // end of the request's wait
	proposed proposed
	entry    *entry // entry that took over the draw; guarded by the idle list's lock
}

// begin returns a draw for r, whose key has no entry. If the key's node is away and the key never had a
// reply, begin returns the answer of the local share instead: a client may invent any number of keys, so
// these keys get no entry, and no slot if Terms.Denies. begin returns neither if an entry must decide.
func (m *member) begin(r *request) (one *draw, share *decision, err error) {
	if r.spot.entry() != nil || m.cfg.Scope == ScopeProcess { // buckets in memory need no draws
		return nil, nil, nil
	}
	if r.handle != nil && r.handle.Load() != nil {
		r.handle.Store(nil)
	}
	number := nodeUnknown
	if r.spot.slot != nil {
		m.keys.idle.withKey(r.spot.slot, func(k *protocol.Key) { number = int(k.Node) })
	}
	n := m.nodeOf(r.spot.name, number)
	away := n.breaker.Away()
	if r.patience != protocol.OneCall && !away {
		return nil, nil, nil
	}
	own, err := m.proposalFor(r)
	if err != nil {
		return nil, nil, err
	}
	r.proposed = own // kept so that a new entry need not call LimitsFor again
	if away && !ask(n, (*rules).Full) && n.claimProbe(m.cfg.Clock.Now()) {
		return nil, nil, nil
	}
	if t := m.termsAt(n, own.config); !away || !t.Denies(n.breaker.Active()) {
		if err := m.addSlot(&r.spot); err != nil {
			return nil, nil, err
		}
		if f := m.beforeReport; f != nil {
			f(r.spot.name)
		}
	}
	one, share = m.beginAtRest(r, own)
	return one, share, nil
}

func (m *member) termsAt(n *storeNode, c *lease.Config) protocol.Terms {
	return protocol.Terms{ID: *m.id.Load(), Policy: &m.cfg.Policy, Proposed: c, RTT: n.rtt(),
		CallTimeout: m.cfg.CallTimeout}
}

// beginAtRest is the part of begin with the idle list's lock. r's key may have no slot.
func (m *member) beginAtRest(r *request, own proposed) (one *draw, share *decision) {
	s, idle := r.spot.slot, &m.keys.idle
	var key *protocol.Key
	if s != nil {
		key = &s.key
	} else {
		key = &protocol.Key{Node: nodeUnknown}
	}
	idle.mu.Lock()
	defer idle.mu.Unlock()
	now := m.cfg.Clock.Now()
	if !m.open() || own.fromSlot && key.Own() != own.config { // the key's proposal has changed
		return nil, nil
	}
	if m.outdated(&own) && !own.byHandle && m.cfg.LimitsFor != nil {
		return nil, nil
	}
	n := m.nodeOf(r.spot.name, int(key.Node))
	t, active := m.termsAt(n, own.config), n.breaker.Active()
	switch key.Asked(now, r.ask(), &t, n.breaker) {
	case protocol.ByShare:
		r.n = r.ask().Most(t.Most())
		if t.Denies(active) {
			d := m.shareDecision(r, 0, now, n, &protocol.Unheard{}, &t)
			return nil, &d
		}
		if s == nil { // the node's active weight has changed since begin: the key needs a slot
			return nil, nil
		}
		took, u := key.Fallback(now, r.minTokens(), r.n, &t, active)
		m.idleLocked(s, now, u.FullAt(&t, active).Sub(now))
		d := m.shareDecision(r, took, now, n, u, &t)
		share = &d
	case protocol.ByDraw:
		if s == nil || !n.breaker.Admit(now) { // the node has come back since begin: the draw needs a slot of the table
			return nil, nil
		}
		one = &draw{m: m, slot: s, target: n, until: now.Add(r.callWait(now, m.cfg.CallTimeout)), proposed: own}
		one.waiter = waiter{answer: make(chan protocol.Decision, 1), ctx: r.ctx}
		one.Waiter = protocol.Waiter{Ask: r.ask(), Owner: &one.waiter}
		one.call.Key, one.call.Node, one.call.Owner = m.storedKey(s.name), int(n.number), one
		one.state = protocol.Draw{For: &one.Waiter, Request: &one.call.Request, Owner: one}
		key.Draw(now, m.nextSeq(), &t, &one.state)
		idle.unlinkLocked(s)
		s.linkBefore(&idle.drawing)
	default:
		return nil, nil
	}
	key.Given = own.byHandle
	return one, share
}

func (d *draw) decide(r *request) decision {
	d.target.join(&d.call, d.state.Sent)
	answer := d.await()
	if e := d.entry; e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.decisionLocked(answer, *r, 0, 0) // only a request in line has a deadline
	}
	d.m.observer.awaited.Add(answer.Took)
	made := decision{
		ok: true, taken: answer.Took, source: answer.Source, hold: hold{n: answer.Took, draw: answer.Draw},
	}
	if r.verb != "" { // the method returns a Result
		outlook := protocol.GrantOutlook(&d.call.Grant, r.n, d.m.cfg.Policy.Headroom)
		made.outlook = &outlook
	}
	return made
}

// shareDecision counts and returns the local share's answer to r, which got took tokens.
func (m *member) shareDecision(
	r *request, took int64, now clock.Instant, n *storeNode, u *protocol.Unheard, t *protocol.Terms,
) decision {
	o := u.Outlook(now, r.minTokens(), t, n.breaker.Active(), m.cfg.CallTimeout)
	d := decision{
		ok: took > 0, taken: took, source: SourceFallback, outlook: &o, share: &n.fallbacks, shareMax: t.Most(),
	}
	n.fallbacks.count(took, took)
	if !d.ok {
		d.wait = o.RetryAfter
	}
	if took < r.n && !r.joined {
		m.book(&d, countable(r.n-took))
	}
	return d
}

// await waits for the answer to d. If the request's context ends first, an entry takes over d.
func (d *draw) await() protocol.Decision {
	if d.until < d.state.Sent.Add(node.Patience(d.m.cfg.CallTimeout)) { // the batch times out later than until
		defer d.m.cfg.Clock.AfterFunc(d.until.Sub(d.state.Sent), func() { d.takeOver() }).Stop()
	}
	select {
	case decision := <-d.answer:
		return decision
	case <-d.ctx.Done():
	}
	if e := d.takeOver(); e != nil {
		e.with(func() { e.client.Cancel(e.Now(), &d.Waiter) }) // Cancel has no effect after an answer
	}
	return <-d.answer
}

// takeOver makes an entry take over d, and returns the entry, or nil if d has been answered.
func (d *draw) takeOver() *entry {
	idle := &d.m.keys.idle
	for {
		idle.mu.Lock()
		e, underWay, own := d.entry, d.slot.key.UnderWay() == &d.state, d.proposed
		if proposal := d.slot.key.Own(); underWay && proposal != nil {
			own.config = proposal // a Refresh may have changed the proposal
		}
		idle.mu.Unlock()
		if e != nil || !underWay {
			return e
		}
		d.m.newEntry(d.slot, own)
	}
}

// accept handles a reply that admits the request of d. accept returns false for any other reply.
func (d *draw) accept(n *storeNode, now clock.Instant) bool {
	s, idle := d.slot, &d.m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if d.call.Err != nil {
		return false
	}
	from, ok := s.key.Drew(now, &d.state, n.breaker, &d.call.Grant)
	if !ok {
		return false
	}
	s.key.Node = n.number
	d.m.idleLocked(s, now, s.key.Lifetime(d.proposed.config))
	d.m.observer.countDraw(d.N)
	d.m.observer.nearlyUsed(s.name, &d.call.Grant, now)
	d.m.observer.lostBucket(s.name, &d.call, false)
	d.answer <- protocol.Decision{Verdict: protocol.VerdictAdmit, Source: SourceStore, Draw: from, Took: d.N}
	return true
}

// endDraws moves every draw into the entry of its key, before the Limiter shuts down or closes.
func (m *member) endDraws() {
	idle := &m.keys.idle
	for {
		idle.mu.Lock()
		d := idle.drawing.next.key.UnderWay()
		idle.mu.Unlock()
		if d == nil {
			return
		}
		d.Owner.(*draw).takeOver()
	}
}

// The methods below implement caller for a draw.

func (d *draw) receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64) {
	if d.accept(n, now) {
		d.m.observer.queue.Run()
		d.m.observer.slowNetwork(c.Grant.Config.Limits, n.shortest())
		return c.Grant.Granted
	}
	if e := d.takeOver(); e != nil {
		granted = e.receive(c, n, now)
	}
	return granted
}

func (d *draw) overdue(c *lease.Call) (underWay bool) {
	e := d.takeOver()
	return e != nil && e.overdue(c)
}

func (d *draw) abandon(c *lease.Call, now clock.Instant, err error) {
	if e := d.takeOver(); e != nil {
		e.abandon(c, now, err)
	}
}

func (d *draw) calledNode() *storeNode { return d.target }
func (d *draw) name() string           { return d.slot.name }

// Waiting implements lease.Awaited.
func (d *draw) Waiting(most int) []context.Context {
	idle := &d.m.keys.idle
	idle.mu.Lock()
	e := d.entry
	idle.mu.Unlock()
	if e != nil {
		return e.Waiting(most)
	}
	return []context.Context{d.ctx}[:min(most, 1)]
}
