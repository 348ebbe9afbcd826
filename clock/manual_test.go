package clock_test

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestManualStandsStillUntilAdvanced(t *testing.T) {
	m := clock.NewManual(5000)
	equal(t, "at first", m.Now(), 5000)
	equal(t, "and still", m.Now(), 5000)
	m.Advance(time.Microsecond)
	equal(t, "a microsecond later", m.Now(), 6000)

	var zero clock.Manual
	equal(t, "the zero value", zero.Now(), 4e18)
	equal(t, "a start of 0", clock.NewManual(0).Now(), 4e18)
	equal(t, "a start of -1", clock.NewManual(-1).Now(), 4e18)
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
	equal(t, "the end of Advance(10s)", m.Now().Sub(j.start), 10*time.Second)
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
	equal(t, "after a callback that ran past the end", m.Now().Sub(j.start), 66*time.Second)
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
	equal(t, "a timer of forever after 100 years", fired, 0)
	m.Advance(math.MaxInt64)
	m.Advance(math.MaxInt64)
	equal(t, "at the end of time", fired, 1)
	equal(t, "at the end of time", m.Now(), math.MaxInt64)
}

// The queue against the plainest thing that could work: a list that is searched for the least (due,
// registration) whenever something should fire.
func TestManualAgreesWithAListOnRandomWork(t *testing.T) {
	r := testkit.Rand(t)
	type entry struct {
		due, seq int64
		pending  bool
	}
	m := clock.NewManual(1)
	now, seq := int64(1), int64(0)
	var timers []clock.Timer
	var model []entry
	var got []string
	set := func(i int, d int64) {
		seq++
		model[i] = entry{now + max(d, 0), seq, true}
	}
	earliest := func() int {
		best := -1
		for i, e := range model {
			switch {
			case !e.pending:
			case best < 0, e.due < model[best].due, e.due == model[best].due && e.seq < model[best].seq:
				best = i
			}
		}
		return best
	}
	for step := 0; step < 5000 && !t.Failed(); step++ {
		d, op := r.Int64N(12)-1, r.IntN(4)
		if len(timers) == 0 {
			op = 0
		}
		switch op {
		case 0:
			i := len(timers)
			model = append(model, entry{})
			set(i, d)
			fire := func() { got = append(got, fmt.Sprint(i, m.Now())) }
			timers = append(timers, m.AfterFunc(time.Duration(d), fire))
		case 1:
			i := r.IntN(len(timers))
			equal(t, "Stop", timers[i].Stop(), model[i].pending)
			model[i].pending = false
		case 2:
			i := r.IntN(len(timers))
			equal(t, "Reset", timers[i].Reset(time.Duration(d)), model[i].pending)
			set(i, d)
		case 3:
			got = nil
			m.Advance(time.Duration(max(d, 0)))
			var want []string
			now += max(d, 0)
			for i := earliest(); i >= 0 && model[i].due <= now; i = earliest() {
				model[i].pending = false
				want = append(want, fmt.Sprint(i, model[i].due))
			}
			equal(t, "Advance", fmt.Sprint(got), fmt.Sprint(want))
		}
		equal(t, "Now", int64(m.Now()), now)
		at, ok := m.Next()
		i := earliest()
		equal(t, "Next", ok, i >= 0)
		if ok && i >= 0 {
			equal(t, "Next", int64(at), model[i].due)
		}
	}
}

// Timers are set, stopped and reset from many goroutines while the clock moves. In the end every timer has
// fired or was stopped, never both and never twice.
func TestManualIsSafeForConcurrentUse(t *testing.T) {
	m := clock.NewManual(0)
	const workers, each = 8, 300
	var fired, stopped, again atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				timer := m.AfterFunc(time.Duration(i%7), func() { fired.Add(1) })
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
					before := m.Now()
					m.Advance(2)
					m.Next()
					now := m.Now()
					testkit.Check(t, !now.Before(before), "the clock went back from %d to %d", before, now)
				}
			}
		})
	}
	wg.Wait()
	m.Advance(time.Second)
	equal(t, "fired or stopped", fired.Load()+stopped.Load(), workers*each+again.Load())
}

func BenchmarkManualTimer(b *testing.B) {
	m := clock.NewManual(0)
	for b.Loop() {
		m.AfterFunc(1, func() {})
		m.Advance(1)
	}
}
