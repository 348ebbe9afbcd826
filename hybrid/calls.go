package hybrid

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// How long a call may take, in CallTimeouts (docs/protocol.md section 8.15): at all, and before it
// has failed where a connection is opened first.
const lateFactor, connectFactor = 10, 5

// send exchanges one batch, on a goroutine of its own. A call's deadline is a little earlier than
// CallTimeout, so that requests which wait for the call are told what Policy.Fallback says.
func (s *scheduler) send(b *batch) {
	l := s.l
	if len(b.calls) == 0 {
		b.node.slots.Release(1)
		return
	}
	sent := l.cfg.Clock.Now()
	last := lateFactor * l.cfg.CallTimeout
	deadline := min(max(l.cfg.CallTimeout-l.cfg.CallTimeout/16, 2*b.node.rtt()), last)
	connected := max(deadline, connectFactor*l.cfg.CallTimeout) // where a connection is opened first
	l.counters.calls.Add(int64(len(b.calls)))
	b.node.underWay.Add(1)
	go func() {
		// Before anybody is told, or a request that comes at once after that would be held back.
		landed := sync.OnceFunc(func() { l.scheduler.land(b.node, 1) })
		defer landed()
		ctx, cancel := context.WithCancel(l.ctx)
		overdue := func() {
			now := l.cfg.Clock.Now()
			for _, c := range b.calls {
				if why := c.Unsent(); why == nil || now >= sent.Add(connected) {
					c.Owner.(*entry).overdue(c, now, why)
				}
			}
		}
		timers := [...]clock.Timer{
			l.cfg.Clock.AfterFunc(last, cancel),
			l.cfg.Clock.AfterFunc(deadline, overdue), l.cfg.Clock.AfterFunc(connected, overdue),
		}
		// The batch is over with its last group: Exchange may return later.
		var left atomic.Int64
		left.Store(int64(len(b.calls)))
		l.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			landed()
			l.answered(group, sent)
			if left.Add(-int64(len(group))) > 0 {
				return
			}
			for _, t := range timers {
				t.Stop()
			}
			cancel()
			b.node.slots.Release(1)
		})
	}()
}

// answered takes in the calls of one batch that one node has answered, or that have failed there.
func (l *Limiter) answered(group []*lease.Call, sent clock.Instant) {
	now := l.cfg.Clock.Now()
	l.counters.roundTrips.Add(1)
	reached := false
	for _, c := range group {
		n := l.nodes.of(c.Node)
		if c.Err == nil && !reached { // a failure says nothing about the network
			n.mu.Lock()
			n.latency.Add(now, max(0, now.Sub(sent)-c.Before))
			n.mu.Unlock()
			reached = true
		}
		e := c.Owner.(*entry)
		if granted := e.receive(c, n, now); granted > 0 && l.cfg.Events.Granted != nil {
			l.cfg.Events.Granted(e.slot.name, granted)
		}
	}
}

var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

// receive takes in one call that n has answered, and returns how many tokens it brought. Of a call
// that was overdue the grant still counts, if no later call has been made; the error does not.
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

// overdue ends the wait for c. unsent says why c has not even been sent, where that is known.
func (e *entry) overdue(c *lease.Call, now clock.Instant, unsent error) {
	defer e.l.herald.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() || e.flight != c {
		return
	}
	err := errOverdue
	if unsent != nil {
		err = fmt.Errorf("%w: %w", errOverdue, unsent)
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
			"hybrid: another process uses the same version with other limits; the stored ones hold",
			"limits", e.client.Limits(), "version", c.Grant.Config.Version.Deploy)
	}
	heard := e.client.Heard()
	e.heard.Store(&heard)
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

// batchesMax bounds the batches under way to one node, and so the goroutines.
const batchesMax = 256

// nodeUnknown is the number of the node of a key that no node has answered for yet.
const nodeUnknown = -1

// node is what is known of one node of the store.
type node struct {
	number  int32 // the store's
	mu      sync.Mutex
	latency lease.Latency // guarded by mu

	slots    *semaphore.Weighted // one for each batch that may be under way
	underWay atomic.Int32        // batches
	pressed  atomic.Bool         // somebody waits for a call that is held back

	away, permanent outage

	// The scheduler's own.
	lastSent clock.Instant
	goesIn   uint64 // the last round that sends a batch to it
}

// rtt is the 99th percentile of the round trips; 0 before the first.
func (n *node) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency.Quantile()
}

// nodes are the nodes of the store. A slow one delays only its own keys.
type nodes struct {
	mu  sync.Mutex
	all []*node // from nodeUnknown on
}

func (n *nodes) of(number int) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		n.all = append(n.all, &node{
			number: int32(len(n.all) + nodeUnknown), slots: semaphore.NewWeighted(batchesMax),
		})
	}
	return n.all[i]
}
