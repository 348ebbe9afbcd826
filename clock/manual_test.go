package clock_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

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

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(j.lines, want) {
		t.Errorf("fired %v\n want %v", j.lines, want)
	}
	j.lines = nil
}

func TestManualStandsStillUntilAdvanced(t *testing.T) {
	m := clock.NewManual(5000)
	for range 2 {
		if m.Now() != 5000 {
			t.Fatalf("reads %d, want 5000", m.Now())
		}
	}
	m.Advance(time.Microsecond)
	if m.Now() != 6000 {
		t.Errorf("reads %d a microsecond after 5000", m.Now())
	}
}

func TestManualWithoutAStartIsPositive(t *testing.T) {
	var zero clock.Manual
	for name, m := range map[string]*clock.Manual{
		"start 0": clock.NewManual(0), "start -1": clock.NewManual(-1), "zero value": &zero,
	} {
		if now := m.Now(); now != 4e18 {
			t.Errorf("%s: reads %d, want 4e18", name, now)
		}
	}
}

func TestManualFiresByTimeThenByRegistration(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	m.AfterFunc(3*time.Second, j.noting("c"))
	m.AfterFunc(1*time.Second, j.noting("a"))
	m.AfterFunc(2*time.Second, j.noting("b1"))
	m.AfterFunc(2*time.Second, j.noting("b2"))
	m.AfterFunc(4*time.Second, j.noting("d"))

	m.Advance(3 * time.Second)
	j.expect(t, "a@1s", "b1@2s", "b2@2s", "c@3s")

	m.Advance(time.Second - 1)
	j.expect(t)
	m.Advance(1)
	j.expect(t, "d@4s")
}

func TestManualFiresWhatCallbacksSetWithinTheSameAdvance(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	m.AfterFunc(time.Second, func() {
		j.note("a")
		m.AfterFunc(0, j.noting("at once"))
		m.AfterFunc(time.Second, j.noting("later"))
		m.AfterFunc(time.Minute, j.noting("too late"))
	})
	m.AfterFunc(time.Second, j.noting("b"))

	m.Advance(10 * time.Second)

	j.expect(t, "a@1s", "b@1s", "at once@1s", "later@2s")
	if m.Now().Sub(j.start) != 10*time.Second {
		t.Errorf("Advance(10s) ended at %v", m.Now().Sub(j.start))
	}
}

func TestManualTimerOfZeroOrLessWaitsForTheNextAdvance(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	m.AfterFunc(0, j.noting("zero"))
	m.AfterFunc(-time.Hour, j.noting("negative"))
	j.expect(t)

	m.Advance(0)

	j.expect(t, "zero@0s", "negative@0s")
}

func TestManualNextGivesTheEarliestDueTime(t *testing.T) {
	m := clock.NewManual(1000)
	if at, ok := m.Next(); ok {
		t.Errorf("without timers, Next gives %d", at)
	}
	m.AfterFunc(50, func() {})
	first := m.AfterFunc(20, func() {})
	if at, ok := m.Next(); !ok || at != 1020 {
		t.Errorf("Next gives %d, %v, want 1020", at, ok)
	}
	first.Stop()
	if at, ok := m.Next(); !ok || at != 1050 {
		t.Errorf("with the first stopped, Next gives %d, %v, want 1050", at, ok)
	}
	m.Advance(50)
	if at, ok := m.Next(); ok {
		t.Errorf("with all fired, Next gives %d", at)
	}
}

func TestManualTimerStopAndResetSayWhetherItWasPending(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	a := m.AfterFunc(time.Second, j.noting("a"))

	if !a.Stop() || a.Stop() {
		t.Error("the first Stop must say true and the second false")
	}
	m.Advance(2 * time.Second)
	j.expect(t)

	if a.Reset(time.Second) {
		t.Error("Reset of a stopped timer says that it was pending")
	}
	if !a.Reset(3 * time.Second) {
		t.Error("Reset of a pending timer says that it was not")
	}
	m.Advance(2 * time.Second)
	j.expect(t)
	m.Advance(1 * time.Second)
	j.expect(t, "a@5s")
	if a.Stop() {
		t.Error("Stop of a timer that has fired says that it was pending")
	}
}

func TestManualResetCountsAsANewRegistration(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	a := m.AfterFunc(time.Second, j.noting("a"))
	m.AfterFunc(time.Second, j.noting("b"))
	a.Reset(time.Second)
	m.Advance(time.Second)
	j.expect(t, "b@1s", "a@1s")
}

func TestManualCallbackMayStopAndResetOthersAndItself(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	var ticker, victim clock.Timer
	ticks := 0
	ticker = m.AfterFunc(time.Second, func() {
		j.note("tick")
		if ticks++; ticks < 3 {
			ticker.Reset(time.Second)
		}
		victim.Stop()
	})
	victim = m.AfterFunc(time.Second, j.noting("victim"))
	m.Advance(time.Minute)
	j.expect(t, "tick@1s", "tick@2s", "tick@3s")
}

// A callback that takes time itself does not put off the end of the Advance.
func TestManualAdvanceInsideACallbackOverlaps(t *testing.T) {
	m := clock.NewManual(0)
	j := open(m)
	m.AfterFunc(1*time.Second, func() {
		j.note("begins")
		m.Advance(3 * time.Second)
		j.note("ends")
	})
	m.AfterFunc(2*time.Second, j.noting("meanwhile"))
	m.AfterFunc(5*time.Second, j.noting("after"))

	m.Advance(5 * time.Second)
	j.expect(t, "begins@1s", "meanwhile@2s", "ends@4s", "after@5s")

	m.AfterFunc(time.Second, func() { m.Advance(time.Minute) })
	m.Advance(2 * time.Second)
	if at := m.Now().Sub(j.start); at != 66*time.Second {
		t.Errorf("a callback that ran past the end left the clock at %v, want 1m6s", at)
	}
}

func TestManualRefusesNonsense(t *testing.T) {
	m := clock.NewManual(0)
	expectPanic(t, "Advance(-1)", func() { m.Advance(-1) })
	expectPanic(t, "AfterFunc(nil)", func() { m.AfterFunc(0, nil) })
	m.Advance(0) // and holds no lock afterwards
}

func TestManualStopsAtTheEndOfTheScale(t *testing.T) {
	m := clock.NewManual(0)
	fired := 0
	m.AfterFunc(math.MaxInt64, func() { fired++ })
	m.Advance(100 * year)
	if fired != 0 {
		t.Error("a timer of forever fired after 100 years")
	}
	m.Advance(math.MaxInt64)
	m.Advance(math.MaxInt64)
	if fired != 1 || m.Now() != math.MaxInt64 {
		t.Errorf("at the end of time: fired %d times, clock reads %d", fired, m.Now())
	}
}

// The heap against the plainest thing that could work: a list that is searched
// for the least (due, registration) whenever something should fire.
func TestManualAgreesWithAListOnRandomWork(t *testing.T) {
	r := testkit.Rand(t)
	type entry struct {
		due, seq int64
		pending  bool
	}
	m := clock.NewManual(1)
	now, seq := int64(1), int64(0)
	var (
		timers  []clock.Timer
		model   []entry
		got     []string
		compare func(op string, a, b any)
	)
	compare = func(op string, a, b any) {
		t.Helper()
		if a != b {
			t.Fatalf("%s: clock says %v, list says %v", op, a, b)
		}
	}
	set := func(i int, d int64) {
		seq++
		model[i] = entry{now + max(d, 0), seq, true}
	}
	earliest := func() int {
		best := -1
		for i, e := range model {
			if e.pending && (best < 0 || e.due < model[best].due || e.due == model[best].due && e.seq < model[best].seq) {
				best = i
			}
		}
		return best
	}
	for range 5000 {
		switch d := r.Int64N(12) - 1; r.IntN(4) {
		case 0:
			i := len(timers)
			model = append(model, entry{})
			set(i, d)
			timers = append(timers, m.AfterFunc(time.Duration(d), func() { got = append(got, fmt.Sprint(i, m.Now())) }))
		case 1:
			if len(timers) > 0 {
				i := r.IntN(len(timers))
				compare("Stop", timers[i].Stop(), model[i].pending)
				model[i].pending = false
			}
		case 2:
			if len(timers) > 0 {
				i := r.IntN(len(timers))
				compare("Reset", timers[i].Reset(time.Duration(d)), model[i].pending)
				set(i, d)
			}
		case 3:
			got = nil
			m.Advance(time.Duration(max(d, 0)))
			var want []string
			now += max(d, 0)
			for i := earliest(); i >= 0 && model[i].due <= now; i = earliest() {
				model[i].pending = false
				want = append(want, fmt.Sprint(i, model[i].due))
			}
			compare("Advance", fmt.Sprint(got), fmt.Sprint(want))
		}
		compare("Now", int64(m.Now()), now)
		at, ok := m.Next()
		i := earliest()
		compare("Next", ok, i >= 0)
		if ok {
			compare("Next", int64(at), model[i].due)
		}
	}
}

// Run under -race: every timer fires or is stopped, never both, never twice.
func TestManualIsSafeForConcurrentUse(t *testing.T) {
	m := clock.NewManual(0)
	var fired, stopped, rereset atomic.Int64
	const workers, each = 8, 300
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			last := m.Now()
			for i := range each {
				timer := m.AfterFunc(time.Duration(i%7), func() { fired.Add(1) })
				switch i % 3 {
				case 0:
					if timer.Stop() {
						stopped.Add(1)
					}
				case 1:
					if !timer.Reset(3) {
						rereset.Add(1) // it had fired already and fires again
					}
				case 2:
					m.Advance(2)
				}
				m.Next()
				if now := m.Now(); now.Before(last) {
					t.Errorf("clock went back from %d to %d", last, now)
				} else {
					last = now
				}
			}
		})
	}
	wg.Wait()
	m.Advance(time.Second)
	if got, want := fired.Load()+stopped.Load(), int64(workers*each)+rereset.Load(); got != want {
		t.Errorf("%d fired and %d stopped, want %d together", fired.Load(), stopped.Load(), want)
	}
}

func expectPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}

func BenchmarkManualTimer(b *testing.B) {
	m := clock.NewManual(0)
	for b.Loop() {
		m.AfterFunc(1, func() {})
		m.Advance(1)
	}
}
