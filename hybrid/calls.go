package hybrid

import (
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// errOverdue ends a call that was not answered within the library's own deadline.
var errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)

// errForeign answers a reply that is not one to the call it came for.
var errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)

// receive brings one answered call to its entry and returns how many tokens it brought. A call that was given
// up as overdue may still be answered: its grant counts as long as no later call was opened, its error does not.
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
		if keys, ok := e.l.voids.due(now); ok {
			e.l.cfg.Logger.Warn("hybrid: a bucket did not know this process's lease, which is burnt",
				"keys", keys, "key", brief(e.slot.name), "tokens", burnt)
		}
	}
	if e.client.Conflict() && !conflict {
		e.l.counters.conflicts.Add(1)
		if keys, ok := e.l.others.due(now); ok {
			e.l.cfg.Logger.Warn("hybrid: another process uses the same version with other limits; the stored ones hold",
				"keys", keys, "key", brief(e.slot.name), "limits", e.client.Limits(), "version", c.Grant.Config.Version.Deploy)
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

// overdue ends the wait for c, so that nobody has to wait for a store that hangs; unsent says why c
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
