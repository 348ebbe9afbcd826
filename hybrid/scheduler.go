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
	var spare []*entry
	for s.l.ctx.Err() == nil {
		now := s.l.cfg.Clock.Now()
		spare = s.takeReady(spare, now)
		calls := s.collect(spare, now)
		if len(calls) > 0 {
			s.lastSent = now
			s.send(calls)
		}
		s.sleep()
		select {
		case <-s.signal:
		case <-s.l.ctx.Done():
		}
	}
}

// takeReady takes over the ready list, in exchange for an empty one, unless it can wait to be gathered.
func (s *scheduler) takeReady(spare []*entry, now clock.Instant) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.urgent && now < s.lastSent.Add(gather) {
		return spare[:0]
	}
	clear(spare)
	ready := s.ready
	s.ready, s.urgent = spare[:0], false
	return ready
}

// collect asks every entry that is ready or due, and builds the calls.
func (s *scheduler) collect(ready []*entry, now clock.Instant) []*lease.Call {
	var calls []*lease.Call
	slot := false
	ask := func(e *entry) {
		call, next := e.poll(now)
		if call && !slot {
			slot = s.l.batches.TryAcquire(1)
		}
		switch {
		case call && !slot:
			// Every batch is under way and none has come back: look again shortly.
			next = now.Add(10 * time.Millisecond)
		case call:
			if c := s.build(e); c != nil {
				calls = append(calls, c)
			}
			next = lease.Never
		}
		s.schedule(e, next)
	}
	for _, e := range ready {
		ask(e)
	}
	for len(s.due) > 0 && s.due[0].due <= now {
		ask(s.due[0])
	}
	if slot && len(calls) == 0 {
		s.l.batches.Release(1)
	}
	return calls
}

func (s *scheduler) build(e *entry) *lease.Call {
	if f := s.l.cfg.Events.BeforeReport; f != nil {
		f(e.name)
	}
	return e.build(s.l.cfg.Clock.Now())
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
	now := s.l.cfg.Clock.Now()
	wait := time.Hour
	if len(s.due) > 0 {
		wait = min(wait, s.due[0].due.Sub(now))
	}
	s.mu.Lock()
	if len(s.ready) > 0 {
		wait = min(wait, s.lastSent.Add(gather).Sub(now))
		if s.urgent {
			wait = 0
		}
	}
	s.mu.Unlock()
	if wait <= 0 {
		s.wake()
		return
	}
	s.timer.Reset(wait)
}

// send exchanges one batch on a goroutine of its own, so that a slow node delays only its own keys. The
// library's own deadline bounds it.
func (s *scheduler) send(calls []*lease.Call) {
	l := s.l
	sent := l.cfg.Clock.Now()
	timeout := l.cfg.CallTimeout
	for _, c := range calls {
		timeout = max(timeout, 2*l.nodes.of(c.Node).quantile())
	}
	l.counters.calls.Add(int64(len(calls)))
	go func() {
		defer l.batches.Release(1)
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		timer := l.cfg.Clock.AfterFunc(timeout, cancel)
		defer timer.Stop()
		l.store.Exchange(ctx, calls, func(group []*lease.Call) {
			now := l.cfg.Clock.Now()
			l.counters.roundTrips.Add(1)
			if len(group) > 0 {
				l.nodes.of(group[0].Node).add(now.Sub(sent))
			}
			for _, c := range group {
				e := c.Owner.(*entry)
				if n := e.receive(now); n > 0 && l.cfg.Events.Granted != nil {
					l.cfg.Events.Granted(e.name, n)
				}
			}
		})
	}()
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
