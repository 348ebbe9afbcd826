package hybrid

import (
	"errors"
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
	if e.gone || e.closed {
		return 0
	}
	e.ended = max(e.ended, c.Request.Seq)
	e.tellEnded()
	current := c == e.flight
	if current {
		e.flight = nil
	}
	e.node.Store(int32(c.Node))
	defer func() { e.kick(e.leaver != nil || e.queue.head != nil) }()
	if c.Err == nil {
		g := &c.Grant
		before, conflict := e.holder.Account().Burnt, e.holder.Conflict()
		if got, ok := e.holder.Accept(now, g, e.queue.patient); ok {
			e.flight = nil // of a retry, should this be the late reply to the first sending
			e.failsNoMore(now, true)
			if burnt := e.holder.Account().Burnt - before; g.Void && burnt > 0 {
				if keys, ok := e.l.voids.due(now); ok {
					e.l.cfg.Logger.Warn("hybrid: a bucket did not know this process's lease, which is burnt",
						"keys", keys, "key", brief(e.slot.name), "tokens", burnt)
				}
			}
			if e.holder.Conflict() && !conflict {
				e.l.counters.conflicts.Add(1)
				if keys, ok := e.l.others.due(now); ok {
					e.l.cfg.Logger.Warn("hybrid: another process uses the same version with other limits; the stored ones hold",
						"keys", keys, "key", brief(e.slot.name), "limits", e.holder.Limits(), "version", g.Config.Version.Deploy)
				}
			}
			e.publish(now, g)
			e.distribute(now, got, g.Seq)
			e.l.warnSlow(e.holder.Limits(), e.l.nodes.of(c.Node).quantile())
			e.turnAway(now, g.Seq)
			return g.Granted
		}
	}
	if current {
		err := c.Err
		if err == nil {
			err = errForeign
		}
		e.failed(now, err)
	}
	return 0
}

// overdue ends the wait for c, so that nobody has to wait for a store that hangs; unsent says why c
// has not even been sent, where that is known.
func (e *entry) overdue(c *lease.Call, now clock.Instant, unsent error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone || e.closed || e.flight != c {
		return
	}
	e.flight = nil
	e.ended = max(e.ended, c.Request.Seq)
	e.tellEnded()
	err := errOverdue
	if unsent != nil {
		err = fmt.Errorf("%w: %w", errOverdue, unsent)
	}
	e.failed(now, err)
	e.kick(e.leaver != nil)
}

// publish makes what the reply says visible to the lock-free readers.
func (e *entry) publish(now clock.Instant, g *lease.Grant) {
	v := &view{limits: e.holder.Limits(), levels: g.Levels, next: g.Next, others: e.holder.Others(), at: now, made: e.holder.Executed()}
	v.shortOf, v.shortUntil = e.holder.Shortage()
	e.view.Store(v)
	if !e.holder.Outdated() {
		e.capacity.Store(e.holder.Capacity())
		e.heardAt = now
	}
	e.judgeGate(now)
}

// failed takes in a call without a grant: whoever waits gets what Policy.Fallback gives.
func (e *entry) failed(now clock.Instant, err error) {
	e.holder.Fail(now, err)
	e.l.counters.errors.Add(1)
	e.failing(now, err)
	if errors.Is(err, lease.ErrStale) {
		e.rename()
		if !e.holder.Degraded() && e.leaver == nil {
			return // whoever waits is served under the new name
		}
	}
	e.serveWithout(now)
	if e.leaver != nil {
		e.leaver.failed.Add(1) // what it holds expires at the store
		e.finishLocked(ErrClosed)
	}
}

// admitWithout decides on n tokens without the store. The caller holds the lock.
func (e *entry) admitWithout(now clock.Instant, n int64) bool {
	if !e.holder.TakeFallback(now, n) {
		return false
	}
	e.holder.Served(n)
	e.l.counters.fallback.Add(n)
	return true
}

func errTableFull(n int) error {
	return fmt.Errorf("%w: all of KeysMax (%d) keys are in use", ErrUnavailable, n)
}
