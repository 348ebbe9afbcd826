package hybrid_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// order collects when each of a number of requests was served. Those that one reply serves wake in any order.
type order struct {
	mu   sync.Mutex
	when []time.Duration
	n    int
	from time.Time
}

func newOrder(n int) *order { return &order{from: time.Now(), when: make([]time.Duration, n)} }

func (o *order) add(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.when[i] = time.Since(o.from)
	o.n++
}

// done reports whether all were served.
func (o *order) done() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n == len(o.when)
}

func (o *order) check(t *world) {
	t.Helper()
	for i := 1; i < len(o.when); i++ {
		must(t, o.when[i] >= o.when[i-1],
			"not first in, first out: %d was served at %v, the one before it at %v", i, o.when[i], o.when[i-1])
	}
}

// The first waiter is served first, whatever its n, and neither Allow nor TakeUpTo overtakes.
func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.drained(of(hybrid.PerSecond(10)))
		sizes := []int64{5, 1, 10, 1, 3} // 20 in all
		o := newOrder(len(sizes))
		wait := inTurn(len(sizes), func(i int) {
			noErr(t, l.Key("k").WaitN(t.Context(), sizes[i]))
			o.add(i)
		})
		stolen := admits(2200, time.Millisecond, func() bool {
			if o.done() {
				return false
			}
			r, err := l.Key("k").TakeUpTo(t.Context(), 1)
			noErr(t, err)
			return r.OK || l.Allow("k")
		})
		wait()
		o.check(t)
		d := o.when[len(o.when)-1]
		check(t, d >= 2*time.Second && d <= 2100*time.Millisecond, "20 tokens at 10/s took %v", d)
		check(t, stolen <= 1, "others were given %d tokens while these waited", stolen)
	})
}

// Ten thousand requests that wait for one key are served in order, each when its token exists, by
// its caller's goroutine, and together they make as many calls as one would.
func TestACrowdOfWaitersIsPacedByTokens(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		crowd int
		slack time.Duration // a token may lie in the bucket for half a Target
		calls int           // at most: one each half Target, or for each token where those are rarer
	}{
		// A token at a time: each waiter is served at a moment of its own, so the order is strict.
		{hybrid.PerSecond(10).WithBurst(1), 1_000, 13 * time.Millisecond, 1_000 + 10},
		{hybrid.PerSecond(10), 50, 50 * time.Millisecond, 50 + 18},
		{hybrid.PerSecond(1_000), 10_000, 51 * time.Millisecond, 200 + 10}, // some fifty at a time
		{hybrid.PerSecond(10_000), 10_000, 51 * time.Millisecond, 20 + 10}, // all in a second
		{hybrid.PerMinute(1), 3, time.Millisecond, 3 + 602},                // and one each three quarters of a TTL
	} {
		bubbleOf(t, c.limit, func(t *world) {
			key := t.drained(of(c.limit)).Key("k")
			_, before := t.counts()
			o, others := newOrder(c.crowd), runtime.NumGoroutine()
			wait := inTurn(c.crowd, func(i int) {
				noErr(t, key.Wait(t.Context()))
				o.add(i)
			})
			// Count while all sleep: in between the count is no more than a guess.
			most := runtime.NumGoroutine() - others
			wait()
			o.check(t)
			for i, at := range o.when {
				due := time.Duration(i+1) * c.limit.Per / time.Duration(c.limit.Tokens)
				must(t, at-due <= c.slack, "%d was served %v after its token, want %v at most", i, at-due, c.slack)
			}
			check(t, most <= c.crowd+20, "%d goroutines for %d waiters", most, c.crowd)
			_, after := t.counts()
			check(t, after-before <= c.calls, "%d calls, want %d at most", after-before, c.calls)
		})
	}
}

// A large n is gathered over several grants while another process draws as much as it can: half of
// the time it has all after the two seconds that its half of the rate takes. (The rest depends on
// whose calls come first. One wait in ten takes more than 2.5 s, one in a thousand 8 s.)
func TestALargeWaitIsGatheredAgainstOthers(t *testing.T) {
	const runs = 31
	var waits []time.Duration
	others, waited := int64(0), time.Duration(0)
	for range runs {
		bubble(t, func(t *world) {
			other, l := t.process(hybrid.PerSecond(100)), t.process(hybrid.PerSecond(100))
			var ended atomic.Bool
			wait := background(func() {
				for ; !ended.Load(); time.Sleep(2 * time.Millisecond) {
					other.Allow("k")
				}
			})
			time.Sleep(5 * time.Second)
			before := other.Stats().Admitted
			d := took(func() { noErr(t, l.Key("k").WaitN(t.Context(), 100)) })
			others += other.Stats().Admitted - before
			ended.Store(true)
			wait()
			check(t, d < 15*time.Second, "waited %v for 100 tokens at half of 100/s", d)
			waits = append(waits, d)
			waited += d
		})
	}
	slices.Sort(waits)
	share := float64(others) / waited.Seconds() // of one run it is a matter of whose call comes first
	check(t, share >= 45, "the other process got %.0f/s", share)
	check(t, waits[runs/2] < 2100*time.Millisecond, "100 tokens at half of 100/s take %v", waits)
}

// waitFor waits for n tokens of "k", at most d, and says how long it took.
func waitFor(t *world, l *hybrid.Limiter, d time.Duration, n int64) (spent time.Duration, err error) {
	spent = took(func() { err = l.Key("k").WaitN(within(t, d), n) })
	return spent, err
}

// tooLate checks that a wait for n tokens, at most d, is turned away at once.
func tooLate(t *world, l *hybrid.Limiter, d time.Duration, n int64) {
	t.Helper()
	spent, err := waitFor(t, l, d, n)
	isErr(t, err, hybrid.ErrWouldExceedDeadline, context.DeadlineExceeded)
	check(t, spent < d && (!t.virtual() || spent == 0), "%d tokens in %v: told after %v", n, d, spent)
}

// A wait whose tokens can be there in time is not turned away, whatever this process heard before.
func TestADeadlineThatCanBeMetIsMet(t *testing.T) {
	const soon = 10 * time.Second
	reset := func(l *hybrid.Limiter) error { return l.Reset(context.Background(), "k") }
	raise := func(l *hybrid.Limiter) error {
		return l.SetLimits(context.Background(), "k", hybrid.PerSecond(1000))
	}
	refund := func(l *hybrid.Limiter) error { l.Key("k").Refund(5); return nil }
	// own is a process that found the bucket empty and did something about it, and others one that
	// has not heard of what another one did since.
	own := func(change func(*hybrid.Limiter) error) func(t *world) *hybrid.Limiter {
		return func(t *world) *hybrid.Limiter {
			l := t.drained(of(hourly))
			noErr(t, change(l))
			return l
		}
	}
	others := func(change func(*hybrid.Limiter) error) func(t *world) *hybrid.Limiter {
		return func(t *world) *hybrid.Limiter {
			other := t.process(hourly)
			other.AllowN("k", 9)
			l := t.drained(of(hourly))
			time.Sleep(time.Minute)
			noErr(t, change(other))
			time.Sleep(10 * time.Minute)
			return l
		}
	}
	for name, c := range map[string]struct {
		deadline time.Duration
		given    func(t *world) *hybrid.Limiter
	}{
		"this process has reset the bucket":    {soon, own(reset)},
		"a refund of its own is on its way":    {soon, own(refund)},
		"another process has reset it":         {soon, others(reset)},
		"another process has raised the limit": {soon, others(raise)},
		"another process has refunded":         {soon, others(refund)},
		"a cold key, whose token is there in a second": {30 * time.Second, func(t *world) *hybrid.Limiter {
			t.drained(of(hybrid.PerMinute(1)))
			time.Sleep(59 * time.Second)
			return t.process(hybrid.PerMinute(1))
		}},
		"one that was just drawn from, in 10 ms": {70 * time.Millisecond, func(t *world) *hybrid.Limiter {
			l := t.drained(of(hybrid.PerSecond(10)))
			time.Sleep(190 * time.Millisecond)
			l.Allow("k")
			return l
		}},
		"beyond what a clock can count": {math.MaxInt64, func(t *world) *hybrid.Limiter {
			l := t.drained(of(hybrid.PerSecond(10)))
			ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			defer cancel()
			noErr(t, l.Wait(ctx, "k"))
			return l
		}},
	} {
		bubbleOf(t, name, func(t *world) {
			d, err := waitFor(t, c.given(t), c.deadline, 1)
			check(t, err == nil, "%v after %v; the bucket has %d", err, d, t.state("k").Levels[0])
		})
	}
}

// The deadline is judged at once, by what the bucket said.
func TestAWaitThatCannotBeInTimeFailsAtOnce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.drained(of(hybrid.PerSecond(10)))
		// 5 tokens take half a second.
		tooLate(t, l, 499*time.Millisecond, 5)
		d, err := waitFor(t, l, 501*time.Millisecond, 5)
		check(t, err == nil && d == 500*time.Millisecond, "%v after %v", err, d)
		// Behind a wait for 5, one token comes after 6.
		wait := background(func() { waitFor(t, l, time.Second, 5) })
		synctest.Wait()
		tooLate(t, l, 550*time.Millisecond, 1)
		wait()
		// A process that the store has only just told judges likewise.
		tooLate(t, t.process(hybrid.PerSecond(10)), 550*time.Millisecond, 10)
		// Failed waits have cost nothing.
		equal(t, l.Stats().Admitted, 20, "admitted, want the burst and two waits of 5")
	})
	// Four waiters of 85 years each are in front: the sum is more than a time.Duration holds.
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerHour(1).WithBurst(750_000))
		must(t, l.AllowN("k", 750_000), "denied")
		ctx, cancel := context.WithCancel(t.Context())
		wait := inTurn(4, func(int) { l.Key("k").WaitN(ctx, 750_000) })
		tooLate(t, l, time.Hour, 1)
		cancel()
		wait()
	})
}

func TestADeadlineIsJudgedByWhatIsThere(t *testing.T) {
	bubbleOf(t, "a refused wait leaves its tokens to the next", func(t *world) {
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		first := t.start(cfg)
		first.AllowN("k", 5)
		first.Shutdown(context.Background())
		time.Sleep(time.Second)
		t.every(verdict{delay: 20 * time.Millisecond})
		l := t.start(cfg)
		wait := inTurn(2, func(i int) {
			if i == 0 {
				l.Allow("k")
			} else {
				_, _ = waitFor(t, l, 10*time.Second, 10)
			}
		})
		d, err := waitFor(t, l, 10*time.Second, 1)
		check(t, err == nil, "Wait(1) with tokens in the pool: %v after %v; %+v", err, d, l.Stats())
		wait()
	})
	bubbleOf(t, "a reply that was made before a reset, and comes after it, is no judgement", func(t *world) {
		t.drained(of(hourly))
		l := t.process(hourly)
		t.every(verdict{delay: 20 * time.Millisecond})
		wait := background(func() {
			d, err := waitFor(t, l, 10*time.Second, 1)
			check(t, err == nil, "Reset before the reply: %v after %v", err, d)
		})
		synctest.Wait()
		noErr(t, l.Reset(t.Context(), "k"))
		wait()
	})
}

// Redisson: tryAcquire(1, 1, SECONDS) is false after a second at most. Here the wait cannot be refused
// in advance, because the store does not answer.
func TestPeerABoundedWaitEndsFalseAndOnTime(t *testing.T) {
	everywhere(t, func(t *world) {
		const patience = 100 * time.Millisecond
		release := make(chan struct{})
		t.every(verdict{until: release})
		l := t.start(hybrid.Config{Limits: limits(hourly), CallTimeout: 30 * time.Second})
		for _, ask := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return l.Key("k").WaitN(ctx, 3) },
			func(ctx context.Context) error {
				r, err := l.Take(ctx, "k", 2)
				check(t, !r.OK, "Take: admitted")
				return err
			},
		} {
			t.lasts(patience, patience, func() { isErr(t, ask(within(t, patience)), context.DeadlineExceeded) })
		}
		// Allow ends with CallTimeout. (The call is given up a little before, for Policy.Fallback.)
		impatient := t.start(hybrid.Config{Limits: limits(hourly), CallTimeout: patience, Policy: denying})
		t.lasts(patience*15/16, patience, func() { check(t, !impatient.Allow("other"), "Allow: admitted") })
		// Tokens in replies to ended waits go back.
		t.setJudge(nil)
		close(release)
		t.eventually("all 10 in the bucket", "k", func(level int64) bool { return level == 10 })
		check(t, l.Stats().Admitted == 0, "%+v", l.Stats())
		// An ended context never takes anything, and the error wraps its cause.
		caused, cancel := context.WithCancelCause(t.Context())
		cancel(hybrid.ErrInvalidN)
		_, err := l.Take(caused, "k", 1)
		isErr(t, err, context.Canceled, hybrid.ErrInvalidN)
		isErr(t, l.Wait(caused, "k"), context.Canceled, hybrid.ErrInvalidN)
		_, err = l.Key("k").TakeUpTo(caused, 1)
		isErr(t, err, context.Canceled, hybrid.ErrInvalidN)
	})
}

// minutely is 60 in any minute, whose cells are a second long.
var minutely = hybrid.Sliding(60, time.Minute)

// A wait that must fail is refused by the last answer, without a call.
func TestARefusedWaitForAWindowMakesNoCall(t *testing.T) {
	for _, limit := range []hybrid.Limit{minutely, hybrid.Calendar(60, time.Hour, 0)} {
		bubbleOf(t, limit, func(t *world) {
			l := t.process(limit)
			for range 12 {
				check(t, l.AllowN("k", 5), "5 of 60 are denied")
			}
			_, calls := t.during(func() {
				isErr(t, l.Wait(within(t, 10*time.Second), "k"), hybrid.ErrWouldExceedDeadline)
			})
			equal(t, calls, 0, "calls")
		})
	}
}

// A quota begins anew at its boundary in UTC, whatever was used before it, and says when that is.
func TestACalendarBeginsAnewAtItsBoundary(t *testing.T) {
	bubble(t, func(t *world) {
		// given 20 a day from 16:00 UTC, late in such a day
		const day = 24 * time.Hour
		l := t.process(hybrid.Calendar(20, day, 16*time.Hour))
		now := time.Now().UTC()
		boundary := now.Truncate(day).Add(16 * time.Hour)
		if !boundary.After(now) {
			boundary = boundary.Add(day)
		}
		time.Sleep(time.Until(boundary.Add(-30 * time.Second)))
		// when it is used up
		equal(t, drain(l, "k"), 20, "of the first day")
		r, err := l.Take(t.Context(), "k", 15)
		// then all of it is back at the boundary, and not sooner
		left := time.Until(boundary)
		check(t, err == nil && !r.OK, "%+v, %v", r, err)
		check(t, r.RetryAfter > left-time.Second && r.RetryAfter <= left+time.Second,
			"RetryAfter %v of %v", r.RetryAfter, left)
		equal(t, r.ResetAfter.Round(time.Second), left.Round(time.Second), "until all of it is there")
		isErr(t, l.Wait(within(t, 10*time.Second), "k"), hybrid.ErrWouldExceedDeadline)
		noErr(t, l.Key("k").WaitN(within(t, time.Minute), 15))
		check(t, !time.Now().Before(boundary) && time.Since(boundary) < time.Second,
			"served at %v, of %v", time.Now(), boundary)
		equal(t, drain(l, "k"), 5, "left of the second day")
	})
}

// While the store is away each process has its share of what a window had left, rounded down:
// together no more than the window, and a share of less than one token is none.
func TestLocalSharesOfAWindowAddUp(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.Sliding(40, time.Minute), hybrid.Calendar(40, time.Minute, 0), hybrid.Sliding(2, time.Minute),
	} {
		bubbleOf(t, limit, func(t *world) {
			fleet, from := t.fleet(3, by(hybrid.Policy{}, limit)), time.Now()
			total := int64(0)
			for range 5 { // all are heard of as active
				for _, l := range fleet {
					r, _ := l.Key("k").TakeUpTo(t.Context(), 1)
					total += r.Taken
				}
				time.Sleep(time.Second) // so seldom that none leases
			}
			t.every(away)
			time.Sleep(time.Second) // a denial that was heard before is over
			for i, l := range fleet {
				r, err := l.Take(t.Context(), "k", 1) // may find out that the store is away
				n := r.Taken + drain(l, "k")
				total += n
				check(t, (n > 0) == (limit.Tokens > 2), "process %d is admitted %d; %v", i, n, err)
			}
			// Each rounds down, and the first has not heard what the others drew last.
			check(t, total <= limit.Tokens+1 && total > limit.Tokens-3, "%d admitted of %v", total, limit)
			for _, l := range fleet {
				if limit.Tokens == 2 {
					isErr(t, l.Wait(within(t, time.Minute), "k"), context.DeadlineExceeded)
				} else {
					t.lasts(0, 62*time.Second, func() { noErr(t, l.Wait(within(t, 2*time.Minute), "k")) })
				}
			}
			waited := time.Since(from)
			check(t, limit.Tokens == 2 || waited >= 58*time.Second, "a window is over after %v", waited)
		})
	}
}
