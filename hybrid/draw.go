package hybrid

import (
	"context"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A key that is asked seldom, by Allow or Take, stays at rest, and each of its requests is a
// draw, a lease call that leases nothing (docs/protocol.md section 8.17). That takes no entry, no
// place in the scheduler and no timer. Where a draw does not end with the request admitted, the key
// comes into use: its new entry takes the draw over as its own call, with the request in its queue.

// draw is a request of a key at rest on its way to the store and back. It owns its call.
type draw struct {
	waiter
	m     *member
	slot  *slot
	call  lease.Call
	of    protocol.Draw
	to    *storeNode    // that serves the key, as far as is known
	until clock.Instant // its request waits no longer than that
	own   proposed      // by which it was made
	entry *entry        // that has taken it over; guarded by the idle list's lock
}

// answerAtRest answers r for a key that has no entry: by a draw, or, where its node is away and it was never
// heard of, by its local share. done is false where an entry has to decide. An entry is kilobytes, and a call
// once the node is back: too much for each key that a client makes up in an outage.
func (m *member) answerAtRest(r *request) (d decision, done bool) {
	if r.spot.entry() != nil || m.cfg.Scope == ScopeProcess { // no way to the store is saved in a process
		return decision{}, false
	}
	if r.handle != nil && r.handle.Load() != nil {
		r.handle.Store(nil)
	}
	number := nodeUnknown
	if r.spot.slot != nil {
		m.keys.idle.with(r.spot.slot, func(k *protocol.Key) { number = int(k.Node) })
	}
	n := m.nodeOf(r.spot.name, number)
	away := n.breaker.Away()
	if r.patience != protocol.OneCall && !away {
		return decision{}, false
	}
	own, err := m.proposed(r)
	if err != nil {
		return decision{err: err}, true
	}
	r.proposed = own // for an entry, or LimitsFor would be asked twice
	if away && !n.full() && n.claimProbe(m.cfg.Clock.Now()) {
		return decision{}, false
	}
	if d, done = m.denyAway(r, n, own.config); done {
		return d, true
	}
	if err := m.addSlot(&r.spot); err != nil {
		return decision{err: err}, true
	}
	if f := m.beforeReport; f != nil {
		f(r.spot.slot.name)
	}
	one, share := m.beginAtRest(r, own)
	switch {
	case share != nil:
		return *share, true
	case one == nil:
		return decision{}, false
	}
	one.to.join(one)
	told := one.await()
	if e := one.entry; e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.decisionLocked(told, *r, 0, 0), true // a request that does not wait in line has no deadline
	}
	m.observer.awaited.Add(told.Took)
	d = decision{ok: true, taken: told.Took, source: told.Source, hold: hold{n: told.Took, draw: told.Draw}}
	if r.verb != "" { // the caller wants a Result
		outlook := protocol.GrantOutlook(&one.call.Grant, r.n, m.cfg.Policy.Headroom)
		d.outlook = &outlook
	}
	return d, true
}

// termsAt are the terms of a key at rest for which c is proposed, at node n.
func (m *member) termsAt(n *storeNode, c *lease.Config) protocol.Terms {
	return protocol.Terms{ID: *m.id.Load(), Policy: &m.cfg.Policy, Proposed: c, RTT: n.rtt(),
		CallTimeout: m.cfg.CallTimeout}
}

// denyAway denies r without a slot, if its node n is away and the policy or the limits deny every unheard key
// (Terms.Denies).
func (m *member) denyAway(r *request, n *storeNode, c *lease.Config) (d decision, done bool) {
	now, t := m.cfg.Clock.Now(), m.termsAt(n, c)
	if !t.Denies(n.breaker.Active()) {
		return decision{}, false
	}
	way := protocol.ByClient
	m.keys.idle.with(r.spot.slot, func(k *protocol.Key) { way = k.Asked(now, r.ask(), &t, n.breaker) })
	if way != protocol.ByShare {
		return decision{}, false
	}
	r.n = r.ask().Most(t.Most())
	return m.shareDecision(r, 0, now, n, &protocol.Unheard{}, &t), true
}

// beginAtRest makes the draw that answers r, or answers r by the local share; both are nil where an entry has
// to decide.
func (m *member) beginAtRest(r *request, own proposed) (one *draw, share *decision) {
	s, idle := r.spot.slot, &m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	now := m.cfg.Clock.Now()
	if !m.open() || own.kept && s.key.Own() != own.config { // another handle's limits, or those of a Refresh
		return nil, nil
	}
	if m.outdated(&own) && !own.given && m.cfg.LimitsFor != nil {
		return nil, nil
	}
	n := m.nodeOf(s.name, int(s.key.Node))
	t := m.termsAt(n, own.config)
	switch s.key.Asked(now, r.ask(), &t, n.breaker) {
	case protocol.ByDraw:
		if !n.breaker.Admit(now) {
			return nil, nil
		}
		one = &draw{m: m, slot: s, to: n, until: now.Add(r.callWait(now, m.cfg.CallTimeout)), own: own}
		one.waiter = waiter{told: make(chan protocol.Decision, 1), ctx: r.ctx}
		one.Waiter = protocol.Waiter{Ask: r.ask(), Owner: &one.waiter}
		one.call.Key, one.call.Node, one.call.Owner = m.storedKey(s.name), int(n.number), one
		one.of = protocol.Draw{For: &one.Waiter, Request: &one.call.Request, Owner: one}
		s.key.Draw(now, m.nextSeq(), &t, &one.of)
		idle.unlinkLocked(s)
		s.linkBefore(&idle.drawing)
	case protocol.ByShare:
		r.n = r.ask().Most(t.Most())
		took, u := s.key.Fallback(now, r.least(), r.n, &t, n.breaker.Active())
		m.idleLocked(s, now, u.FullAt(&t, n.breaker.Active()).Sub(now))
		d := m.shareDecision(r, took, now, n, u, &t)
		share = &d
	default:
		return nil, nil
	}
	s.key.Given = own.given
	return one, share
}

// idleLocked has s leave the table lifetime after now, unless it is used again.
func (m *member) idleLocked(s *slot, now clock.Instant, lifetime time.Duration) {
	idle := &m.keys.idle
	idle.unlinkLocked(s)
	if idle.linkLocked(s, now, lifetime) {
		m.wake()
	}
}

// shareDecision returns the answer to r and counts it. u has given r as many tokens as took says.
func (m *member) shareDecision(
	r *request, took int64, now clock.Instant, n *storeNode, u *protocol.Unheard, t *protocol.Terms,
) decision {
	o := u.Outlook(now, r.least(), t, n.breaker.Active(), m.cfg.CallTimeout)
	d := decision{ok: took > 0, taken: took, source: SourceFallback, outlook: &o, away: n, most: t.Most()}
	n.countFallback(took, took)
	if !d.ok {
		d.wait = o.RetryAfter
	}
	if took < r.n && !r.joined {
		m.book(&d, countable(r.n-took))
	}
	return d
}

// await waits for the answer. Where the request's context ends first, an entry takes the draw over,
// which gives back the tokens that it brings.
func (d *draw) await() protocol.Decision {
	if d.until < d.of.Sent.Add(node.Patience(d.m.cfg.CallTimeout)) { // its batch takes care of a later time
		defer d.m.cfg.Clock.AfterFunc(d.until.Sub(d.of.Sent), func() { d.takeOver() }).Stop()
	}
	select {
	case told := <-d.told:
		return told
	case <-d.ctx.Done():
	}
	if e := d.takeOver(); e != nil {
		e.with(func() { e.client.Cancel(e.Now(), &d.Waiter) }) // unless it was told something in the same moment
	}
	return <-d.told
}

// takeOver is the entry of d's key, which has taken d over; nil where d has been answered before.
func (d *draw) takeOver() *entry {
	idle := &d.m.keys.idle
	for {
		idle.mu.Lock()
		e, flies, own := d.entry, d.slot.key.UnderWay() == &d.of, d.own
		if is := d.slot.key.Own(); flies && is != nil {
			own.config = is // a Refresh may have changed it
		}
		idle.mu.Unlock()
		if e != nil || !flies {
			return e
		}
		d.m.newEntry(d.slot, own)
	}
}

// accept takes in the reply to d, if it is a mere admission.
func (d *draw) accept(n *storeNode, now clock.Instant) bool {
	s, idle := d.slot, &d.m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if d.call.Err != nil {
		return false
	}
	from, ok := s.key.Drew(now, &d.of, n.breaker, &d.call.Grant)
	if !ok {
		return false
	}
	s.key.Node = n.number
	d.m.idleLocked(s, now, s.key.Lifetime(d.own.config))
	d.m.observer.drew(d.N)
	d.m.observer.nearlyUsed(s.name, &d.call.Grant, now)
	d.m.observer.lostBucket(s.name, &d.call, false)
	d.told <- protocol.Decision{Verdict: protocol.VerdictAdmit, Source: SourceStore, Draw: from, Took: d.N}
	return true
}

// endDraws has entries take over all draws, after the Limiter was closed or left: so their requests
// are answered, and no draws follow.
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

// The methods that make a draw a caller.

func (d *draw) receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64) {
	if d.accept(n, now) {
		d.m.observer.queue.run()
		d.m.observer.heard(c.Grant.Config.Limits, n.shortest())
		return c.Grant.Granted
	}
	if e := d.takeOver(); e != nil {
		granted = e.receive(c, n, now)
	}
	return granted
}

func (d *draw) awaits(c *lease.Call) bool {
	idle := &d.m.keys.idle
	idle.mu.Lock()
	e, flies := d.entry, d.slot.key.UnderWay() == &d.of
	idle.mu.Unlock()
	return flies || e != nil && e.awaits(c)
}

func (d *draw) abandon(c *lease.Call, now clock.Instant, err error) {
	if e := d.takeOver(); e != nil {
		e.abandon(c, now, err)
	}
}

func (d *draw) overdue()       { d.takeOver() }
func (d *draw) at() *storeNode { return d.to }
func (d *draw) name() string   { return d.slot.name }

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
