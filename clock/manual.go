package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Manual is a clock that moves only when Advance is called. It has no goroutine and no randomness, so what
// happens on it happens in the same order every time. The zero Manual is ready to use and equal to
// NewManual(0). Any number of goroutines may share a Manual; it must not be copied after first use.
type Manual struct {
	mu    sync.Mutex
	now   Instant // 0 until first needed: see readLocked
	queue queue
}

// NewManual returns a clock that stands at start. With a start of zero or less it starts at 4e18
// ns, far enough from both ends of the scale for any offset of a century.
func NewManual(start Instant) *Manual {
	return &Manual{now: max(start, 0)}
}

// Now returns where Advance has brought the clock. In a callback that is the instant at which the
// callback was due.
func (m *Manual) Now() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readLocked()
}

// readLocked is Now. It gives the zero Manual its start.
func (m *Manual) readLocked() Instant {
	if m.now == 0 {
		m.now = origin
	}
	return m.now
}

// AfterFunc has a later Advance call f. A timer of zero or less is due at once, and still waits for
// the next Advance (of zero, if need be) or for the Advance that is running. It panics if f is nil.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("clock: AfterFunc of a nil function") // here, and not when it is due
	}
	t := &manualTimer{clock: m, call: call{f: f, index: notPending}}
	t.Reset(d)
	return t
}

// Next returns the instant at which the earliest pending timer is due, which may be now but is never past, or
// false if no timer is pending. To run a simulation event by event, Advance by what Next().Sub(Now()) gives.
func (m *Manual) Next() (Instant, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue.Len() == 0 {
		return 0, false
	}
	return m.queue.calls[0].due, true
}

// Advance moves the clock by d and calls what falls due on the way, including timers that these calls set
// themselves. Calls are made one after the other on the caller's goroutine, in order of time and, for the
// same time, in order of registration (a Reset registers anew). During each of them the clock stands at that
// call's own due time. Advance(0) calls what is due now; a negative d panics.
//
// Two overlapping Advances, of two goroutines or of a callback and its caller, are like two overlapping
// sleeps: time passes for both at once. So a callback may call Advance(d) to say "this takes d".
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: Advance by a negative duration: " + d.String())
	}
	m.mu.Lock()
	end := m.readLocked().Add(d)
	for m.queue.Len() > 0 && m.queue.calls[0].due <= end {
		c := m.queue.calls[0]
		m.queue.remove(c)
		m.now = c.due // never back: every call is due at or after now
		m.mu.Unlock()
		c.f()
		m.mu.Lock()
	}
	m.now = max(m.now, end) // an overlapping Advance may have brought the clock further already
	m.mu.Unlock()
}

type manualTimer struct {
	clock *Manual
	call
}

// Stop implements Timer.
func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.queue.remove(&t.call)
}

// Reset implements Timer.
func (t *manualTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.clock.queue.remove(&t.call)
	t.clock.queue.add(&t.call, t.clock.readLocked().Add(max(d, 0)))
	return was
}

// call is a function that is due at some time of its clock. The clock's lock guards it.
type call struct {
	f     func()
	due   Instant
	seq   uint64
	index int // its place in the queue, or notPending
}

const notPending = -1

// queue has a clock's pending calls, the next one first. A call knows its place, so that Stop costs
// no search.
type queue struct {
	calls []*call
	seq   uint64 // registrations so far
}

// add registers c, which is not pending, for due.
func (q *queue) add(c *call, due Instant) {
	q.seq++
	c.due, c.seq = due, q.seq
	heap.Push(q, c)
}

// remove takes c out, and reports whether it was pending.
func (q *queue) remove(c *call) bool {
	if c.index == notPending {
		return false
	}
	heap.Remove(q, c.index)
	return true
}

// Len and the methods below implement heap.Interface.
func (q *queue) Len() int { return len(q.calls) }

// Less keeps calls that are due together in the order in which they were registered.
func (q *queue) Less(i, j int) bool {
	a, b := q.calls[i], q.calls[j]
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

func (q *queue) Swap(i, j int) {
	q.calls[i], q.calls[j] = q.calls[j], q.calls[i]
	q.calls[i].index, q.calls[j].index = i, j
}

func (q *queue) Push(x any) {
	c := x.(*call)
	c.index = len(q.calls)
	q.calls = append(q.calls, c)
}

func (q *queue) Pop() any {
	last := len(q.calls) - 1
	c := q.calls[last]
	q.calls[last] = nil // or the array would keep the closure alive
	q.calls = q.calls[:last]
	c.index = notPending
	return c
}
