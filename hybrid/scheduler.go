package hybrid

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// batchWindow is how long calls to a node are held back to travel together: at most a thousand pipelines a second, however
// many keys there are. The watermark is for a round trip of hundredths of a Target, so a millisecond does not empty a
// pool. Calls that somebody waits for go at once where nothing is under way to the node, so one batch a round trip comes
// on top.
const batchWindow = time.Millisecond

// batchSize bounds one pipeline: a thousand scripts keep a node busy for a few hundredths of a second, and whoever
// waits for one of them waits for all.
const batchSize = 1000

// roundMax bounds how many entries are asked in one round for each reason: where a million keys want something at once,
// one that is low, or that somebody waits for, gets its turn in between, and nobody is kept from the ready list for long.
const roundMax = 4096

// lateFactor times CallTimeout is how long an overdue call is still listened to: its late reply is good for its
// tokens and for knowing how slow the network is.
const lateFactor = 10

// connectFactor times CallTimeout is how long a call may take for which a connection is opened
// first: names, TCP, TLS and the handshake are four to eight round trips before its own.
const connectFactor = 5

// scheduler is the Limiter's one goroutine: it knows when each entry is due, asks those that are, and sends
// what they ask for in batches.
type scheduler struct {
	l      *Limiter
	signal chan struct{}
	timer  clock.Timer

	mu          sync.Mutex
	first, last *entry // the ready list, by readyNext. (A slice took milliseconds to grow under the lock.)
	hurried     bool   // calls that are held back go now, where they may

	// The goroutine's own.
	due     dueHeap
	asked   []*entry // of this round
	calling []*entry // of asked: those with a call due
	going   []*node  // those to which this round sends
}

func (s *scheduler) init(l *Limiter) {
	s.l = l
	s.signal = make(chan struct{}, 1)
}

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

// hurry has calls looked at that are held back.
func (s *scheduler) hurry() {
	s.mu.Lock()
	s.hurried = true
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
			s.send(b)
		}
		s.sleep(s.l.sweep(now))
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

// collect asks every entry that is ready or due, and builds the calls.
func (s *scheduler) collect(now clock.Instant) []*batch {
	urgent := s.takeReady()
	until := now
	if urgent {
		until = now.Add(batchWindow) // what was held back may go along
	}
	for n := 0; len(s.due) > 0 && s.due[0].due <= until && n < roundMax; n++ {
		s.asked = append(s.asked, heap.Pop(&s.due).(*entry))
	}
	for _, e := range s.asked {
		call, next := e.poll(now)
		if !call {
			e.pressing = false
		} else if !e.calling {
			e.calling = true // it may be on the list twice
			s.calling = append(s.calling, e)
			n := s.l.nodes.of(int(e.node.Load()))
			if !n.goes && (now >= n.lastSent.Add(batchWindow) || e.pressing && n.underWay.Load() == 0) {
				n.goes = true
				s.going = append(s.going, n)
			}
		}
		s.schedule(e, next)
	}
	batches := s.callAll(now)
	clear(s.asked)
	clear(s.calling)
	s.asked, s.calling = s.asked[:0], s.calling[:0]
	return batches
}

// callAll builds the calls of those nodes whose time it is. The others' are held back.
func (s *scheduler) callAll(now clock.Instant) []*batch {
	var batches []*batch
	for _, known := range []bool{true, false} {
		for _, e := range s.calling {
			if known != (e.node.Load() != nodeUnknown) {
				continue
			}
			if n := s.l.nodes.of(int(e.node.Load())); n.goes || n == s.l.nodes.unknown && len(batches) > 0 {
				e.pressing = false
				batches = s.call(e, batches, now)
			} else {
				s.schedule(e, n.lastSent.Add(batchWindow))
				if e.pressing {
					n.pressed.Store(true)
					s.land(n, 0) // it may have landed while this was decided
				}
			}
		}
	}
	for _, e := range s.calling {
		e.calling = false
	}
	for _, n := range s.going {
		n.goes = false
	}
	s.going = s.going[:0]
	for _, b := range batches {
		b.node.lastSent = now
	}
	return batches
}

// land counts batches to n that have come back. When there is none under way any more, calls that
// somebody waits for and that were held back go: a clock.Manual may stand still for ever.
func (s *scheduler) land(n *node, batches int32) {
	if n.underWay.Add(-batches) == 0 && n.pressed.Swap(false) {
		s.hurry()
	}
}

// takeReady moves the ready list to asked, in its order, and says whether somebody waits.
func (s *scheduler) takeReady() (urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	urgent, s.hurried = s.hurried, false
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
			s.schedule(e, now.Add(batchWindow)) // as many batches as may be are under way
			return batches
		}
		b = &batch{node: n}
		batches = append(batches, b)
	}
	if f := s.l.cfg.Events.BeforeReport; f != nil {
		f(e.slot.name)
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

// sleep sets the timer for what is due first, no later than until.
func (s *scheduler) sleep(until clock.Instant) {
	now := s.l.cfg.Clock.Now()
	if len(s.due) > 0 {
		until = min(until, s.due[0].due)
	}
	wait := time.Hour
	if until < now.Add(wait) {
		wait = until.Sub(now)
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
	b.node.underWay.Add(1)
	go func() {
		defer b.node.slots.Release(1)
		// Before anybody is told, or who asks again at once would be held back.
		landed := sync.OnceFunc(func() { l.scheduler.land(b.node, 1) })
		defer landed()
		ctx, cancel := context.WithCancel(l.ctx)
		defer cancel()
		defer l.cfg.Clock.AfterFunc(last, cancel).Stop()
		defer l.cfg.Clock.AfterFunc(deadline, func() { l.overdue(b.calls, false) }).Stop()
		defer l.cfg.Clock.AfterFunc(max(deadline, connectFactor*l.cfg.CallTimeout), func() { l.overdue(b.calls, true) }).Stop()
		l.store.Exchange(ctx, b.calls, func(group []*lease.Call) {
			landed()
			l.answered(group, sent)
		})
	}()
}

// overdue ends the wait for calls; unless it ends for all, those are spared for which a connection
// is still being opened.
func (l *Limiter) overdue(calls []*lease.Call, all bool) {
	now := l.cfg.Clock.Now()
	for _, c := range calls {
		if why := c.Unsent(); why == nil || all {
			c.Owner.(*entry).overdue(c, now, why)
		}
	}
}

// answered takes in the calls that one node has answered, or that have failed there.
func (l *Limiter) answered(group []*lease.Call, sent clock.Instant) {
	now := l.cfg.Clock.Now()
	l.counters.roundTrips.Add(1)
	reached := false
	for _, c := range group {
		if c.Err == nil && !reached {
			// A failure says nothing about how long a round trip takes.
			l.nodes.of(c.Node).add(now, max(0, now.Sub(sent)-c.Before))
			reached = true
		}
		e := c.Owner.(*entry)
		if n := e.receive(c, now); n > 0 && l.cfg.Events.Granted != nil {
			l.cfg.Events.Granted(e.slot.name, n)
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
