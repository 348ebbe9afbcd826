package clock_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// equal checks one value.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func expectPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() { equal(t, what+" panics", recover() != nil, true) }()
	f()
}

// journal notes what fired and when, in time since the journal was opened.
type journal struct {
	clock clock.Clock
	start clock.Instant
	lines []string
}

func open(c clock.Clock) *journal { return &journal{clock: c, start: c.Now()} }

func (j *journal) note(name string) {
	j.lines = append(j.lines, fmt.Sprintf("%s@%v", name, j.clock.Now().Sub(j.start)))
}

func (j *journal) noting(name string) func() { return func() { j.note(name) } }

// expect checks what has fired since the last look.
func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(j.lines, want) {
		t.Errorf("fired %v\n want %v", j.lines, want)
	}
	j.lines = nil
}

// On every clock that a test moves: Stop and Reset say whether the timer was pending, and a timer
// that has fired or was stopped can be set again.
func TestStopAndResetSayWhetherTheTimerWasPending(t *testing.T) {
	m := clock.NewManual(0)
	for name, c := range map[string]clock.Clock{
		"manual": m, "skewed": clock.NewSkewed(m, clock.Skew{Offset: time.Hour, DriftPPM: -500_000}),
	} {
		second := time.Second // by the base
		if c != clock.Clock(m) {
			second /= 2
		}
		j := open(m)
		a := c.AfterFunc(second, j.noting("a"))
		equal(t, name+": the first Stop", a.Stop(), true)
		equal(t, name+": the second Stop", a.Stop(), false)
		m.Advance(2 * time.Second)
		j.expect(t)

		equal(t, name+": Reset of a stopped timer", a.Reset(second), false)
		equal(t, name+": Reset of a pending timer", a.Reset(3*second), true)
		m.Advance(2 * time.Second)
		j.expect(t)
		m.Advance(time.Second)
		j.expect(t, "a@5s")

		equal(t, name+": Stop of a timer that has fired", a.Stop(), false)
		equal(t, name+": Reset of a timer that has fired", a.Reset(0), false)
		j.expect(t)
		m.Advance(0)
		j.expect(t, "a@5s")
		if at, left := m.Next(); left {
			t.Errorf("%s: a timer is left at %d", name, at)
		}
	}
}

// hammer sets, stops and resets timers of c from many goroutines, of which disturb does something
// else now and then. It returns a function that checks, once all are due, that every timer fired or
// was stopped, never both and never twice.
func hammer(t *testing.T, c clock.Clock, disturb func(worker, i int)) (check func()) {
	t.Helper()
	const workers, each = 8, 300
	var fired, stopped, again atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				timer := c.AfterFunc(time.Duration(i%7), func() { fired.Add(1) })
				switch i % 3 {
				case 0:
					if timer.Stop() {
						stopped.Add(1)
					}
				case 1:
					if !timer.Reset(3) {
						again.Add(1) // it had fired already and fires again
					}
				case 2:
					disturb(w, i)
				}
				if c.Now() <= 0 {
					t.Error("a reading of zero or less")
				}
			}
		})
	}
	wg.Wait()
	return func() {
		t.Helper()
		equal(t, "fired or stopped", fired.Load()+stopped.Load(), workers*each+again.Load())
	}
}
