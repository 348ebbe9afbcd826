package faults

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// decision is one request: it was decided at some moment in [before, after].
type decision struct {
	before, after time.Duration // fleet.now
	ok            bool
}

// seen sums up the decisions on a fleet's callers in a time.
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
	// Decisions are sorted by time, except for goroutines that stalled before they recorded theirs. A
	// scan of all decisions would hold up the load in tests that look often.
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

// worstOf calls audit.Worst for a limit with another burst, or a window with that number of tokens.
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

// audit returns the window in [from, to) whose admissions of name exceed limit and extra by most.
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

// excess returns the tokens by which the worst window exceeds limit.
func (f *fleet) excess(name string, limit hybrid.Limit) int64 {
	f.t.Helper()
	return f.audit(name, limit, 0, 0, math.MaxInt64).ExceededBy
}

// checkBound is oracle W: no window admitted more of name than limit and extra allow.
func (f *fleet) checkBound(name string, limit hybrid.Limit, extra int64) {
	f.t.Helper()
	f.checkBoundIn(name, limit, extra, 0, math.MaxInt64)
}

// checkBoundIn is checkBound for the requests in [from, to).
func (f *fleet) checkBoundIn(name string, limit hybrid.Limit, extra int64, from, to time.Duration) {
	f.t.Helper()
	w := f.audit(name, limit, extra, from, to)
	testkit.Check(f.t, w.Admitted > 0, "nothing was admitted of %q: the audit says nothing", name)
	testkit.Check(f.t, w.ExceededBy == 0, "%d admitted of %q in the %v from %v on, %d more than %v + %d allow",
		w.Admitted, name, time.Duration(w.To-w.From), time.Duration(w.From), w.ExceededBy, limit, extra)
}

// checkAccount is oracle C: every token that the store granted was admitted, given back, burnt, or is held.
func checkAccount(t testing.TB, name string, s hybrid.Stats) {
	t.Helper()
	testkit.Check(t, s.Conserved(), "%s lost or forged tokens: %+v", name, s)
}

// checkConserved is oracle C for all limiters. Every fleet is asked it at its end.
func (f *fleet) checkConserved() {
	f.t.Helper()
	for i, l := range f.limiters {
		checkAccount(f.t, fmt.Sprint("limiter ", i), l.Stats())
	}
}

// checkAnswered is oracle T: every request for name that began in [from, to) is answered, though no client
// has given up by then: those wait for an hour. How long a request takes is asserted in virtual time only.
func (f *fleet) checkAnswered(name string, from, to time.Duration) {
	f.t.Helper()
	testkit.Eventually(f.t, "answers to all requests for "+name, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for r := range f.open {
			if r.name == name && r.began >= from && r.began < to {
				return false
			}
		}
		return true
	})
	testkit.Check(f.t, f.seen(name, from, to).asked() > 0, "no request for %q between %v and %v", name, from, to)
}

// leased returns the number of tokens that leases admitted so far.
func (f *fleet) leased() int64 {
	s := f.stats()
	return s.Admitted - s.Fallback
}

// replaceable is a wire whose place another may take, as a server's that has forgotten everything.
type replaceable struct {
	lease.Store
	wire  atomic.Pointer[wire]
	clock *steppedClock // of the bucket
}

// steppedClock is a clock that an operator may set by hand.
type steppedClock struct {
	clock.Clock
	by atomic.Int64
}

func (c *steppedClock) Now() clock.Instant { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

// Exchange implements lease.Store.
func (r *replaceable) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	r.wire.Load().Exchange(ctx, calls, done)
}

// stepped is a fleet of n processes on one store in memory, whose clock and contents a test may change.
func stepped(t *testing.T, n int, cfg hybrid.Config) (*fleet, *replaceable) {
	r := &replaceable{clock: &steppedClock{Clock: clock.System()}}
	r.forget()
	r.Store = r.wire.Load()
	return newFleet(t, cfg, slices.Repeat([]lease.Store{r}, n)...), r
}

// forget begins with an empty store.
func (r *replaceable) forget() {
	w := newWire(always(time.Millisecond))
	w.Store = memory.New(r.clock)
	r.wire.Store(w)
}

// down takes the store away for a while.
func (r *replaceable) down(how func(context.Context) error) {
	r.wire.Load().goDown(how)
	time.Sleep(5 * time.Second)
	r.wire.Load().goDown(nil)
}

// TestTheRateIsBackWithinTwoTOfAFault is oracle G in virtual time, for the faults that other tests inject
// into Redis: a second in which leases admit 95 % of the rate begins within 2T of the fault's end.
func TestTheRateIsBackWithinTwoTOfAFault(t *testing.T) {
	type story struct {
		fault  func(*replaceable)
		frozen time.Duration // by the fault; it ends with that
		extra  int64         // tokens beyond the bound
	}
	stories := map[string]story{
		"none":                 {fault: func(*replaceable) {}},
		"a store that refuses": {fault: func(r *replaceable) { r.down(refusing) }},
		"a store that hangs":   {fault: func(r *replaceable) { r.down(hanging) }},
		"a lost bucket":        {fault: (*replaceable).forget},
		// The bucket expires. By the server's clock its leases are an hour old, so it cannot know how
		// long they last: docs/protocol.md 6.6.
		"a clock an hour ahead": {func(r *replaceable) { r.clock.by.Store(int64(time.Hour)) },
			10 * time.Second, 2 * busy.Burst},
	}
	for _, back := range []time.Duration{100 * time.Millisecond, time.Hour, 24 * time.Hour} {
		stories[fmt.Sprint("a clock ", back, " back")] = story{
			fault: func(r *replaceable) { r.clock.by.Store(int64(-back)) },
		}
	}
	for name, c := range stories {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// given four processes that ask for six times the rate
				f, r := stepped(t, 4, with(busy, strict))
				load := f.load(key, 6*int(busy.Tokens)/4)
				time.Sleep(5 * time.Second)
				// when there is a fault, and it ends
				c.fault(r)
				// then the rate is back
				const step, second = 10 * time.Millisecond, 100 // steps
				ttl := f.cfg.Policy.ConfigFor(f.cfg.Limits, 0, 0).TTL
				var leased []int64
				for range int((c.frozen+2*ttl)/step) + second + 1 {
					leased = append(leased, f.leased())
					time.Sleep(step)
				}
				most := int64(0) // in a second that begins in time
				for i, n := range leased[second:] {
					most = max(most, n-leased[i])
				}
				load.stop()
				f.close()
				testkit.Check(t, most >= busy.Tokens*95/100, "%d admitted in the best second", most)
				// and the bound holds over all windows
				f.checkBound(key, busy, c.extra)
			})
		})
	}
}
