package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// CheckBound is oracle W: in no window was more admitted of key than burst + overcommit + rate x window.
func (f *Fleet) CheckBound(key string, limit hybrid.Limit, overcommit int64) {
	f.t.Helper()
	w := f.Audit(key, limit, overcommit)
	switch {
	case w.Admitted == 0:
		f.t.Errorf("nothing was admitted of %q: the audit says nothing", key)
	case w.ExceededBy > 0:
		f.t.Errorf("%d admitted of %q in the %v from %v on, %d more than %v + %d allow",
			w.Admitted, key, time.Duration(w.To-w.From), time.Duration(w.From), w.ExceededBy, limit, overcommit)
	}
}

// CheckConserved is oracle C: every token that the store granted was admitted, given back, burnt, or is held. It may be
// asked at any time.
func (f *Fleet) CheckConserved() {
	f.t.Helper()
	for i, l := range f.Limiters {
		s := l.Stats()
		if s.Leased != s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held || s.Held < 0 {
			f.t.Errorf("limiter %d lost or forged tokens: %+v", i, s)
		}
	}
}

// CheckNobodyWaited is oracle T: no decision on key that began in [from, to) took longer than most. Give a `most` that
// only somebody who waits for the wrong thing reaches: fleets have clients that give up after a minute.
func (f *Fleet) CheckNobodyWaited(key string, from, to, most time.Duration) {
	f.t.Helper()
	s := f.Seen(key, from, to)
	if s.Admitted+s.Denied == 0 {
		f.t.Errorf("nobody asked for %q between %v and %v", key, from, to)
	}
	if s.Slowest > most {
		f.t.Errorf("a decision on %q took %v, at most %v is allowed", key, s.Slowest, most)
	}
}

// AwaitRecovery is oracle G: it returns when the fleet, which must be under load of more than rate
// on one key, has admitted 95 % of rate for a whole second by leases alone, and says how long after
// the call of AwaitRecovery that second began. It fails the test where there is no such second.
func (f *Fleet) AwaitRecovery(rate int64) Recovery {
	f.t.Helper()
	return AwaitRecovery(f.t, rate, f)[0]
}

// Recovery is how long a fleet took to be back at its rate.
type Recovery struct {
	t     testing.TB
	After time.Duration // until the second at the rate began
	still time.Duration // of it, for how long this machine did not let the test look
}

// slack is what a machine that runs other tests beside this one may add to a time that a test measures.
// Where the promised durations must be exact, tests run in virtual time.
const slack = time.Second

// CheckInTime fails the test unless the second at the rate began within 2T of the recovery. Time in
// which this machine stood still does not count, nor what a slack one adds.
func (r Recovery) CheckInTime(ttl time.Duration) {
	r.t.Helper()
	if most := 2 * ttl; r.After-r.still > most+slack {
		r.t.Errorf("the rate was back %v after the recovery, %v of which the machine stood still: the goal is 2T, %v", r.After, r.still, most)
	}
}

// AwaitRecovery is Fleet.AwaitRecovery for several fleets at once.
func AwaitRecovery(t testing.TB, rate int64, fleets ...*Fleet) []Recovery {
	t.Helper()
	took := make([]Recovery, len(fleets))
	watches := make([]watch, len(fleets))
	left := len(fleets)
	began := time.Now()
	for i, f := range fleets {
		watches[i].take(f)
	}
	var still time.Duration
	looked := began
	testkit.Eventually(t, fmt.Sprintf("a second with 95 %% of %d/s, for %d of %d fleets", rate, left, len(fleets)), func() bool {
		if gap := time.Since(looked); gap > stall {
			still += gap
		}
		looked = time.Now()
		for i, f := range fleets {
			w := &watches[i]
			if !w.done && w.reached(f, 0.95*float64(rate)) {
				w.done = true
				left--
				took[i] = Recovery{t: t, After: w.samples[0].at.Sub(began), still: still}
			}
		}
		return left == 0
	})
	return took
}

// stall is how late a look may come before the machine counts as having stood still.
const stall = 20 * time.Millisecond

// watch is what a fleet has admitted by leases, during the latest second or a little more.
type watch struct {
	samples []sample
	done    bool
}

type sample struct {
	at     time.Time
	leased int64
}

func (w *watch) take(f *Fleet) sample {
	s := f.Stats()
	now := sample{time.Now(), s.Admitted - s.Fallback}
	w.samples = append(w.samples, now)
	return now
}

// reached reports whether the latest second had rate tokens.
func (w *watch) reached(f *Fleet, rate float64) bool {
	last := w.take(f)
	for !w.samples[1].at.After(last.at.Add(-time.Second)) {
		w.samples = w.samples[1:]
	}
	d := last.at.Sub(w.samples[0].at)
	return d >= time.Second && float64(last.leased-w.samples[0].leased) >= rate*d.Seconds()
}

// Warm returns when every limiter has a lease on a key that is under load.
func (f *Fleet) Warm() {
	f.t.Helper()
	testkit.Eventually(f.t, "a lease for everybody", func() bool {
		return !slices.ContainsFunc(f.Limiters, func(l *hybrid.Limiter) bool { return l.Stats().Leased == 0 })
	})
}
