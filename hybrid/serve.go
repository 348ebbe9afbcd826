package hybrid

import (
	"errors"
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// receive brings one answered call to its entry and returns how many tokens it brought.
func (e *entry) receive(now clock.Instant) (granted int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.kick(e.leaver != nil)
	if e.gone || e.closed {
		return 0
	}
	e.node = e.call.Node
	if err := e.call.Err; err != nil {
		e.failed(now, err)
		return 0
	}
	g := &e.call.Grant
	before := e.holder.Account().Burnt
	got, ok := e.holder.Accept(now, g)
	if !ok {
		return 0
	}
	e.publish(now, g)
	if burnt := e.holder.Account().Burnt - before; g.Void && burnt > 0 {
		e.l.cfg.Logger.Warn("hybrid: the bucket did not know this process's lease, which is burnt", "key", e.name, "tokens", burnt)
	}
	e.distribute(got, g.Seq)
	if now < e.holder.DeniedUntil() {
		for e.queue.head != nil {
			e.settle(e.queue.head, outcome{source: SourceStore})
		}
	}
	return g.Granted
}

// publish makes what the reply says visible to the lock-free readers.
func (e *entry) publish(now clock.Instant, g *lease.Grant) {
	e.view.Store(&view{limits: e.holder.Limits(), levels: g.Levels, at: now, denied: e.holder.DeniedUntil()})
	if now < e.holder.DeniedUntil() {
		e.gate.Store(gateDenied)
	} else {
		e.gate.Store(gateOpen)
	}
}

// failed takes in a call without a grant: whoever waits gets what Policy.Fallback gives.
func (e *entry) failed(now clock.Instant, err error) {
	first := !e.holder.Degraded()
	e.holder.Fail(now, err)
	e.l.counters.errors.Add(1)
	if errors.Is(err, lease.ErrStale) {
		e.rename()
	}
	if first {
		e.l.cfg.Logger.Warn("hybrid: lease call failed", "key", e.name, "error", err)
	}
	for e.queue.head != nil {
		w := e.queue.head
		ok := e.holder.TakeFallback(now, w.n)
		if ok {
			e.holder.Served(w.n)
			e.l.counters.fallback.Add(w.n)
		}
		e.settle(w, outcome{ok: ok, source: SourceFallback})
	}
	if e.leaver != nil {
		e.finishLocked(ErrClosed) // what it holds expires at the store
	}
}

// distribute hands out what a reply brought: the tokens drawn for waiting requests to those that the call
// counted, and only to them, then the pool's to whoever is first. A token whose request has gone is refunded.
func (e *entry) distribute(got lease.Accepted, seq int64) {
	left := got.Waited
	for w := e.queue.head; w != nil && left > 0; {
		next := w.next
		if w.asked == seq {
			n := min(left, w.lacks())
			e.queue.give(w, n)
			left -= n
			if w.lacks() == 0 {
				e.settle(w, outcome{ok: true, source: SourceStore})
			}
		}
		w = next
	}
	if left > 0 {
		e.holder.Refund(left)
	}
	for e.queue.head != nil {
		w := e.queue.head
		e.fill(w)
		if w.lacks() > 0 {
			return
		}
		e.settle(w, outcome{ok: true, source: SourceStore})
	}
}

// fill gives w what the pool has of its tokens.
func (e *entry) fill(w *waiter) {
	for w.lacks() > 0 {
		n := min(e.holder.Pool.Held(), w.lacks())
		if n == 0 {
			return
		}
		if epoch, ok := e.holder.Pool.TakeQueued(n); ok {
			e.queue.give(w, n)
			w.pools = append(w.pools, portion{n: n, epoch: epoch})
		}
	}
}

// settle takes w off the queue and tells it out. Tokens of a request that is not admitted go back.
func (e *entry) settle(w *waiter, out outcome) {
	e.queue.remove(w)
	fromPool := int64(0)
	for _, p := range w.pools {
		fromPool += p.n
		if !out.ok || out.source == SourceFallback {
			e.holder.PutBack(p.n, p.epoch)
		}
	}
	if out.ok && out.source != SourceFallback {
		e.holder.Served(fromPool)
	} else {
		e.holder.Refund(w.got - fromPool)
	}
	w.n = -1
	w.ready <- out
}

// expire ends w's wait after CallTimeout.
func (e *entry) expire(w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.n < 0 {
		return
	}
	n := w.n
	ok := e.holder.TakeFallback(e.l.cfg.Clock.Now(), n)
	if ok {
		e.holder.Served(n)
		e.l.counters.fallback.Add(n)
	}
	e.settle(w, outcome{ok: ok, source: SourceFallback})
}

// abandon ends w's wait because its context ended, unless it was told something in the same moment.
func (e *entry) abandon(w *waiter, err error) outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.n >= 0 {
		e.settle(w, outcome{err: err})
	}
	return <-w.ready
}

func errTableFull(n int) error {
	return fmt.Errorf("%w: all of KeysMax (%d) keys are in use", ErrUnavailable, n)
}
