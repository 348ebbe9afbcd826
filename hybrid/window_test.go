package hybrid_test

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// minutely is 60 in any minute, whose cells are a second long.
var minutely = hybrid.Sliding(60, time.Minute)

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
