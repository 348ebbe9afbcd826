package hybrid_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// minutely is 60 in any minute, whose cells are a second long.
var minutely = hybrid.Sliding(60, time.Minute)

// Processes that ask at random, in bursts and pauses, are never admitted more often than the window
// allows, and get most of what it does.
func TestASlidingWindowHoldsForAFleet(t *testing.T) {
	seeds(t, testkit.PlainOrRace(10, 3), func(t *world, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const n = 50
		limit := hybrid.Sliding(n, 5*time.Second)
		bound, fleet, from := newMeter(limit), t.fleet(4, of(limit)), time.Now()
		for time.Since(from) < 30*time.Second {
			l := fleet[rng.IntN(len(fleet))]
			for range 1 + rng.IntN(40) {
				bound.admitIf(l.Allow("k"))
			}
			time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		}
		bound.check(t)
		check(t, bound.sum >= 5*n*8/10, "only %d in 30 s", bound.sum)
	})
}

// A denial says when the oldest cell is dropped, and an answer when all of them are at the latest.
func TestASlidingWindowSaysWhenItHasTokensAgain(t *testing.T) {
	bubble(t, func(t *world) {
		// given a window that was used up in two steps, 20 s apart
		l := t.process(minutely)
		check(t, l.AllowN("k", 10), "10 of 60 are denied")
		time.Sleep(20 * time.Second)
		r, err := l.Take(t.Context(), "k", 50)
		must(t, err == nil && r.OK && r.Remaining == 0, "50 more: %+v, %v", r, err)
		equal(t, r.ResetAfter.Round(time.Second), 61*time.Second, "until all of it is there")
		// when one more is asked for
		r, err = l.Take(t.Context(), "k", 1)
		// then it waits for the first 10 to be a minute old, and at most a cell more
		check(t, err == nil && !r.OK && r.Remaining == 0, "%+v, %v", r, err)
		check(t, r.RetryAfter > 40*time.Second && r.RetryAfter <= 41*time.Second, "RetryAfter %v", r.RetryAfter)
		time.Sleep(r.RetryAfter + time.Second)
		check(t, drain(l, "k") == 10, "not 10 after RetryAfter")
		// and then for the other 50
		r, _ = l.Take(t.Context(), "k", 1)
		check(t, r.RetryAfter > 18*time.Second && r.RetryAfter <= 20*time.Second, "RetryAfter %v", r.RetryAfter)
	})
}

// Wait sleeps until the window has the tokens and makes few calls meanwhile; a deadline before that
// is refused at once.
func TestWaitIsPacedByDroppedCells(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.drained(of(minutely))
		time.Sleep(10 * time.Second)
		t.lasts(0, time.Second, func() {
			isErr(t, l.WaitN(within(t, 45*time.Second), "k", 5), hybrid.ErrWouldExceedDeadline)
		})
		_, calls := t.during(func() {
			t.lasts(49*time.Second, 52*time.Second, func() { noErr(t, l.WaitN(within(t, time.Minute), "k", 5)) })
		})
		// A lease call each 3/4 T at most, so that changed limits are noticed.
		check(t, calls <= 200, "%d calls", calls)
	})
}

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
		noErr(t, l.WaitN(within(t, time.Minute), "k", 15))
		check(t, !time.Now().Before(boundary) && time.Since(boundary) < time.Second,
			"served at %v, of %v", time.Now(), boundary)
		equal(t, drain(l, "k"), 5, "left of the second day")
	})
}

// A refund makes room for as many, at once; Peek tells. It is taken from the oldest cell, so that
// nothing comes back later than what was spent.
func TestARefundFreesTheOldest(t *testing.T) {
	bubble(t, func(t *world) {
		// given a window that was used up in two steps, 20 s apart
		l := t.process(minutely)
		check(t, l.AllowN("k", 30), "30 of 60 are denied")
		time.Sleep(20 * time.Second)
		check(t, l.AllowN("k", 30), "30 more are denied")
		// when 7 are refunded
		l.Refund("k", 7)
		time.Sleep(time.Second)
		// then they are there
		p, err := l.Peek(t.Context(), "k")
		check(t, err == nil && p.Remaining == 7, "Peek says %+v, %v", p, err)
		equal(t, drain(l, "k"), 7, "after the refund")
		// and when the first step is a minute old, 7 fewer of it come back
		time.Sleep(41 * time.Second)
		equal(t, drain(l, "k"), 23, "after the minute of the first 30")
	})
}

// Used tokens stay used when the limits change their kind.
func TestWhatWasUsedStaysUsedWhateverTheKind(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerHour(100))
		check(t, l.AllowN("k", 60), "60 of 100 are denied")
		sets := func(limit hybrid.Limit, left int64) {
			t.Helper()
			noErr(t, l.SetLimits(t.Context(), "k", limit))
			limitsAre(t, l, "k", limit)
			p, err := l.Peek(t.Context(), "k")
			check(t, err == nil && p.Remaining == left, "%v has %d left, want %d, %v", limit, p.Remaining, left, err)
		}
		sets(hybrid.Sliding(100, time.Hour), 40)
		sets(hybrid.Sliding(80, time.Hour), 20)
		sets(hybrid.Sliding(100, 2*time.Hour), 40)
		sets(hybrid.Calendar(100, time.Hour, 0), 40)
		sets(hybrid.Calendar(90, 24*time.Hour, 0), 30)
		equal(t, drain(l, "k"), 30, "of 90")
		sets(hybrid.Sliding(100, time.Minute), 10)
		sets(hybrid.PerHour(100), 10)
	})
}

// While the store is away each process has its share of what a window had left, rounded down:
// together no more than the window, and a share of less than one token is none.
func TestLocalSharesOfAWindowAddUp(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.Sliding(40, time.Minute), hybrid.Calendar(40, time.Minute, 0), hybrid.Sliding(2, time.Minute),
	} {
		bubbleOf(t, limit, func(t *world) {
			fleet, from := t.fleet(3, by(hybrid.Policy{MaxBatch: 1}, limit)), time.Now()
			total := int64(0)
			for range 5 { // all are heard of as active
				for _, l := range fleet {
					r, _ := l.TakeUpTo(t.Context(), "k", 1)
					total += r.Taken
				}
				time.Sleep(20 * time.Millisecond)
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
					isErr(t, l.Wait(within(t, time.Hour), "k"), hybrid.ErrUnavailable)
				} else {
					t.lasts(0, 62*time.Second, func() { noErr(t, l.Wait(within(t, 2*time.Minute), "k")) })
				}
			}
			waited := time.Since(from)
			check(t, limit.Tokens == 2 || waited >= 58*time.Second, "a window is over after %v", waited)
		})
	}
}

// The other fallbacks do with windows what they do with buckets, and what AllowAll has admitted
// counts once the store is back.
func TestFallbacksWithAWindow(t *testing.T) {
	bubbleOf(t, "deny", func(t *world) {
		l := t.start(by(denying, minutely))
		check(t, l.Allow("k"), "denied")
		t.every(away)
		time.Sleep(time.Second)
		r, err := l.Take(t.Context(), "k", 1)
		check(t, !r.OK && r.RetryAfter > 0, "%+v, %v", r, err)
	})
	bubbleOf(t, "allow all", func(t *world) {
		l := t.start(by(hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, minutely))
		check(t, l.Allow("k"), "denied")
		t.every(away)
		time.Sleep(time.Second)
		equal(t, admits(40, 0, func() bool { return l.Allow("k") }), 40, "admitted while the store was away")
		t.every(verdict{})
		t.soon(5*time.Second, func() bool {
			l.Allow("k") // without a request there would be no probe
			p, err := l.Peek(t.Context(), "k")
			return err == nil && p.Remaining < 20
		})
		// A node that has just come back takes few calls at first; meanwhile the fallback still decides.
		leased := admits(200, 10*time.Millisecond, func() bool {
			r, err := l.Take(t.Context(), "k", 1)
			noErr(t, err)
			return r.OK && r.Source != hybrid.SourceFallback
		})
		check(t, leased < 20, "%d more: the debt is forgotten", leased)
	})
}

// A reservation of a window is settled like any other.
func TestAReservationOfAWindow(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(minutely)
		r, err := l.Reserve(t.Context(), "k", 30)
		noErr(t, err)
		noErr(t, r.Settle(50))
		time.Sleep(time.Second)
		equal(t, drain(l, "k"), 10, "left after 50")
		_, err = l.Take(t.Context(), "k", 61)
		check(t, errors.Is(err, hybrid.ErrExceedsBurst), "%v", err)
	})
}
