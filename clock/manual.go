package clock

import (
	"container/heap"
	"sync"
	"time"
)

// Manual is a clock that moves only when Advance is called. It has no goroutine
// and no randomness, so what happens on it happens in the same order every
// time. The zero Manual is ready to use and equal to NewManual(0). Any number
// of goroutines may share a Manual; it must not be copied after first use.
type Manual struct {
	mu     sync.Mutex
	now    Instant // 0 until first needed: see time
	timers timerHeap
	seq    uint64 // registrations so far: orders timers that are due together
}

// NewManual returns a clock that stands at start. A start of zero or less means
// that the caller does not mind: the clock then starts at 4e18 ns, far enough
// from both ends for any offset of a century.
func NewManual(start Instant) *Manual {
	return &Manual{now: max(start, 0)}
}

// Now returns where Advance has brought the clock. In a callback that is the
// instant at which the callback was due.
func (m *Manual) Now() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.time()
}

// time is Now with the lock held. It gives the zero Manual its start.
func (m *Manual) time() Instant {
	if m.now == 0 {
		m.now = origin
	}
	return m.now
}

// AfterFunc has a later Advance call f. A timer of zero or less is due at once,
// and still waits for the next Advance (of zero, if need be) or for the Advance
// that is running. It panics if f is nil: the fault is then seen where it was
// made and not in some later Advance.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("clock: AfterFunc of a nil function")
	}
	t := &manualTimer{clock: m, f: f, index: notPending}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schedule(t, d)
	return t
}

// Next returns the instant at which the earliest pending timer is due, which
// may be now but is never past, or false if no timer is pending. To run a
// simulation event by event, Advance by what Next().Sub(Now()) gives.
func (m *Manual) Next() (Instant, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.timers) == 0 {
		return 0, false
	}
	return m.timers[0].due, true
}

// Advance moves the clock by d and calls what falls due on the way, including
// timers that these calls set themselves. Calls are made one after the other on
// the caller's goroutine, in order of time and, for the same time, in order of
// registration (a Reset registers anew). During each of them the clock stands
// at that call's own due time. No lock is held: a callback may use the clock as
// it likes, though one that always sets another timer of zero keeps Advance
// from ever returning.
//
// Advance(0) calls what is due now. A negative d panics: this clock never goes
// back.
//
// Two overlapping Advances, of two goroutines or of a callback and its caller,
// are like two overlapping sleeps: time passes for both at once. So a callback
// may call Advance(d) to say "this takes d", and does not thereby delay the end
// of the Advance that called it unless it runs past it.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: Advance by a negative duration: " + d.String())
	}
	m.mu.Lock()
	end := m.time().Add(d)
	for len(m.timers) > 0 && m.timers[0].due <= end {
		t := heap.Pop(&m.timers).(*manualTimer)
		m.now = t.due // never back: every timer is due at or after now
		m.mu.Unlock()
		t.f()
		m.mu.Lock()
	}
	// An overlapping Advance may have brought the clock further already.
	m.now = max(m.now, end)
	m.mu.Unlock()
}

// schedule makes t due d from now, behind those due at the same time. The lock
// is held, and t is not pending.
func (m *Manual) schedule(t *manualTimer, d time.Duration) {
	m.seq++
	t.due, t.seq = m.time().Add(max(d, 0)), m.seq
	heap.Push(&m.timers, t)
}

// manualTimer is a pending, called or stopped call. Its clock's lock guards it.
type manualTimer struct {
	clock *Manual
	f     func()
	due   Instant
	seq   uint64
	index int // place in the clock's heap, or notPending
}

const notPending = -1

func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.cancel()
}

func (t *manualTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.cancel()
	t.clock.schedule(t, d)
	return was
}

// cancel takes t out of the heap and reports whether it was there. The lock is
// held.
func (t *manualTimer) cancel() bool {
	if t.index == notPending {
		return false
	}
	heap.Remove(&t.clock.timers, t.index)
	return true
}

// timerHeap is a container/heap of pending timers, the next one to call first.
// Each timer knows its place, so that Stop costs no search.
type timerHeap []*manualTimer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*manualTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil // or the array would keep a called timer's closure alive
	*h = (*h)[:last]
	t.index = notPending
	return t
}
