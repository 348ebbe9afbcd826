package hybrid

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// caller is who made a call, to whom its end is told: an entry, or a draw of a key at rest.
type caller interface {
	// receive takes in one call that n has answered, and returns how many tokens it brought.
	receive(c *lease.Call, n *node, now clock.Instant) (granted int64)
	// awaits reports whether c is under way and has not been abandoned.
	awaits(c *lease.Call) bool
	// abandon ends the wait for c, unless it has been answered.
	abandon(c *lease.Call, now clock.Instant, err error)
	// at is the node that has admitted the last call: its breaker is to hear what becomes of that.
	// Meanwhile the key may have moved to another one.
	at() *node
	// name is that of the key.
	name() string
}

// send exchanges one batch, on a goroutine of its own.
func (l *Limiter) send(b *batch) {
	n := b.node
	if len(b.calls) == 0 {
		n.slots.Release(1)
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	b.forget = cancel
	b.left.Store(int64(len(b.calls)))
	l.counters.calls.Add(int64(len(b.calls)))
	n.underWay.Add(1)
	n.watch(l, b)
	if n.breaker.Away(b.sent) && !b.probes { // an outage that began while b was built has not seen it
		b.abandon(n, b.sent, n.why())
	}
	go func() {
		defer l.land(b)
		l.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			l.land(b) // before anybody is told, or a request that comes at once after that would be held back
			l.answered(group, b.sent)
			if b.left.Add(-int64(len(group))) > 0 {
				return
			}
			// The batch is over with its last group: Exchange may return later.
			cancel()
			n.unwatch(b)
			n.slots.Release(1)
		})
	}()
}

// land notes that b has come back, once.
func (l *Limiter) land(b *batch) {
	if b.landed.Swap(true) {
		return
	}
	l.scheduler.land(b.node, 1)
	if b.draws {
		b.node.lane.depart(l, b.node, 1)
	}
}

// answered takes in the calls of one batch that one node has answered, or that have failed there.
func (l *Limiter) answered(group []*lease.Call, sent clock.Instant) {
	now := l.cfg.Clock.Now()
	l.counters.roundTrips.Add(1)
	var well, ill *node // those that have been told
	for _, c := range group {
		n, was := l.nodes.of(c.Node), c.Owner.(caller).at()
		if protocol.NodeFailed(c.Err) {
			if was.number == nodeUnknown && was.breaker.Suspect() {
				was.breaker.Failed(now, sent) // it was the probe, perhaps
			}
			continue
		}
		if well != n {
			well = n
			n.answered(l, now, sent)
		}
		if was != n && was.number == nodeUnknown { // the other keys whose node is not known are like this one
			was.answered(l, now, sent)
			if active := c.Grant.ActiveWeight; c.Err == nil && (!c.Request.Draw || active > was.breaker.Active()) {
				was.breaker.Heard(now, active)
			}
		}
	}
	reached := false
	for _, c := range group {
		n := l.nodes.of(c.Node)
		if c.Err == nil && !reached { // a failure says nothing about the network
			n.mu.Lock()
			n.latency.Add(now, max(0, now.Sub(sent)-c.Before))
			n.mu.Unlock()
			n.breaker.Took(now, max(0, now.Sub(sent)-c.Before), spacing(group))
			reached = true
		}
		if protocol.NodeFailed(c.Err) && ill != n {
			ill = n
			l.failed(n, now, sent, c.Err)
		}
		who := c.Owner.(caller)
		if granted := who.receive(c, n, now); granted > 0 && l.cfg.Events.Granted != nil {
			l.cfg.Events.Granted(who.name(), granted)
		}
	}
}

// spacing is how long the budget of calls wants this process to leave between two calls, for that
// key of these calls which wants it longest.
func spacing(group []*lease.Call) (longest time.Duration) {
	for _, c := range group {
		if c.Err == nil {
			longest = max(longest, protocol.Spacing(&c.Grant, c.Request.Weight))
		}
	}
	return longest
}

// failed says that a call to n has failed that was sent then. If that begins an outage, everything
// that is under way to n has failed too.
func (l *Limiter) failed(n *node, now, sent clock.Instant, err error) {
	if !n.breaker.Away(now) {
		n.cause.Store(&err)
	}
	if !n.breaker.Failed(now, sent) {
		return
	}
	l.eachSibling(func(l *Limiter) {
		for _, b := range l.nodes.of(int(n.number)).batchesUnderWay() {
			b.abandon(n, now, err)
		}
	})
}

// abandon ends the wait for those calls of b that n was to answer.
func (b *batch) abandon(n *node, now clock.Instant, err error) {
	for _, c := range b.calls {
		if who := c.Owner.(caller); who.at().health == n.health {
			who.abandon(c, now, err)
		}
	}
}

var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

// receive implements caller. Of a call that was overdue the grant still counts, if no later call
// has been made; the error does not.
func (e *entry) receive(c *lease.Call, n *node, now clock.Instant) (granted int64) {
	defer e.l.herald.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return 0
	}
	e.node.Store(n)
	switch {
	case c.Err == nil && e.acceptLocked(c, now):
		e.flight = nil // also that of a retry, should this be the late reply to the first sending
		granted = c.Grant.Granted
	case c == e.flight:
		e.failLocked(now, cmp.Or(c.Err, errForeign))
	}
	e.tellEndedLocked()
	e.Wake(e.leaving || e.client.HasWaiters())
	return granted
}

// name implements caller.
func (e *entry) name() string { return e.slot.name }

// at implements caller.
func (e *entry) at() *node { return e.calls.Load() }

// awaits implements caller.
func (e *entry) awaits(c *lease.Call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flight == c && !e.client.Closed()
}

// abandon implements caller.
func (e *entry) abandon(c *lease.Call, now clock.Instant, err error) {
	defer e.l.herald.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != c {
		return
	}
	e.failLocked(now, err)
	e.tellEndedLocked()
	e.Wake(e.leaving || e.client.HasWaiters())
}

// acceptLocked takes in the reply to c, if it is the first one to the open call.
func (e *entry) acceptLocked(c *lease.Call, now clock.Instant) bool {
	e.announceLost(LossExpired)
	burnt, conflict, limits := e.client.Account().Burnt, e.client.Conflict(), e.client.Limits()
	got, ok := e.client.Accept(now, &c.Grant)
	if !ok {
		return false
	}
	e.failsNoMoreLocked(now, true)
	burnt = e.client.Account().Burnt - burnt
	if c.Grant.Void && burnt > 0 {
		e.voided += burnt
		e.announceLost(LossVoid)
		e.l.voids.warn(e, now, "hybrid: a bucket did not know this process's lease, which is burnt",
			"tokens", burnt)
	}
	e.announceLost(LossExpired)
	e.announceLimits(limits)
	if e.client.Conflict() && !conflict {
		e.announceConflict()
		e.l.counters.conflicts.Add(1)
		e.l.others.warn(e, now,
			"hybrid: another process or handle proposes other limits under the same version; the stored ones hold",
			"limits", e.client.Limits(), "version", c.Grant.Config.Version.Deploy)
	}
	e.warnCrowd(&c.Grant, c.Request.Weight, now)
	heard := e.client.Heard()
	e.heard.Store(&heard)
	if b, active := e.node.Load().breaker, c.Grant.ActiveWeight; !c.Request.Draw || active > b.Active() {
		b.Heard(now, active)
	}
	if !e.client.Outdated() {
		e.heardAt = now
	}
	e.client.Serve(now, got)
	e.l.warnSlow(e.client.Limits(), e.node.Load().rtt())
	return true
}

// failLocked takes in that the call under way brought no grant.
func (e *entry) failLocked(now clock.Instant, err error) {
	e.flight = nil
	e.l.counters.errors.Add(1)
	e.client.Fail(now, err)
	e.failingLocked(now, err)
	if e.client.Closed() {
		e.l.notGivenBack.Add(1) // what it holds expires at the store
		e.endLocked()
	}
}

// tellEndedLocked wakes who waits for the end of a call.
func (e *entry) tellEndedLocked() {
	if e.endings != nil {
		close(e.endings)
		e.endings = nil
	}
}
