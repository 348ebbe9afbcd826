package hybrid

import (
	"context"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A key that is asked seldom never comes into use: it stays at rest, and each of its requests is a
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

// drawFor answers r by a draw, if its key is at rest and asked so seldom that this is best. done is
// false where an entry has to decide.
func (m *member) drawFor(r *request) (d decision, done bool) {
	if r.patience != protocol.OneCall ||
		r.spot.slot == nil && m.nodeOf(r.name, nodeUnknown).breaker.Away(m.cfg.Clock.Now()) {
		return decision{}, false
	}
	own, err := m.proposed(r)
	if err == nil {
		err = m.addSlot(&r.spot)
	}
	if err != nil {
		return decision{err: err}, true
	}
	if f := m.cfg.Events.BeforeReport; f != nil {
		f(r.spot.slot.name)
	}
	one := m.beginDraw(r.spot.slot, own, r)
	if one == nil {
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

// beginDraw makes the draw that answers r, or nil where an entry has to decide.
func (m *member) beginDraw(s *slot, own proposed, r *request) *draw {
	idle := &m.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	now := m.cfg.Clock.Now()
	if !m.open() || own.kept && s.key.Own() != own.config { // another handle's limits, or those of a Refresh
		return nil
	}
	if m.outdated(&own) && !own.given && m.cfg.LimitsFor != nil {
		return nil
	}
	n := m.nodeOf(s.name, int(s.key.Node))
	terms := protocol.Terms{ID: *m.id.Load(), Policy: &m.cfg.Policy, Proposed: own.config, RTT: n.rtt(),
		CallTimeout: m.cfg.CallTimeout}
	if !s.key.Draws(now, r.n, &terms, n.breaker) || !n.breaker.Admit(now) {
		return nil
	}
	d := &draw{m: m, slot: s, to: n, until: now.Add(r.callWait(now, m.cfg.CallTimeout)), own: own}
	d.waiter = waiter{told: make(chan protocol.Decision, 1), ctx: r.ctx}
	d.Waiter = protocol.Waiter{
		Ask:   protocol.Ask{N: r.n, Patience: r.patience, Deadline: protocol.Never, Uncounted: r.joined},
		Owner: &d.waiter,
	}
	d.call.Key, d.call.Node, d.call.Owner = m.storedKey(s.name), int(n.number), d
	d.of = protocol.Draw{For: &d.Waiter, Request: &d.call.Request, Owner: d}
	s.key.Draw(now, m.nextSeq(), &terms, &d.of)
	s.key.Given = own.given
	idle.unlinkLocked(s)
	s.linkBefore(&idle.drawing)
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

// admitted takes in the reply to d, if it is a mere admission.
func (d *draw) admitted(n *storeNode, now clock.Instant) bool {
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
	idle.unlinkLocked(s)
	if idle.linkLocked(s, now, s.key.Lifetime(d.own.config)) {
		d.m.wake()
	}
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
	if d.admitted(n, now) {
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
