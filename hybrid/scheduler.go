package hybrid

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// gather is how long calls for which nobody waits are held back to travel together: at most a thousand
// pipelines a second, however many keys there are. The watermark is for a round trip of hundredths of a
// Target, so a millisecond does not empty a pool.
const gather = time.Millisecond

// batchSize bounds one pipeline: a thousand scripts keep a node busy for a few hundredths of a second, and whoever
// waits for one of them waits for all.
const batchSize = 1000

// lateFactor times CallTimeout is how long an overdue call is still listened to: its late reply is good for its
// tokens and for knowing how slow the network is.
const lateFactor = 10

// scheduler is the Limiter's one goroutine: it knows when each entry is due, asks those that are, and sends
// what they ask for in batches.
type scheduler struct {
	l      *Limiter
	signal chan struct{}
	timer  clock.Timer

	mu     sync.Mutex
	ready  []*entry
	urgent bool

	// The goroutine's own.
	due      dueHeap
	asked    []*entry // of this round
	calling  []*entry // of asked: those with a call due
	lastSent clock.Instant
}

func (s *scheduler) init(l *Limiter) {
	s.l = l
	s.signal = make(chan struct{}, 1)
}

// add puts e on the ready list.
func (s *scheduler) add(e *entry, urgent bool) {
	s.mu.Lock()
	s.ready = append(s.ready, e)
	s.urgent = s.urgent || urgent
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
			s.lastSent = now
			s.send(b)
		}
		s.sleep()
		select {
		case <-s.signal:
		case <-s.l.ctx.Done():
		}
	}
}

// batch is the calls that travel together.
type batch struct {
	node  *node
	calls []*lease.Call
}

// collect asks every entry that is ready or due, and builds the calls. Calls that can wait to be gathered are
// held back until a gather after the last batch, or until somebody's waiting sends one before.
func (s *scheduler) collect(now clock.Instant) []*batch {
	sending := s.gatherAsked(now)
	for _, e := range s.asked {
		call, next := e.poll(now)
		if call {
			if sending && !e.calling {
				e.calling = true // it may be on the list twice
				s.calling = append(s.calling, e)
			}
			next = s.lastSent.Add(gather)
		}
		s.schedule(e, next)
	}
	var batches []*batch
	for _, known := range []bool{true, false} {
		for _, e := range s.calling {
			if known == (e.node.Load() != nodeUnknown) {
				batches = s.call(e, batches, now)
			}
		}
	}
	for _, e := range s.calling {
		e.calling = false
	}
	clear(s.asked)
	clear(s.calling)
	s.asked, s.calling = s.asked[:0], s.calling[:0]
	return batches
}

// gatherAsked fills asked, and says whether calls may go out now.
func (s *scheduler) gatherAsked(now clock.Instant) (sending bool) {
	s.mu.Lock()
	s.asked, s.ready = s.ready, s.asked
	urgent := s.urgent
	s.urgent = false
	s.mu.Unlock()
	held := s.lastSent.Add(gather)
	sending = urgent || now >= held
	until := now
	if sending {
		until = max(now, held) // what was held back goes along
	}
	for len(s.due) > 0 && s.due[0].due <= until {
		s.asked = append(s.asked, heap.Pop(&s.due).(*entry))
	}
	return sending
}

// call builds e's call into the batch to its node. A key whose node is not known goes with any batch.
func (s *scheduler) call(e *entry, batches []*batch, now clock.Instant) []*batch {
	n := s.l.nodes.of(int(e.node.Load()))
	var b *batch
	for _, have := range batches {
		if (have.node == n || n == s.l.nodes.unknown) && len(have.calls) < batchSize {
			b = have
			break
		}
	}
	if b == nil {
		if !n.slots.TryAcquire(1) {
			s.schedule(e, now.Add(gather)) // as many batches as may be are under way
			return batches
		}
		b = &batch{node: n}
		batches = append(batches, b)
	}
	if f := s.l.cfg.Events.BeforeReport; f != nil {
		f(e.name)
	}
	if c := e.build(s.l.cfg.Clock.Now()); c != nil {
		b.calls = append(b.calls, c)
	}
	// While the call is under way the lease may end.
	_, next := e.poll(now)
	s.schedule(e, next)
	return batches
}

// schedule sets when e is asked next, at the latest.
func (s *scheduler) schedule(e *entry, next clock.Instant) {
	e.due = next
	switch {
	case next == lease.Never && e.index >= 0:
		heap.Remove(&s.due, e.index)
	case next == lease.Never:
	case e.index >= 0:
		heap.Fix(&s.due, e.index)
	default:
		heap.Push(&s.due, e)
	}
}

// sleep sets the timer for what is due first.
func (s *scheduler) sleep() {
	wait := time.Hour
	if len(s.due) > 0 {
		wait = min(wait, s.due[0].due.Sub(s.l.cfg.Clock.Now()))
	}
	if wait <= 0 {
		s.wake()
		return
	}
	s.timer.Reset(wait)
}

// send exchanges one batch on a goroutine of its own. The library's own deadline bounds it: then the calls have
// failed, whatever the store does. They end a little before those who wait for them, so that these are told
// what Policy.Fallback says.
func (s *scheduler) send(b *batch) {
	l := s.l
	if len(b.calls) == 0 {
		b.node.slots.Release(1)
		return
	}
	sent := l.cfg.Clock.Now()
	last := lateFactor * l.cfg.CallTimeout
	deadline := min(max(l.cfg.CallTimeout-l.cfg.CallTimeout/16, 2*b.node.quantile()), last)
	l.counters.calls.Add(int64(len(b.calls)))
	go func() {
		defer b.node.slots.Release(1)
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		defer l.cfg.Clock.AfterFunc(last, cancel).Stop()
		defer l.cfg.Clock.AfterFunc(deadline, func() {
			now := l.cfg.Clock.Now()
			for _, c := range b.calls {
				c.Owner.(*entry).overdue(c, now)
			}
		}).Stop()
		l.store.Exchange(ctx, b.calls, func(group []*lease.Call) { l.answered(group, sent) })
	}()
}

// answered takes in the calls that one node has answered, or that have failed there.
func (l *Limiter) answered(group []*lease.Call, sent clock.Instant) {
	now := l.cfg.Clock.Now()
	l.counters.roundTrips.Add(1)
	reached := false
	for _, c := range group {
		if c.Err == nil && !reached {
			// A failure says nothing about how long a round trip takes.
			l.nodes.of(c.Node).add(now.Sub(sent))
			reached = true
		}
		e := c.Owner.(*entry)
		if n := e.receive(c, now); n > 0 && l.cfg.Events.Granted != nil {
			l.cfg.Events.Granted(e.name, n)
		}
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
