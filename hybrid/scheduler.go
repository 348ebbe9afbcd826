package hybrid

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// batchWindow is how long calls to a node are held back to travel together (docs/protocol.md
// section 8.16). A pool does not run empty meanwhile, because a prefetch begins earlier than it has
// to.
const batchWindow = time.Millisecond

// batchSize bounds one pipeline: whoever waits for one of its calls waits for all.
const batchSize = 1000

// roundMax bounds how many entries are asked in one round because they are ready, and how many
// because they are due, so that one that somebody waits for gets its turn in between.
const roundMax = 4096

// scheduler is the Limiter's one goroutine. It knows when each entry is due, asks those that are
// due or ready, and sends the calls that they want in batches.
type scheduler struct {
	l      *Limiter
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

func (s *scheduler) init(l *Limiter) { s.l, s.signal = l, make(chan struct{}, 1) }

// add puts e on the ready list, once.
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
	s.timer = s.l.cfg.Clock.AfterFunc(time.Hour, s.wake)
	defer s.timer.Stop()
	for s.l.ctx.Err() == nil {
		now := s.l.cfg.Clock.Now()
		for _, b := range s.collect(now) {
			s.l.send(b)
		}
		until := s.l.sweep(now)
		if len(s.due) > 0 {
			until = min(until, s.due[0].due)
		}
		if wait := until.Sub(s.l.cfg.Clock.Now()); wait > 0 {
			s.timer.Reset(min(wait, time.Hour))
		} else {
			s.wake()
		}
		select {
		case <-s.signal:
		case <-s.l.ctx.Done():
		}
	}
}

// batch is calls that travel together.
type batch struct {
	node   *node
	calls  []*lease.Call
	draws  bool // of the lane
	probes bool // one of the calls is to see whether a node that is away is back
	sent   clock.Instant
	due    [dueTimes]clock.Instant
	passed int                // of these; guarded by the node's mu
	again  clock.Instant      // when something is due beside them; so is this
	forget context.CancelFunc // has the store no longer wait
	left   atomic.Int64       // calls that nobody has been told of
	landed atomic.Bool
}

// collect is one round: it asks every entry that is ready or due, and builds the calls.
func (s *scheduler) collect(now clock.Instant) []*batch {
	s.round++
	until := now
	if s.takeReady() {
		until = now.Add(batchWindow) // what was held back may go along
	}
	for _, e := range s.asked {
		s.schedule(e, protocol.Never) // asked once, even if it is due too
	}
	for n := 0; len(s.due) > 0 && s.due[0].due <= until && n < roundMax; n++ {
		s.asked = append(s.asked, heap.Pop(&s.due).(*entry))
	}
	for _, e := range s.asked {
		call, next := e.poll(now)
		if !call {
			s.schedule(e, next)
			e.pressing = false
			continue
		}
		s.schedule(e, now)
		s.calling = append(s.calling, e)
		n := e.node.Load()
		if now >= n.lastSent.Add(batchWindow) || e.pressing && n.underWay.Load() == 0 {
			n.goesIn = s.round
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
				s.schedule(e, n.lastSent.Add(batchWindow))
				if e.pressing {
					n.pressed.Store(true)
					s.land(n, 0) // the last batch may have landed meanwhile
				}
			}
		}
	}
	for _, b := range batches {
		if len(b.calls) > 0 {
			b.node.lastSent = now
		}
	}
	return batches
}

// land counts batches to n that have come back. When none is under way any more, calls that were
// held back and that somebody waits for may go.
func (s *scheduler) land(n *node, batches int32) {
	if n.underWay.Add(-batches) == 0 && n.pressed.Swap(false) {
		s.hurried.Store(true)
		s.wake()
	}
}

// takeReady moves the ready list to asked, and reports whether somebody waits.
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
	n := e.locate()
	i := slices.IndexFunc(batches, func(b *batch) bool {
		return (b.node == n || n.number == nodeUnknown) && len(b.calls) < batchSize
	})
	if i < 0 {
		if !n.slots.TryAcquire(1) {
			again := now.Add(batchWindow) // too many batches are under way
			if n.breaker.Stuck(now) {
				again = max(again, n.breaker.Turn(now))
				e.poll(now) // who waits is told what Policy.Fallback says
			}
			s.schedule(e, again)
			return batches
		}
		i, batches = len(batches), append(batches, &batch{node: n})
	}
	probe := n.breaker.Away(now)
	admitted, again := e.admitted(n, now)
	if !admitted {
		_, next := e.poll(now) // who waits is told what Policy.Fallback says
		if next <= now {
			next = again
		}
		s.schedule(e, min(next, again))
		return batches
	}
	if f := s.l.cfg.Events.BeforeReport; f != nil {
		f(e.slot.name)
	}
	if c := e.build(n, s.l.cfg.Clock.Now()); c != nil {
		batches[i].calls = append(batches[i].calls, c)
		batches[i].probes = batches[i].probes || probe
	}
	// The lease may end while the call is under way.
	_, next := e.poll(now)
	s.schedule(e, next)
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

// dueHeap orders entries by when they are due.
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
