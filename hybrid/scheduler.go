package hybrid

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/node"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// roundMax bounds the ready and the due entries of one round, because an urgent entry waits for the round.
const roundMax = 4096

// scheduler is one goroutine for each member. It polls the entries that are due or ready, and sends their
// calls in batches.
type scheduler struct {
	m      *member
	clock  clock.Clock
	signal chan struct{}
	timer  clock.Timer

	releaseHeld atomic.Bool // whether held-back calls may be sent now

	mu          sync.Mutex
	first, last *entry // ready list, linked by readyNext: a long slice would take milliseconds to grow

	// Only the scheduler's goroutine uses due, round, polled and calling.
	due     dueHeap
	round   uint64   // number of this round
	polled  []*entry // entries to poll in this round
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
	s.timer = s.clock.AfterFunc(time.Hour, s.wake)
	defer s.timer.Stop()
	for s.m.ctx.Err() == nil {
		now := s.clock.Now()
		for _, b := range s.collect(now) {
			b.send()
		}
		until := s.m.sweep(now)
		if len(s.due) > 0 {
			until = min(until, s.due[0].due)
		}
		if wait := until.Sub(s.clock.Now()); wait > 0 {
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

// collect polls the ready and due entries, and returns their calls in batches.
func (s *scheduler) collect(now clock.Instant) []*batch {
	s.round++
	until := now
	if s.takeReady() {
		until = now.Add(node.Window) // entries due within node.Window may join the batch
	}
	for _, e := range s.polled {
		s.schedule(e, protocol.Never) // a ready entry that is also due is polled only once
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
// Calls to the unknown node come last, because they may join any batch.
func (s *scheduler) callAll(now clock.Instant) []*batch {
	var batches []*batch
	for _, known := range []bool{true, false} {
		for _, e := range s.calling {
			n := e.node.Load()
			if known != n.isKnown() {
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

// call adds e's call to a batch to e's node, if the node takes a batch now. call finds the batch before the
// node admits the call, because an admitted call may be the probe of an outage and must be sent.
func (s *scheduler) call(e *entry, batches []*batch, now clock.Instant) []*batch {
	n := e.node.Load()
	i := slices.IndexFunc(batches, func(b *batch) bool {
		return (b.to == n || !n.isKnown()) && len(b.calls) < node.BatchSize
	})
	if i < 0 {
		if !ask(n, (*rules).Open) {
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
	if c := e.build(n, e.Now()); c != nil {
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
