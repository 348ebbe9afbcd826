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

// roundMax bounds how many entries are asked in one round because they are ready, and how many
// because they are due, so that urgent ones get their turn in between.
const roundMax = 4096

// scheduler is a member's one goroutine. It knows when each entry is due, asks those that are
// due or ready, and sends the calls that they want in batches.
type scheduler struct {
	m      *member
	signal chan struct{}
	timer  clock.Timer

	hurried atomic.Bool // look at the calls that are held back: they may go now

	mu          sync.Mutex
	first, last *entry // the ready list, linked by readyNext: a slice takes milliseconds to grow

	// The goroutine's own.
	due     dueHeap
	round   uint64   // the number of this one
	asked   []*entry // in this round
	calling []*entry // of asked: those with a call due
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
			s.timer.Reset(min(wait, time.Hour))
		} else {
			s.wake()
		}
		select {
		case <-s.signal:
		case <-s.m.ctx.Done():
		}
	}
}

// collect is one round: it asks every entry that is ready or due, and builds the calls.
func (s *scheduler) collect(now clock.Instant) []*batch {
	s.round++
	until := now
	if s.takeReady() {
		until = now.Add(node.Window) // calls that were held back may go along
	}
	for _, e := range s.asked {
		s.schedule(e, protocol.Never) // asked once, even if it is due too
	}
	for n := 0; len(s.due) > 0 && s.due[0].due <= until && n < roundMax; n++ {
		s.asked = append(s.asked, heap.Pop(&s.due).(*entry))
	}
	for _, e := range s.asked {
		call, next := e.poll(now)
		s.schedule(e, next)
		if !call {
			e.pressing = false
			continue
		}
		s.calling = append(s.calling, e)
		if n := e.node.Load(); n.goesIn != s.round {
			if ok, _ := n.gate(now, e.pressing); ok {
				n.goesIn = s.round
			}
		}
	}
	batches := s.callAll(now)
	clear(s.asked) // an entry that leaves is not to be kept
	clear(s.calling)
	s.asked, s.calling = s.asked[:0], s.calling[:0]
	return batches
}

// callAll builds the calls to those nodes to which this round sends, and holds the others back.
// Those of keys whose node is not known come last, because they may go with any batch.
func (s *scheduler) callAll(now clock.Instant) []*batch {
	var batches []*batch
	for _, known := range []bool{true, false} {
		for _, e := range s.calling {
			n := e.node.Load()
			if known != (n.number != nodeUnknown) {
				continue
			}
			if n.goesIn == s.round || !known && len(batches) > 0 {
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
	s.hurried.Store(true)
	s.wake()
}

// takeReady moves the ready list to asked, and reports whether any of it is urgent.
func (s *scheduler) takeReady() (urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent = s.hurried.Swap(false)
	for n := 0; s.first != nil && n < roundMax; n++ {
		e := s.first
		s.first = e.readyNext
		e.pressing = e.pressing || e.urgent
		urgent = urgent || e.pressing
		e.readyNext, e.isReady, e.urgent = nil, false, false
		s.asked = append(s.asked, e)
	}
	if s.first == nil {
		s.last = nil
	} else {
		s.wake()
	}
	return urgent
}

// call builds e's call into a batch to its node, if that takes any now. There is room for the call
// before the node admits it: one that is admitted goes out, as it may be the probe of an outage.
func (s *scheduler) call(e *entry, batches []*batch, now clock.Instant) []*batch {
	n := e.node.Load()
	i := slices.IndexFunc(batches, func(b *batch) bool {
		return (b.to == n || n.number == nodeUnknown) && len(b.calls) < node.BatchSize
	})
	if i < 0 {
		if !n.open() {
			again := now.Add(node.Window) // too many batches are under way
			if n.breaker.Away() {
				again = max(again, e.turn(now))
				e.poll(now) // requests that wait get the answer of Policy.Fallback
			}
			s.schedule(e, again)
			return batches
		}
		i, batches = len(batches), append(batches, n.newBatch())
	}
	probe := n.breaker.Away()
	admitted, again := e.admit(n, now)
	if !admitted {
		_, next := e.poll(now) // requests that wait get the answer of Policy.Fallback
		s.schedule(e, min(next, again))
		return batches
	}
	if f := s.m.beforeReport; f != nil {
		f(e.name())
	}
	if c := e.build(n, s.m.cfg.Clock.Now()); c != nil {
		batches[i].calls = append(batches[i].calls, c)
		batches[i].probes = batches[i].probes || probe
	}
	return batches
}

// schedule has e asked at next, or earlier if it is ready.
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

// caller is the owner of a call, which learns how it ends: an entry, or a draw of a key at rest.
type caller interface {
	// receive takes in one call that n has answered, and returns how many tokens it brought.
	receive(c *lease.Call, n *storeNode, now clock.Instant) (granted int64)
	// awaits reports whether c is under way and has not been abandoned.
	awaits(c *lease.Call) bool
	// abandon ends the wait for c, unless it has been answered.
	abandon(c *lease.Call, now clock.Instant, err error)
	// overdue ends the wait for a draw. An entry takes it over.
	overdue()
	// at is the node that has admitted the last call, whose breaker learns how the call ends.
	// Meanwhile the key may have moved to another one.
	at() *storeNode
	// name is that of the key.
	name() string
}

// send exchanges one batch, on a goroutine of its own.
func (m *member) send(b *batch) {
	n := b.to
	if len(b.calls) == 0 {
		n.do((*rules).Cancel)
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	b.forget = cancel
	b.left.Store(int64(len(b.calls)))
	m.observer.calls.Add(int64(len(b.calls)))
	n.sent(b)
	sent := b.Sent()
	if n.breaker.Away() && !b.probes { // an outage that began while b was built has not seen it
		b.abandon(n, sent, n.why())
	}
	go func() {
		defer n.landed(b)
		m.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			n.landed(b) // before any request is answered, or one that comes at once after that would be held back
			m.answered(group, sent)
			if b.left.Add(-int64(len(group))) > 0 {
				return
			}
			// The batch is over with its last group: Exchange may return later.
			cancel()
			n.do(func(r *rules) { r.Over(&b.Batch) })
		})
	}()
}

// answered takes in the calls of one batch that one node has answered, or that have failed there.
func (m *member) answered(group []*lease.Call, sent clock.Instant) {
	now := m.cfg.Clock.Now()
	m.observer.roundTrips.Add(1)
	var well, ill *storeNode // those that have been told
	for _, c := range group {
		n, was := m.nodes.of(c.Node), c.Owner.(caller).at()
		if protocol.NodeFailed(c.Err) {
			if was.number == nodeUnknown && was.breaker.Away() {
				was.failed(now, sent, c.Err) // it was the probe, perhaps
			}
			continue
		}
		if well != n {
			well = n
			n.answered(now, sent)
		}
		if was != n && was.number == nodeUnknown { // the other keys whose node is not known are like this one
			was.answered(now, sent)
			if c.Err == nil {
				was.breaker.Heard(now, max(c.Grant.ActiveWeight, n.breaker.Active()))
			}
		}
	}
	reached := false
	for _, c := range group {
		n := m.nodes.of(c.Node)
		if c.Err == nil && !reached { // a failure says nothing about the network
			n.do(func(r *rules) { r.Reached(now, max(0, now.Sub(sent)-c.Before)) })
			reached = true
		}
		if protocol.NodeFailed(c.Err) && ill != n {
			ill = n
			m.failed(n, now, sent, c.Err)
		}
		owner := c.Owner.(caller)
		if granted := owner.receive(c, n, now); granted > 0 && m.cfg.Events.Granted != nil {
			m.cfg.Events.Granted(owner.name(), granted)
		}
	}
}

// failed says that a call to n has failed that was sent then. If that begins an outage, all calls
// that are under way to n have failed too.
func (m *member) failed(n *storeNode, now, sent clock.Instant, err error) {
	if !n.failed(now, sent, err) {
		return
	}
	for _, m := range m.members() {
		for _, b := range m.nodes.of(int(n.number)).batches() {
			b.abandon(n, now, err)
		}
	}
}

// abandon ends the wait for those calls of b that n was to answer.
func (b *batch) abandon(n *storeNode, now clock.Instant, err error) {
	for _, c := range b.calls {
		if owner := c.Owner.(caller); owner.at().health == n.health {
			owner.abandon(c, now, err)
		}
	}
}

// overdue has entries take over b's draws, and ends the wait for calls not answered in time.
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
	for _, c := range late { // before they fail, which depends on whether their node is away
		m.failed(c.Owner.(caller).at(), now, b.Sent(), overdueAs(c))
	}
	for _, c := range late {
		c.Owner.(caller).abandon(c, now, overdueAs(c))
	}
}

// overdueAs is the error of an overdue call, with the reason why it has not been sent if it is known.
func overdueAs(c *lease.Call) error {
	if why := c.Unsent(); why != nil {
		return fmt.Errorf("%w: %w", errOverdue, why)
	}
	return errOverdue
}
