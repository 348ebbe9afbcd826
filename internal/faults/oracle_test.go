package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// worstOf is audit.Worst for a limit with a burst of its own.
func worstOf(t testing.TB, spans []audit.Span, l hybrid.Limit, burst int64) audit.Window {
	t.Helper()
	w, err := audit.Worst(spans, audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: burst})
	must(t, err)
	return w
}

// conserved is oracle C: every token that the store granted was admitted, given back, burnt, or is
// held.
func conserved(t testing.TB, who string, s hybrid.Stats) {
	t.Helper()
	if s.Leased != s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held || s.Held < 0 {
		t.Errorf("%s lost or forged tokens: %+v", who, s)
	}
}

// CheckConserved is oracle C for all limiters, at any time.
func (f *Fleet) CheckConserved() {
	f.t.Helper()
	for i, l := range f.Limiters {
		conserved(f.t, fmt.Sprint("limiter ", i), l.Stats())
	}
}

// CheckNobodyWaited is oracle T: no decision on key that began in [from, to) took longer than
// CallTimeout. The clients would wait for a minute.
func (f *Fleet) CheckNobodyWaited(key string, from, to time.Duration) {
	f.t.Helper()
	most := f.callTimeout + slack
	s := f.Seen(key, from, to)
	if s.Admitted+s.Denied == 0 {
		f.t.Errorf("nobody asked for %q between %v and %v", key, from, to)
	}
	if s.Slowest > most {
		f.t.Errorf("a decision on %q took %v, at most %v is allowed", key, s.Slowest, most)
	}
}

// slack is what a machine that runs other tests beside this one may add to a time that a test
// measures. Where the promised durations must be exact, tests run in virtual time.
const slack = time.Second

// stall is how late a look may come before the machine counts as having stood still.
const stall = 20 * time.Millisecond

// Recovery is how long a fleet took to be back at its rate.
type Recovery struct {
	After time.Duration // until the second at the rate began
	still time.Duration // for how long of it this machine did not let the test look
}

// CheckInTime fails the test unless the second at the rate began within 2T of the recovery. Time in
// which this machine stood still does not count, nor what a busy one adds.
func (r Recovery) CheckInTime(t testing.TB, ttl time.Duration) {
	t.Helper()
	if most := 2 * ttl; r.After-r.still > most+slack {
		t.Errorf("the rate was back %v after the recovery, %v of which the machine stood still: the goal is 2T, %v",
			r.After, r.still, most)
	}
}

// AwaitRecovery is oracle G: it returns when the fleet, which must be under load of more than rate
// on one key, has admitted 95 % of rate for a whole second by leases alone. It says how long after
// the call of AwaitRecovery that second began, and ends the test where there is none.
func (f *Fleet) AwaitRecovery(rate int64) Recovery {
	f.t.Helper()
	return AwaitRecovery(f.t, rate, f)[0]
}

// CheckRecovers is AwaitRecovery that must end in time, by the T of key's bucket.
func (f *Fleet) CheckRecovers(key string, rate int64) Recovery {
	f.t.Helper()
	took := f.AwaitRecovery(rate)
	took.CheckInTime(f.t, f.State(key).Config.TTL)
	return took
}

// AwaitRecovery is Fleet.AwaitRecovery for several fleets at once.
func AwaitRecovery(t testing.TB, rate int64, fleets ...*Fleet) []Recovery {
	t.Helper()
	// sample is what a fleet had admitted by leases at a moment.
	type sample struct {
		at     time.Time
		leased int64
	}
	took := make([]Recovery, len(fleets))
	samples := make([][]sample, len(fleets)) // of the latest second or a little more; nil: recovered
	take := func(i int) sample {
		s := fleets[i].Stats()
		now := sample{time.Now(), s.Admitted - s.Fallback}
		samples[i] = append(samples[i], now)
		return now
	}
	began := time.Now()
	for i := range fleets {
		take(i)
	}
	left, looked, still := len(fleets), began, time.Duration(0)
	what := fmt.Sprintf("a second with 95 %% of %d/s, for %d fleets", rate, left)
	testkit.Eventually(t, what, func() bool {
		if gap := time.Since(looked); gap > stall {
			still += gap
		}
		looked = time.Now()
		for i := range fleets {
			if samples[i] == nil {
				continue
			}
			last := take(i)
			for !samples[i][1].at.After(last.at.Add(-time.Second)) {
				samples[i] = samples[i][1:]
			}
			first := samples[i][0]
			d := last.at.Sub(first.at)
			if d >= time.Second && float64(last.leased-first.leased) >= 0.95*float64(rate)*d.Seconds() {
				took[i], samples[i] = Recovery{first.at.Sub(began), still}, nil
				left--
			}
		}
		return left == 0
	})
	return took
}
