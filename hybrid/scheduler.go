package hybrid

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// roundMax bounds the ready entries and the due entries of one round, so that urgent entries need not wait
// for a long round.
const roundMax = 4096

// scheduler is the one goroutine of a member. The scheduler knows when each entry is due, polls due and ready
// entries, and sends the entries' calls in batches.
type scheduler struct {
	m      *member
	signal chan struct{}
	timer  clock.Timer

	releaseHeld atomic.Bool // whether held-back calls may be sent now

	mu          sync.Mutex
	first, last *entry // ready list, linked by readyNext, because a slice takes milliseconds to grow

	// Only the scheduler's goroutine uses due, round, polled and calling.
	due     dueHeap
	round   uint64   // number of this round
	polled  []*entry // entries polled in this round
	calling []*entry // polled entries with a call due
}

func (s *scheduler) add(e *entry, urgent bool) {
	s.mu.Lock()
	e.urgent = e.urgent || urgent
	if !e.isReady {
		e.isReady = true
		if s.last == nil {
			s.first = e
		} else {
			s.last.readyNext = e
		}
		s.last = e
	}
	s.mu.Unlock()
	s.wake()
}

func (s *scheduler) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *scheduler) run() {
	s.timer = s.m.cfg.Clock.AfterFunc(time.Hour, s.wake)
	defer s.timer.Stop()
	for s.m.ctx.Err() == nil {
		now := s.m.cfg.Clock.Now()
		for _, b := range s.collect(now) {
			s.m.send(b)
		}
		until := s.m.sweep(now)
		if len(s.due) > 0 {
			until = min(until, s.due[0].due)
		}
		if wait := until.Sub(s.m.cfg.Clock.Now()); wait > 0 {
			s.timer.Reset(wait)
		} else {
			s.wake()
		}
		select {
		case <-s.signal:
		case <-s.m.ctx.Done():
		}
	}
}

// collect runs one round: it polls every ready or due entry, and returns their calls in batches.
func (s *scheduler) collect(now clock.Instant) []*batch {
	s.round++
	until := now
	if s.takeReady() {
		until = now.Add(node.Window) // entries that are due within node.Window may join the batch
	}
	for _, e := range s.polled {
		s.schedule(e, protocol.Never) // a ready entry that is also due is polled once
	}
	for n := 0; len(s.due) > 0 && s.due[0].due <= until && n < roundMax; n++ {
		s.polled = append(s.polled, heap.Pop(&s.due).(*entry))
	}
	for _, e := range s.polled {
		call, next := e.poll(now)
		s.schedule(e, next)
		if !call {
			e.pressing = false
			continue
		}
		s.calling = append(s.calling, e)
		if n := e.node.Load(); n.sendRound != s.round {
			if ok, _ := n.gate(now, e.pressing); ok {
				n.sendRound = s.round
			}
		}
	}
	batches := s.callAll(now)
	clear(s.polled) // lets the garbage collector free entries that leave
	clear(s.calling)
	s.polled, s.calling = s.polled[:0], s.calling[:0]
	return batches
}

// callAll builds the calls to nodes that get a batch in this round, and holds back the calls to other nodes.
// Calls to unknown nodes come last, because such calls may join any batch.
func (s *scheduler) callAll(now clock.Instant) []*batch {
	var batches []*batch
	for _, known := range []bool{true, false} {
		for _, e := range s.calling {
			n := e.node.Load()
			if known != (n.number != nodeUnknown) {
				continue
			}
			if n.sendRound == s.round || !known && len(batches) > 0 {
				e.pressing = false
				batches = s.call(e, batches, now)
			} else {
				_, next := n.gate(now, e.pressing)
				s.schedule(e, next)
				if e.pressing {
					n.hold()
				}
			}
		}
	}
	return batches
}

func (s *scheduler) hurry() {
	s.releaseHeld.Store(true)
	s.wake()
}

// takeReady moves the ready list to polled, and reports whether an entry is urgent.
func (s *scheduler) takeReady() (urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent = s.releaseHeld.Swap(false)
	for n := 0; s.first != nil && n < roundMax; n++ {
		e := s.first
		s.first = e.readyNext
		e.pressing = e.pressing || e.urgent
		urgent = urgent || e.pressing
		e.readyNext, e.isReady, e.urgent = nil, false, false
		s.polled = append(s.polled, e)
	}
	if s.first == nil {
		s.last = nil
	} else {
		s.wake()
	}
	return urgent
}

// call builds e's call into a batch to e's node, if the node takes a batch now. call finds the batch before
// the node admits the call: an admitted call must be sent, because it may be the probe of an outage.
func (s *scheduler) call(e *entry, batches []*batch, now clock.Instant) []*batch {
	n := e.node.Load()
	i := slices.IndexFunc(batches, func(b *batch) bool {
		return (b.to == n || n.number == nodeUnknown) && len(b.calls) < node.BatchSize
	})
	if i < 0 {
		if !n.open() {
			again := now.Add(node.Window) // the node has too many batches under way
			if n.breaker.Away() {
				again = max(again, e.turn(now))
				e.poll(now) // poll answers waiting requests by Policy.Fallback
			}
			s.schedule(e, again)
			return batches
		}
		i, batches = len(batches), append(batches, n.newBatch())
	}
	probe := n.breaker.Away()
	admitted, again := e.admit(n, now)
	if !admitted {
		_, next := e.poll(now)
		s.schedule(e, min(next, again))
		return batches
	}
	if f := s.m.beforeReport; f != nil {
		f(e.name())
	}
	if c := e.build(n, s.m.cfg.Clock.Now()); c != nil {
		batches[i].calls = append(batches[i].calls, c)
		batches[i].isProbe = batches[i].isProbe || probe
	}
	return batches
}

// schedule makes the scheduler poll e at next, or earlier if e becomes ready.
func (s *scheduler) schedule(e *entry, next clock.Instant) {
	e.due = next
	switch {
	case e.index >= 0 && next == protocol.Never:
		heap.Remove(&s.due, e.index)
	case e.index >= 0:
		heap.Fix(&s.due, e.index)
	case next != protocol.Never:
		heap.Push(&s.due, e)
	}
}

type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.index = -1
	*h = old[:len(old)-1]
	return e
}

// caller is the owner of a call, which handles the call's outcome: an entry, or a draw of a key at rest.
type caller interface {
	// receive handles the call c that n has answered, and returns the granted tokens.
	receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64)
	// awaits reports whether c is under way and not abandoned.
	awaits(c *lease.Call) bool
	// abandon ends the wait for c, unless c has been answered.
	abandon(c *lease.Call, now clock.Instant, err error)
	// overdue makes an entry take over an overdue draw.
	overdue()
	// calledNode returns the node that admitted the last call. The breaker of that node records the outcome
	// of the call, even if the key has moved to another node.
	calledNode() *storeNode
	name() string
}

func (m *member) send(b *batch) {
	n := b.to
	if len(b.calls) == 0 {
		n.do((*rules).Cancel)
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	b.cancel = cancel
	b.unanswered.Store(int64(len(b.calls)))
	m.observer.calls.Add(int64(len(b.calls)))
	n.sent(b)
	sent := b.Sent()
	if n.breaker.Away() && !b.isProbe { // an outage began while the batch was built
		b.abandon(n, sent, n.lastError())
	}
	go func() {
		defer n.landed(b)
		m.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			n.landed(b) // before any answer, so that a request right after an answer is not held back
			m.answered(group, sent)
			if b.unanswered.Add(-int64(len(group))) > 0 {
				return
			}
			// The last group ends the batch; Exchange may return later.
			cancel()
			n.do(func(r *rules) { r.Over(&b.Batch) })
		})
	}()
}

// answered handles a group of calls of one batch that one node has answered, or that failed at that node.
func (m *member) answered(group []*lease.Call, sent clock.Instant) {
	now := m.cfg.Clock.Now()
	m.observer.roundTrips.Add(1)
	var answeredNode, failedNode *storeNode // nodes that were notified last
	for _, c := range group {
		n, called := m.nodes.node(c.Node), c.Owner.(caller).calledNode()
		if protocol.NodeFailed(c.Err) {
			if called.number == nodeUnknown && called.breaker.Away() {
				called.failed(now, sent, c.Err) // the failed call may have been the probe of the unknown node
			}
			continue
		}
		if answeredNode != n {
			answeredNode = n
			n.answered(now, sent)
		}
		if called != n && called.number == nodeUnknown { // the answer ends the outage of the unknown node
			called.answered(now, sent)
			if c.Err == nil {
				called.breaker.Heard(now, max(c.Grant.ActiveWeight, n.breaker.Active()))
			}
		}
	}
	reached := false
	for _, c := range group {
		n := m.nodes.node(c.Node)
		if c.Err == nil && !reached { // only an answer measures the network
			n.do(func(r *rules) { r.Reached(now, max(0, now.Sub(sent)-c.Before)) })
			reached = true
		}
		if protocol.NodeFailed(c.Err) && failedNode != n {
			failedNode = n
			m.failed(n, now, sent, c.Err)
		}
		owner := c.Owner.(caller)
		if granted := owner.receive(c, n, now); granted > 0 && m.cfg.Events.Granted != nil {
			m.cfg.Events.Granted(owner.name(), granted)
		}
	}
}

// failed records the failure of a call to n, sent at time sent. If the failure begins an outage, all calls
// under way to n fail too.
func (m *member) failed(n *storeNode, now, sent clock.Instant, err error) {
	if !n.failed(now, sent, err) {
		return
	}
	for _, m := range m.members() {
		for _, b := range m.nodes.node(int(n.number)).batches() {
			b.abandon(n, now, err)
		}
	}
}

func (b *batch) abandon(n *storeNode, now clock.Instant, err error) {
	for _, c := range b.calls {
		if owner := c.Owner.(caller); owner.calledNode().health == n.health {
			owner.abandon(c, now, err)
		}
	}
}

// overdue makes entries take over b's draws, and ends the wait for b's calls that had no answer in time.
func (m *member) overdue(b *batch, now clock.Instant) {
	for _, c := range b.calls {
		c.Owner.(caller).overdue()
	}
	if !b.Overdue(now) {
		return
	}
	var late []*lease.Call
	again := protocol.Never
	for _, c := range b.calls {
		if !c.Owner.(caller).awaits(c) {
			continue
		}
		if fails := b.Fails(now, c.Unsent() == nil, c.SentAfter()); fails > now {
			again = min(again, fails)
		} else {
			late = append(late, c)
		}
	}
	b.to.again(b, now, again)
	for _, c := range late { // first, because abandon looks whether the call's node is away
		m.failed(c.Owner.(caller).calledNode(), now, b.Sent(), overdueAs(c))
	}
	for _, c := range late {
		c.Owner.(caller).abandon(c, now, overdueAs(c))
	}
}

// overdueAs returns the error of an overdue call, with the reason if the call was never sent.
func overdueAs(c *lease.Call) error {
	if why := c.Unsent(); why != nil {
		return fmt.Errorf("%w: %w", errOverdue, why)
	}
	return errOverdue
}
