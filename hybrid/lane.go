package hybrid

import (
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// lane collects the draws to one node into batches. A draw goes as soon as no batch of draws is
// under way. Otherwise it waits for one to come back, for a batchWindow at most, and all that came
// meanwhile travel with it.
type lane struct {
	mu       sync.Mutex
	waiting  []*lease.Call
	underWay int // batches
	sentAt   clock.Instant
	timer    clock.Timer
	armed    bool
}

// join has d travel with the next batch.
func (a *lane) join(l *Limiter, d *draw) {
	a.mu.Lock()
	a.waiting = append(a.waiting, &d.call)
	a.mu.Unlock()
	a.depart(l, d.to, 0)
}

// depart notes that batches have come back, and sends those that may go. To a node that is away
// none goes, and nobody waits for longer than CallTimeout until one may.
func (a *lane) depart(l *Limiter, n *node, landed int) {
	a.mu.Lock()
	a.underWay -= landed
	stranded := a.strandedLocked(l, n)
	b := a.nextLocked(l, n)
	a.mu.Unlock()
	for _, c := range stranded {
		c.Owner.(caller).abandon(c, l.cfg.Clock.Now(), n.why())
	}
	if b != nil {
		l.send(b)
	}
}

// strandedLocked takes those who wait in vain off the lane.
func (a *lane) strandedLocked(l *Limiter, n *node) (all []*lease.Call) {
	now := l.cfg.Clock.Now()
	since := now.Add(-l.cfg.CallTimeout)
	i := 0
	for i < len(a.waiting) && (n.breaker.Away(now) || a.waiting[i].Owner.(*draw).sent <= since) {
		i++
	}
	all, a.waiting = a.waiting[:i:i], a.waiting[i:]
	return all
}

// armLocked has depart called after wait.
func (a *lane) armLocked(l *Limiter, n *node, wait time.Duration) {
	if a.armed {
		return
	}
	a.armed = true
	if a.timer != nil {
		a.timer.Reset(wait)
		return
	}
	a.timer = l.cfg.Clock.AfterFunc(wait, func() {
		a.mu.Lock()
		a.armed = false
		a.mu.Unlock()
		a.depart(l, n, 0)
	})
}

// nextLocked is the batch that may go now; nil for none.
func (a *lane) nextLocked(l *Limiter, n *node) *batch {
	if len(a.waiting) == 0 {
		return nil
	}
	now := l.cfg.Clock.Now()
	goesAt := a.sentAt.Add(batchWindow)
	full := a.underWay > 0 && now < goesAt && len(a.waiting) < batchSize
	if full || !n.slots.TryAcquire(1) {
		if !full {
			n.breaker.Stuck(now)
		}
		a.armLocked(l, n, max(goesAt.Sub(now), batchWindow/8))
		return nil
	}
	b := &batch{node: n, draws: true, calls: a.waiting[:min(len(a.waiting), batchSize)]}
	a.waiting = append(make([]*lease.Call, 0, len(b.calls)), a.waiting[len(b.calls):]...)
	if len(a.waiting) > 0 {
		a.armLocked(l, n, batchWindow/8)
	}
	a.underWay++
	a.sentAt = now
	return b
}
