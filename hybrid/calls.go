package hybrid

import (
	"context"
	"fmt"
	"sync"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// lateFactor times CallTimeout is how long a call may take at all. A reply that comes after
// CallTimeout still brings tokens, and tells how slow the network is.
const lateFactor = 10

// connectFactor times CallTimeout is how long requests wait for a call for which a connection is
// opened first. Names, TCP, TLS and the handshake take four to eight round trips before its own.
const connectFactor = 5

// send exchanges one batch, on a goroutine of its own. A call that is not answered within the
// deadline has failed, whatever the store does. The deadline is a little earlier than CallTimeout,
// so that requests which wait for the call are told what Policy.Fallback says.
func (s *scheduler) send(b *batch) {
	l := s.l
	if len(b.calls) == 0 {
		b.node.slots.Release(1)
		return
	}
	sent := l.cfg.Clock.Now()
	last := lateFactor * l.cfg.CallTimeout
	deadline := min(max(l.cfg.CallTimeout-l.cfg.CallTimeout/16, 2*b.node.rtt()), last)
	l.counters.calls.Add(int64(len(b.calls)))
	b.node.underWay.Add(1)
	go func() {
		defer b.node.slots.Release(1)
		// It lands before anybody is told: a request that comes at once after that is not to be
		// held back.
		landed := sync.OnceFunc(func() { l.scheduler.land(b.node, 1) })
		defer landed()
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		defer l.cfg.Clock.AfterFunc(last, cancel).Stop()
		defer l.cfg.Clock.AfterFunc(deadline, func() { l.overdue(b.calls, false) }).Stop()
		connected := max(deadline, connectFactor*l.cfg.CallTimeout)
		defer l.cfg.Clock.AfterFunc(connected, func() { l.overdue(b.calls, true) }).Stop()
		l.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			landed()
			l.answered(group, sent)
		})
	}()
}

// overdue ends the wait for calls, but not for those for which a connection is still being opened,
// unless it is to end for all.
func (l *Limiter) overdue(calls []*lease.Call, all bool) {
	now := l.cfg.Clock.Now()
	for _, c := range calls {
		if why := c.Unsent(); why == nil || all {
			c.Owner.(*entry).overdue(c, now, why)
		}
	}
}

// answered takes in the calls of one batch that one node has answered, or that have failed there.
func (l *Limiter) answered(group []*lease.Call, sent clock.Instant) {
	now := l.cfg.Clock.Now()
	l.counters.roundTrips.Add(1)
	reached := false
	for _, c := range group {
		if c.Err == nil && !reached { // a failure says nothing about the network
			l.nodes.of(c.Node).tripped(now, max(0, now.Sub(sent)-c.Before))
			reached = true
		}
		e := c.Owner.(*entry)
		if n := e.receive(c, now); n > 0 && l.cfg.Events.Granted != nil {
			l.cfg.Events.Granted(e.slot.name, n)
		}
	}
}

// errOverdue is the failure of a call that was not answered by its deadline.
var errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)

// errForeign is the failure of a call that was answered with a reply to another one.
var errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)

// receive takes in one answered call, and returns how many tokens it brought. A call that was
// overdue may still be answered: its grant counts as long as no later call has been made, its error
// does not.
func (e *entry) receive(c *lease.Call, now clock.Instant) (granted int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return 0
	}
	current := c == e.flight
	if current {
		e.flight = nil
	}
	e.node.Store(int32(c.Node))
	err := c.Err
	if err == nil {
		err = errForeign
		if e.acceptLocked(c, now) {
			e.flight = nil // of a retry, should this be the late reply to the first sending
			current, granted = false, c.Grant.Granted
		}
	}
	if current {
		e.failLocked(now, err)
	}
	e.tellEndedLocked()
	e.wake(e.leaver != nil || e.client.HasWaiters())
	return granted
}

// acceptLocked takes in the reply to c, if it is the first one to the open call.
func (e *entry) acceptLocked(c *lease.Call, now clock.Instant) bool {
	burnt, conflict := e.client.Account().Burnt, e.client.Conflict()
	got, ok := e.client.Accept(now, &c.Grant)
	if !ok {
		return false
	}
	e.failsNoMoreLocked(now, true)
	burnt = e.client.Account().Burnt - burnt
	if c.Grant.Void && burnt > 0 {
		if keys, ok := e.l.voids.add(now); ok {
			e.l.cfg.Logger.Warn("hybrid: a bucket did not know this process's lease, which is burnt",
				"keys", keys, "key", brief(e.slot.name), "tokens", burnt)
		}
	}
	if e.client.Conflict() && !conflict {
		e.l.counters.conflicts.Add(1)
		if keys, ok := e.l.others.add(now); ok {
			e.l.cfg.Logger.Warn(
				"hybrid: another process uses the same version with other limits; the stored ones hold",
				"keys", keys, "key", brief(e.slot.name),
				"limits", e.client.Limits(), "version", c.Grant.Config.Version.Deploy)
		}
	}
	heard := e.client.Heard()
	e.heard.Store(&heard)
	if !e.client.Outdated() {
		e.heardAt = now
	}
	e.client.Serve(now, got)
	e.l.warnSlow(e.client.Limits(), e.rtt())
	return true
}

// overdue ends the wait for c, so that nobody has to wait for a store that hangs. unsent says why c
// has not even been sent, where that is known.
func (e *entry) overdue(c *lease.Call, now clock.Instant, unsent error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != c {
		return
	}
	e.flight = nil
	err := errOverdue
	if unsent != nil {
		err = fmt.Errorf("%w: %w", errOverdue, unsent)
	}
	e.failLocked(now, err)
	e.tellEndedLocked()
	e.wake(e.leaver != nil)
}

// failLocked takes in a call without a grant.
func (e *entry) failLocked(now clock.Instant, err error) {
	e.l.counters.errors.Add(1)
	e.client.Fail(now, err)
	e.failingLocked(now, err)
	if e.client.Closed() {
		e.leaver.failed.Add(1) // what it holds expires at the store
		e.endedLocked()
	}
}

// tellEndedLocked wakes who waits for the end of a call.
func (e *entry) tellEndedLocked() {
	if e.endings != nil {
		close(e.endings)
		e.endings = nil
	}
}
