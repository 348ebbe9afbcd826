package hybrid

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// batchesMax bounds the batches under way to one node, and so the goroutines.
const batchesMax = 256

// nodeUnknown is the number of the node of a key that no node has answered for yet.
const nodeUnknown = -1

// node is one node of the store as a member sees it, with the batches that are under way to it.
type node struct {
	*health
	number   int32 // the store's
	mu       sync.Mutex
	latency  protocol.Latency    // guarded by mu
	batches  map[*batch]struct{} // guarded by mu: those under way
	timer    clock.Timer         // guarded by mu: calls look; nil before the first batch
	lookAt   clock.Instant       // guarded by mu: when it does that; Never for not at all
	slots    *semaphore.Weighted // one for each batch that may be under way
	underWay atomic.Int32        // batches
	pressed  atomic.Bool         // a request waits for a call that is held back
	lane     lane                // of draws

	// The scheduler's own.
	lastSent clock.Instant
	goesIn   uint64 // the last round that sends a batch to it
}

// health says whether a node answers. All members of a Limiter share it: requests of one do not wait
// for what another has found out.
type health struct {
	breaker         *protocol.Breaker
	cause           atomic.Pointer[error] // of the last outage
	away, permanent outage                // for the log
	probeAsked      atomic.Int64          // when a key that is not in use was let through for a probe
}

// why is the cause of the last outage.
func (h *health) why() error {
	if err := h.cause.Load(); err != nil {
		return *err
	}
	return errOverdue
}

// answered says that the node has answered a call that was sent then.
func (h *health) answered(o *observer, now, sent clock.Instant) {
	if h.breaker.Answered(now, sent) {
		h.away.recovered(o, now)
		h.permanent.recovered(o, now)
	}
}

// wantsProbe reports whether a probe is due that a request should send: the first that comes, and
// another one a Target later if the scheduler has not come to it. It notes that one is sent.
func (h *health) wantsProbe(now clock.Instant, target time.Duration) bool {
	last := h.probeAsked.Load()
	return !h.breaker.Holds(now) && now.Sub(clock.Instant(last)) >= target &&
		h.probeAsked.CompareAndSwap(last, int64(now))
}

// rtt is the 99th percentile of the round trips; 0 before the first.
func (n *node) rtt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency.Quantile()
}

// reached notes a round trip.
func (n *node) reached(now clock.Instant, rtt, spacing time.Duration) {
	n.mu.Lock()
	n.latency.Add(now, rtt)
	n.mu.Unlock()
	n.breaker.Took(now, rtt, spacing)
}

func (n *node) batchesUnderWay() []*batch {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.batches))
}

// nodes are the nodes of the store. A slow one delays only its own keys.
type nodes struct {
	first       *nodes // of class 0, for the others: they share health
	target, ttl time.Duration
	mu          sync.Mutex
	all         []*node // from nodeUnknown on
}

func (n *nodes) of(number int) *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := max(number, nodeUnknown) - nodeUnknown
	for i >= len(n.all) {
		number := len(n.all) + nodeUnknown
		added := &node{
			number: int32(number), slots: semaphore.NewWeighted(batchesMax),
			batches: make(map[*batch]struct{}), lookAt: protocol.Never,
		}
		if n.first != nil {
			added.health = n.first.of(number).health
		} else {
			added.health = &health{breaker: protocol.NewBreaker(n.target, n.ttl, rand.Uint64())}
		}
		n.all = append(n.all, added)
	}
	return n.all[i]
}

// worst is the longest round trip of all nodes.
func (n *nodes) worst() (rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.all {
		rtt = max(rtt, one.rtt())
	}
	return rtt
}

// How long a call may take, in CallTimeouts (docs/protocol.md section 8.15): at all, and before it
// is sent where a connection is opened first.
const lateFactor, connectFactor = 10, 5

// The times at which something is due for a batch that has not come back, in order.
const (
	dueTakenOver = iota // the requests of its draws wait no longer for it
	dueOverdue          // its calls have failed, unless a connection was opened for them first
	dueConnected        // unsent calls have failed too
	dueForgotten        // nothing waits for an answer any more
	dueTimes
)

// watch notes that b is sent to n now, and has a timer look after it. There is one for all batches
// to n: nearly all come back long before anything is due, and then it is not touched.
//
// A call's deadline is a little earlier than CallTimeout, so that requests which wait for the call
// get the answer of Policy.Fallback in time.
func (n *node) watch(m *member, b *batch) {
	timeout := m.cfg.CallTimeout
	last := lateFactor * timeout
	deadline := min(max(timeout-timeout/16, 2*n.rtt()), last)
	b.sent = m.cfg.Clock.Now()
	overdue := b.sent.Add(deadline)
	takenOver := overdue
	if b.draws { // the oldest may have been held back for long, or the network has become slow since
		d := b.calls[0].Owner.(*draw)
		takenOver = max(b.sent, min(overdue, d.sent.Add(timeout-timeout/16)))
	}
	b.due = [dueTimes]clock.Instant{
		takenOver, overdue, b.sent.Add(max(deadline, connectFactor*timeout)), b.sent.Add(last),
	}
	b.again = protocol.Never
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batches[b] = struct{}{}
	n.lookLocked(m, b.sent, takenOver)
}

// unwatch ends that.
func (n *node) unwatch(b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.batches, b)
}

// lookLocked has look called at the given time, unless it is earlier anyway.
func (n *node) lookLocked(m *member, now, at clock.Instant) {
	switch {
	case at >= n.lookAt:
		return
	case n.timer == nil:
		n.timer = m.cfg.Clock.AfterFunc(at.Sub(now), func() { n.look(m) })
	default:
		n.timer.Reset(at.Sub(now))
	}
	n.lookAt = at
}

// lookAgain has look called at the given time for b.
func (n *node) lookAgain(m *member, b *batch, now, at clock.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b.again = at
	n.lookLocked(m, now, at)
}

// look does what is due for the batches under way to n.
func (n *node) look(m *member) {
	now := m.cfg.Clock.Now()
	for _, b := range n.late(m, now) {
		m.overdue(b, now)
	}
}

// late takes down the times that have come, and returns the batches that they concern. Where it
// runs much later than it should, the process itself was stopped, as by SIGSTOP, and answers may be
// there that it has not read yet: then it looks again a little later.
func (n *node) late(m *member, now clock.Instant) (all []*batch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slack, stopped := m.cfg.CallTimeout/4, now.Sub(n.lookAt) > m.cfg.CallTimeout/4
	n.lookAt = protocol.Never
	if stopped {
		n.lookLocked(m, now, now.Add(slack))
		return nil
	}
	for b := range n.batches {
		was := b.passed
		for b.passed < dueTimes && b.due[b.passed] <= now {
			b.passed++
		}
		if b.passed > was || b.again <= now {
			b.again = protocol.Never
			all = append(all, b)
		}
		n.lookLocked(m, now, b.again)
		if b.passed < dueTimes {
			n.lookLocked(m, now, b.due[b.passed])
		} else {
			b.forget()
		}
	}
	return all
}

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
func (a *lane) join(m *member, d *draw) {
	a.mu.Lock()
	a.waiting = append(a.waiting, &d.call)
	a.mu.Unlock()
	a.depart(m, d.to, 0)
}

// depart notes that batches have come back, and sends those that may go. To a node that is away
// none goes, and no request waits for longer than CallTimeout until one may.
func (a *lane) depart(m *member, n *node, landed int) {
	a.mu.Lock()
	a.underWay -= landed
	stranded := a.strandedLocked(m, n)
	b := a.nextLocked(m, n)
	a.mu.Unlock()
	for _, c := range stranded {
		c.Owner.(caller).abandon(c, m.cfg.Clock.Now(), n.why())
	}
	if b != nil {
		m.send(b)
	}
}

// strandedLocked takes calls that will not be sent in time off the lane.
func (a *lane) strandedLocked(m *member, n *node) (all []*lease.Call) {
	now := m.cfg.Clock.Now()
	since := now.Add(-m.cfg.CallTimeout)
	i := 0
	for i < len(a.waiting) && (n.breaker.Away(now) || a.waiting[i].Owner.(*draw).sent <= since) {
		i++
	}
	all, a.waiting = a.waiting[:i:i], a.waiting[i:]
	return all
}

// armLocked has depart called after wait.
func (a *lane) armLocked(m *member, n *node, wait time.Duration) {
	if a.armed {
		return
	}
	a.armed = true
	if a.timer != nil {
		a.timer.Reset(wait)
		return
	}
	a.timer = m.cfg.Clock.AfterFunc(wait, func() {
		a.mu.Lock()
		a.armed = false
		a.mu.Unlock()
		a.depart(m, n, 0)
	})
}

// nextLocked is the batch that may go now; nil for none.
func (a *lane) nextLocked(m *member, n *node) *batch {
	if len(a.waiting) == 0 {
		return nil
	}
	now := m.cfg.Clock.Now()
	goesAt := a.sentAt.Add(batchWindow)
	full := a.underWay > 0 && now < goesAt && len(a.waiting) < batchSize
	if full || !n.slots.TryAcquire(1) {
		if !full {
			n.breaker.Stuck(now)
		}
		a.armLocked(m, n, max(goesAt.Sub(now), batchWindow/8))
		return nil
	}
	b := &batch{node: n, draws: true, calls: a.waiting[:min(len(a.waiting), batchSize)]}
	a.waiting = append(make([]*lease.Call, 0, len(b.calls)), a.waiting[len(b.calls):]...)
	if len(a.waiting) > 0 {
		a.armLocked(m, n, batchWindow/8)
	}
	a.underWay++
	a.sentAt = now
	return b
}
