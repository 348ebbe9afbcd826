package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// decision is one request: it was decided at some moment in [before, after].
type decision struct {
	before, after time.Duration // fleet.now
	ok            bool
}

// seen is what the callers of a fleet saw in a while.
type seen struct {
	admitted, denied int64
	slowest          time.Duration // the longest that a decision took
	slow             int64         // decisions that took a millisecond or more
}

func (s seen) asked() int64 { return s.admitted + s.denied }

func (s seen) String() string {
	return fmt.Sprintf("%d admitted, %d denied, slowest %v", s.admitted, s.denied,
		s.slowest.Round(time.Microsecond))
}

// seen sums up the decisions on name that began in [from, to).
func (f *fleet) seen(name string, from, to time.Duration) (s seen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The latest come last, but for those whose goroutine stood still before it put them on record. A
	// test that looks often would otherwise hold up the load with all that there ever was.
	const stall = 5 * time.Second
	for _, d := range slices.Backward(f.decisions[name]) {
		if d.after < from-stall {
			break
		}
		if d.before < from || d.before >= to {
			continue
		}
		if d.ok {
			s.admitted++
		} else {
			s.denied++
		}
		s.slowest = max(s.slowest, d.after-d.before)
		if d.after-d.before >= time.Millisecond {
			s.slow++
		}
	}
	return s
}

// worstOf is audit.Worst for a limit with a burst of its own, or a window with that many tokens.
func worstOf(t testing.TB, spans []audit.Span, l hybrid.Limit, burst int64) audit.Window {
	t.Helper()
	l.Burst = burst
	if l.Windowed() {
		l.Tokens = burst
	}
	w, err := audit.Worst(spans, audit.Of(l, 0))
	testkit.NoErr(t, err)
	return w
}

// audit is the window, over all in [from, to), in which most was admitted of name beyond limit and
// extra.
func (f *fleet) audit(name string, limit hybrid.Limit, extra int64, from, to time.Duration) audit.Window {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var spans []audit.Span
	for _, d := range f.decisions[name] {
		if d.ok && d.before >= from && d.before < to {
			spans = append(spans, audit.Span{Before: int64(d.before), After: int64(d.after), N: 1})
		}
	}
	return worstOf(f.t, spans, limit, limit.Capacity()+extra)
}

// excess is by how much the worst window of all exceeds limit.
func (f *fleet) excess(name string, limit hybrid.Limit) int64 {
	f.t.Helper()
	return f.audit(name, limit, 0, 0, math.MaxInt64).ExceededBy
}

// checkBound is oracle W: in no window more was admitted of name than limit and extra allow.
func (f *fleet) checkBound(name string, limit hybrid.Limit, extra int64) {
	f.t.Helper()
	f.checkBoundIn(name, limit, extra, 0, math.MaxInt64)
}

// checkBoundIn is checkBound for what was asked in [from, to).
func (f *fleet) checkBoundIn(name string, limit hybrid.Limit, extra int64, from, to time.Duration) {
	f.t.Helper()
	w := f.audit(name, limit, extra, from, to)
	testkit.Check(f.t, w.Admitted > 0, "nothing was admitted of %q: the audit says nothing", name)
	testkit.Check(f.t, w.ExceededBy == 0, "%d admitted of %q in the %v from %v on, %d more than %v + %d allow",
		w.Admitted, name, time.Duration(w.To-w.From), time.Duration(w.From), w.ExceededBy, limit, extra)
}

// checkAccount is oracle C: every token that the store granted was admitted, given back, burnt, or
// is held.
func checkAccount(t testing.TB, who string, s hybrid.Stats) {
	t.Helper()
	testkit.Check(t, s.Conserved(), "%s lost or forged tokens: %+v", who, s)
}

// checkConserved is oracle C for all limiters. Every fleet is asked it at its end.
func (f *fleet) checkConserved() {
	f.t.Helper()
	for i, l := range f.limiters {
		checkAccount(f.t, fmt.Sprint("limiter ", i), l.Stats())
	}
}

// checkNobodyWaited is oracle T: no decision on name that began in [from, to) took longer than
// CallTimeout. The clients would wait for a minute.
func (f *fleet) checkNobodyWaited(name string, from, to time.Duration) {
	f.t.Helper()
	s, most := f.seen(name, from, to), cmp.Or(f.cfg.CallTimeout, lease.DefaultCallTimeout)+slack
	testkit.Check(f.t, s.asked() > 0, "nobody asked for %q between %v and %v", name, from, to)
	testkit.Check(f.t, s.slowest <= most, "a decision on %q took %v, at most %v", name, s.slowest, most)
}

// slack is what a machine that runs other tests beside this one may add to a time that a test
// measures. Where the promised durations must be exact, tests run in virtual time.
const slack = time.Second

// stall is how late a look may come before the machine counts as having stood still.
const stall = 20 * time.Millisecond

// recovery is oracle G: it finds the first second in which a fleet, under load of more than rate on
// one key, admits 95 % of rate by leases alone.
type recovery struct {
	f             *fleet
	rate          int64
	began, looked time.Time
	after         time.Duration // from the beginning until that second began
	still         time.Duration // for how long of it this machine did not let the test look
	samples       []sample      // of the latest second or a little more
}

// sample is what a fleet had admitted by leases at a moment.
type sample struct {
	at     time.Time
	leased int64
}

// recovers begins to look for the recovery.
func (f *fleet) recovers(rate int64) *recovery {
	r := &recovery{f: f, rate: rate, began: time.Now(), looked: time.Now()}
	r.take()
	return r
}

func (r *recovery) take() sample {
	s := r.f.stats()
	now := sample{time.Now(), s.Admitted - s.Fallback}
	r.samples = append(r.samples, now)
	return now
}

// look takes a sample, and returns whether the second that ends with it is at the rate.
func (r *recovery) look() bool {
	if gap := time.Since(r.looked); gap > stall {
		r.still += gap
	}
	r.looked = time.Now()
	last := r.take()
	for !r.samples[1].at.After(last.at.Add(-time.Second)) {
		r.samples = r.samples[1:]
	}
	first := r.samples[0]
	d := last.at.Sub(first.at)
	r.after = first.at.Sub(r.began)
	return d >= time.Second && float64(last.leased-first.leased) >= 0.95*float64(r.rate)*d.Seconds()
}

// checkInTime fails the test unless the second at the rate began within 2T of the recovery. Time in
// which this machine stood still does not count, nor what a busy one adds.
func (r *recovery) checkInTime(ttl time.Duration) {
	r.f.t.Helper()
	testkit.Check(r.f.t, r.after-r.still <= 2*ttl+slack,
		"the rate was back %v after the recovery, %v of which the machine stood still: the goal is 2T, %v",
		r.after, r.still, 2*ttl)
}

// awaitRecovery returns when the fleet is back at rate.
func (f *fleet) awaitRecovery(rate int64) *recovery {
	f.t.Helper()
	r := f.recovers(rate)
	testkit.Eventually(f.t, fmt.Sprintf("a second with 95 %% of %d/s", rate), r.look)
	return r
}

// checkRecovers is awaitRecovery that must end in time, by the T of key's bucket.
func (f *fleet) checkRecovers(rate int64) {
	f.t.Helper()
	r := f.awaitRecovery(rate)
	f.t.Logf("the second at %d/s began %v after the recovery", rate, r.after)
	r.checkInTime(f.state(key).Config.TTL)
}

func TestAHealthyFleetPassesEveryOracle(t *testing.T) {
	// given three limiters on one server, asked for three times the limit (strict about the end of a
	// lease: otherwise a machine so slack that timers come late spends what has ended)
	limit := hybrid.PerSecond(1000).WithBurst(500)
	f := start(t).fleet(3, with(limit, strict))
	load := f.load(key, 1000)
	f.warm()
	// when a second at the full rate has passed
	f.checkRecovers(1000)
	load.stop()
	// then the bound holds over all windows, nothing was lost, and everybody was told both yes and no
	f.checkBound(key, limit, 0)
	f.checkNobodyWaited(key, 0, f.now())
	s, st := f.seen(key, 0, f.now()), f.stats()
	testkit.Check(t, s.admitted == st.Admitted && s.denied > 0, "seen %+v, counted %+v", s, st)
	// and the bucket counts no less as leased than is held
	bucket := f.state(key)
	testkit.Check(t, bucket.Exists && bucket.Levels[0]+bucket.Ledger >= f.stats().Held, "%+v, %+v", bucket, st)
}

func TestTheAuditFindsAnAdmissionTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// given a fleet whose limit is 10 at once
		limit := hybrid.PerHour(10)
		f := newFleet(t, with(limit, denying), lease.NewMemoryStore(nil))
		admit := func(n int) {
			for range n {
				f.ask(key, func() bool { return true })
			}
		}
		admit(10)
		w := f.audit(key, limit, 0, 0, math.MaxInt64)
		testkit.Check(t, w.ExceededBy == 0 && w.Admitted == 10, "%+v", w)
		// when an eleventh is admitted, half an hour later
		time.Sleep(30 * time.Minute)
		admit(6)
		// then the audit says so
		testkit.Check(t, f.excess(key, limit) == 1, "%d", f.excess(key, limit))
	})
}
