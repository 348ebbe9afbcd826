package hybrid

import (
	"context"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A key that is asked seldom never comes into use: it stays at rest, and each of its requests is a
// draw, a lease call that leases nothing (docs/protocol.md section 8.17). That takes no entry, no
// place in the scheduler and no timer of its own. Whatever does not end with the request admitted
// and nothing else to say brings the key into use: its new entry takes the draw over as a call of
// its own, with the request in its queue, and all goes on as it always did.

// draw is a request of a key at rest on its way to the store and back. It owns its call.
type draw struct {
	waiter
	l     *Limiter
	slot  *slot
	call  lease.Call
	sent  clock.Instant
	to    *node         // that serves the key, as far as is known
	until clock.Instant // its request waits no longer than that
	own   proposed      // by which it was made
	entry *entry        // that has taken it over; guarded by the idle list's lock
}

// proposed is what this process proposes for one key, and where that comes from.
type proposed struct {
	config *lease.Config // nil where it is not known
	given  bool          // by a KeyWith
	kept   bool          // by the slot of the key
	asked  int64         // the number of the Refresh before which LimitsFor was asked
}

// drawFor answers r by a draw, if its key is at rest and asked so seldom that this is best. done is
// false where an entry has to decide.
func (l *Limiter) drawFor(r *request) (d decision, done bool) {
	s := l.keys.load(r.name)
	// In a process no way to the store could be saved.
	other := r.patience != protocol.OneCall || l.cfg.Scope == ScopeProcess
	if other || s != nil && s.entry.Load() != nil {
		return decision{}, false
	}
	if s == nil && l.nodeOf(r.name, nodeUnknown).breaker.Away(l.cfg.Clock.Now()) {
		return decision{}, false
	}
	own, err := l.proposedFor(s, r.name, r.key)
	if err == nil && s == nil {
		s, err = l.addSlot(r.name)
	}
	if err != nil {
		return decision{err: err}, true
	}
	if f := l.cfg.Events.BeforeReport; f != nil {
		f(s.name)
	}
	one := l.beginDraw(s, own, r)
	if one == nil {
		return decision{}, false
	}
	r.key.rest()
	one.to.lane.join(l, one)
	told := one.await()
	if e := one.entry; e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.decisionLocked(told, *r, 0, 0), true // who does not wait in line has no deadline
	}
	l.counters.awaited.Add(told.Took)
	d = decision{ok: true, taken: told.Took, source: told.Source, hold: hold{n: told.Took, draw: told.Draw}}
	if r.verb != "" { // the caller wants a Result
		outlook := protocol.GrantOutlook(&one.call.Grant, r.n, l.cfg.Policy.Headroom)
		d.outlook = &outlook
	}
	return d, true
}

// beginDraw makes the draw that answers r, or nil where an entry has to decide.
func (l *Limiter) beginDraw(s *slot, own proposed, r *request) *draw {
	idle := &l.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	now := l.cfg.Clock.Now()
	if s.gone || s.entry.Load() != nil || s.draw != nil || l.state.Load() != stateOpen {
		return nil
	}
	if s.unheard != nil {
		if now < s.leaveAt {
			return nil // an entry tells the bucket what was admitted
		}
		s.unheard, s.own = nil, nil
	}
	if s.own != own.config && (own.kept || s.own != nil && s.memory.Recent(now)) {
		return nil // another handle's limits, or those of a Refresh
	}
	if l.refreshes.Load() != own.asked && !own.given && l.cfg.LimitsFor != nil {
		return nil // what LimitsFor said may have been outdated already
	}
	n := l.nodeOf(s.name, int(s.node))
	terms := protocol.Terms{ID: *l.id.Load(), Policy: &l.cfg.Policy, Proposed: own.config, RTT: n.rtt()}
	if n.breaker.Away(now) || 4*terms.RTT > l.cfg.CallTimeout || !s.memory.Draws(now, r.n, &terms) ||
		!n.breaker.Admit(now) {
		return nil
	}
	d := &draw{l: l, slot: s, to: n, sent: now, until: now.Add(r.callWait(now, l.cfg.CallTimeout)), own: own}
	d.waiter = waiter{told: make(chan protocol.Decision, 1), ctx: r.ctx}
	d.Waiter = protocol.Waiter{N: r.n, Patience: r.patience, Deadline: protocol.Never, Owner: &d.waiter}
	d.call.Key, d.call.Node, d.call.Owner = l.storedKey(s.name), int(n.number), d
	s.memory.Draw(now, l.nextSeq(), r.n, &terms, &d.call.Request)
	s.draw, s.own, s.given = d, own.config, own.given
	idle.unlinkLocked(s)
	s.linkBefore(&idle.drawing)
	return d
}

// rest has k, if there is one, no longer point to an entry: its key is at rest.
func (k *Key) rest() {
	if k != nil && k.e.Load() != nil {
		k.e.Store(nil)
	}
}

// await waits for the answer. Where the request's context ends first, an entry takes the draw over,
// which gives back what it brings.
func (d *draw) await() protocol.Decision {
	timeout := d.l.cfg.CallTimeout
	if d.until < d.sent.Add(timeout-timeout/16) { // watch takes care of a later time
		defer d.l.cfg.Clock.AfterFunc(d.until.Sub(d.sent), func() { d.takeOver() }).Stop()
	}
	select {
	case told := <-d.told:
		return told
	case <-d.ctx.Done():
	}
	if e := d.takeOver(); e != nil {
		e.mu.Lock()
		e.client.Cancel(e.Now(), &d.Waiter) // unless it was told something in the same moment
		e.mu.Unlock()
	}
	return <-d.told
}

// takeOver is the entry of d's key, which has taken d over; nil where d has been answered before.
func (d *draw) takeOver() *entry {
	idle := &d.l.keys.idle
	for {
		idle.mu.Lock()
		e, flies, own := d.entry, d.slot.draw == d, d.own
		if flies && d.slot.own != nil {
			own.config = d.slot.own // a Refresh may have changed it
		}
		idle.mu.Unlock()
		if e != nil || !flies {
			return e
		}
		d.l.rouse(d.slot, own)
	}
}

// admitted takes in the reply to d, if that is all there is to it.
func (d *draw) admitted(n *node, now clock.Instant) bool {
	s, idle := d.slot, &d.l.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if s.draw != d || d.call.Err != nil {
		return false
	}
	from, ok := s.memory.Drew(d.sent, d.own.config, &d.call.Request, &d.call.Grant)
	if !ok {
		return false
	}
	if s.own != d.own.config { // a Refresh has come meanwhile
		s.memory.Propose(d.own.config)
	}
	idle.unlinkLocked(s)
	s.draw, s.node, s.denied = nil, n.number, false
	if idle.linkLocked(s, now, s.memory.Lifetime(d.own.config)) {
		d.l.scheduler.wake()
	}
	// A draw of a bucket at rest says nothing of who else uses the node.
	if active := d.call.Grant.ActiveWeight; active > n.breaker.Active() {
		n.breaker.Heard(now, active)
	}
	d.l.counters.drew(d.N)
	d.told <- protocol.Decision{Verdict: protocol.VerdictAdmit, Source: SourceStore, Draw: from, Took: d.N}
	return true
}

// endDraws has entries take over all draws, after l was closed or left: so their requests are told,
// and there come no more.
func (l *Limiter) endDraws() {
	idle := &l.keys.idle
	for {
		idle.mu.Lock()
		d := idle.drawing.next.draw
		idle.mu.Unlock()
		if d == nil {
			return
		}
		d.takeOver()
	}
}

// receive implements caller.
func (d *draw) receive(c *lease.Call, n *node, now clock.Instant) (granted int64) {
	if d.admitted(n, now) {
		d.l.warnSlow(c.Grant.Config.Limits, n.rtt())
		return c.Grant.Granted
	}
	if e := d.takeOver(); e != nil {
		granted = e.receive(c, n, now)
	}
	return granted
}

// awaits implements caller.
func (d *draw) awaits(c *lease.Call) bool {
	idle := &d.l.keys.idle
	idle.mu.Lock()
	e, flies := d.entry, d.slot.draw == d
	idle.mu.Unlock()
	return flies || e != nil && e.awaits(c)
}

// abandon implements caller.
func (d *draw) abandon(c *lease.Call, now clock.Instant, err error) {
	if e := d.takeOver(); e != nil {
		e.abandon(c, now, err)
	}
}

// at implements caller.
func (d *draw) at() *node { return d.to }

// name implements caller.
func (d *draw) name() string { return d.slot.name }

// Waiting implements lease.Awaited.
func (d *draw) Waiting(most int) []context.Context {
	idle := &d.l.keys.idle
	idle.mu.Lock()
	e := d.entry
	idle.mu.Unlock()
	if e != nil {
		return e.Waiting(most)
	}
	return []context.Context{d.ctx}[:min(most, 1)]
}

// takeOver has e, which nobody else knows yet, go on with d.
func (e *entry) takeOver(d *draw) {
	e.client.TakeOver(d.sent, &d.call.Request, &d.Waiter)
	e.flight, d.entry = &d.call, e
}

// timeOut ends the wait of d's request in time: the draw that e has taken over may be followed
// by other calls.
func (e *entry) timeOut(d *draw) {
	e.l.cfg.Clock.AfterFunc(d.until.Sub(e.Now()), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.client.TimeOut(e.Now(), &d.Waiter)
	})
}

// drew counts n tokens that a draw of a key at rest has brought.
func (c *counters) drew(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := tally{Account: protocol.Account{Granted: n, Admitted: n}}
	c.retired.add(t)
	c.sum.add(t)
}

// proposedFor is what this process proposes for a key: what it has proposed since the key was last
// out of use, or what proposal says.
func (l *Limiter) proposedFor(s *slot, name string, k *Key) (p proposed, err error) {
	p.asked = l.refreshes.Load()
	if own := k.given(); own != nil {
		p.config, p.given = &own.config, true
		return p, own.err
	}
	if s != nil {
		if p.config, p.given = l.keys.idle.proposed(s, l.cfg.Clock.Now()); p.config != nil {
			p.kept = true
			return p, nil
		}
	}
	if l.cfg.LimitsFor == nil {
		p.config = &l.defaults
		return p, nil
	}
	c, err := l.proposal(name, nil)
	p.config = l.shared.of(c)
	return p, err
}

// proposed is what was proposed for s, if that is a key at rest that counts as in use; otherwise
// nil.
func (l *idleList) proposed(s *slot, now clock.Instant) (config *lease.Config, given bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.draw == nil && !s.memory.Recent(now) {
		return nil, false
	}
	return s.own, s.given
}
