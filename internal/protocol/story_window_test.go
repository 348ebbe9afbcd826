package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of sliding windows and calendars: docs/protocol.md section 3.10. Each is a schedule that
// breaks the promise without the rule it is about, or tells what a caller is told.

const milli = time.Millisecond

// windowAt is 10 tokens in 60 ms, whose cells are 1 ms long, at a moment of a cell.
func windowAt(t *testing.T, inCell int64) (s *scene, a, b *holder) {
	s, a, b = pair(t, lease.Sliding(10, 60*milli), 20*milli)
	s.now = 5_000_000 + inCell
	return s, a, b
}

// at has time pass up to us microseconds after 5 s, where a cell of every window begins, and a period of
// every calendar here.
func (s *scene) at(us int64) { s.now = 5_000_000 + us }

func TestATokenCountsUntilItsWholeCellIsOlderThanTheWindow(t *testing.T) {
	for _, inCell := range []int64{0, 1, 500, 999} {
		// given 10 that were admitted in one microsecond of a cell
		s, a, b := windowAt(t, inCell)
		n := s.draws(a, 12)
		testkit.Check(t, n == 10, "%d µs into a cell: %d of 10 admitted", inCell, n)
		// when the window has passed, but not all of the cell is older
		s.at(60_999)
		g := s.calls(b, ask{Want: 1, Waiting: 1, Need: 1})
		testkit.Check(t, g.Waited == 0 && g.RetryAfter == time.Microsecond && g.Next[0] == time.Microsecond,
			"%d µs into a cell: just before: %+v", inCell, g)
		// then there are all again a microsecond later
		s.at(61_000)
		n = s.draws(b, 12)
		testkit.Check(t, n == 10, "%d µs into a cell: %d admitted after the window", inCell, n)
		s.audits()
	}
}

func TestALeaseThatRunsOutIsChargedWhenItEnds(t *testing.T) {
	// given 10 tokens leased to a holder that spends them in the last microsecond of its lease and
	// is never heard of again
	s, a, b := windowAt(t, 0)
	s.calls(a, ask{Want: 10})
	s.now = int64(a.Deadline())/1000 - 1
	spent := s.now
	testkit.Must(t, s.spends(a) == 10, "the lease was shorter than it said")
	// when others ask every half millisecond for two windows
	first := int64(0)
	for s.now < spent+120_000 {
		s.now += 500
		if n := s.draws(b, 10); n > 0 && first == 0 {
			first = s.now
		}
		s.audits()
	}
	// then the tokens come again a window after the lease has ended, and not before
	testkit.Check(t, first >= spent+60_000 && first <= spent+60_000+5_000, "they came again after %d µs",
		first-spent)
}

func TestReturnedTokensWereNotSpent(t *testing.T) {
	// given 10 tokens leased, 3 of them spent
	s, a, b := windowAt(t, 0)
	s.calls(a, ask{Want: 10})
	a.Pool.TakeN(3)
	s.meter.admit(s.now, 3)
	// when 4 of the rest are given back
	s.now += 100
	s.calls(a, ask{Return: func(int64) int64 { return 4 }})
	// then these are there at once, and the 3 are charged
	n := s.draws(b, 10)
	testkit.Check(t, n == 4 && s.bucket.windowOf(0).sum == 7, "%d admitted, %d charged", n,
		s.bucket.windowOf(0).sum)
	s.audits()
}

func TestAVoidReportIsChargedOnceWhenTheOldEntryEnds(t *testing.T) {
	// given a holder with 6 tokens, which spends them
	s, a, b := windowAt(t, 0)
	s.calls(a, ask{Want: 6})
	s.spends(a)
	// when another process of its name reports what it cannot have
	s.now += 1000
	g := s.executes(lease.Request{Holder: "a", Seq: s.seq + 1, Config: s.config, Weight: 1, Remaining: 9})
	testkit.Must(t, g.Void, "the bucket knows a holder with more than it was given")
	// then nothing is charged, and they stay in the ledger
	testkit.Check(t, s.bucket.windowOf(0).sum == 0 && s.bucket.Ledger() == 6, "%d charged, %d in the ledger",
		s.bucket.windowOf(0).sum, s.bucket.Ledger())
	testkit.Check(t, s.draws(b, 10) == 4, "more or less than what was left is admitted")
	// and they are charged, once, when its entry ends
	s.now += 30_000
	s.calls(b, ask{})
	testkit.Check(t, s.bucket.windowOf(0).sum == 10 && s.bucket.Ledger() == 0, "%d charged, %d in the ledger",
		s.bucket.windowOf(0).sum, s.bucket.Ledger())
	s.audits()
}

func TestUnusedTokensLeaveTheOldestCells(t *testing.T) {
	// given 5 drawn early for requests that gave up, and 5 admitted late
	s, a, b := windowAt(t, 0)
	s.calls(a, ask{})
	s.now++
	g := s.executes(s.opens(a, ask{Want: 5, Waiting: 5}))
	s.at(30_000)
	s.draws(b, 5)
	s.givesUp(a, g)
	s.calls(a, ask{})
	// when they come back, and are admitted
	s.calls(a, ask{})
	n := s.draws(b, 10)
	testkit.Check(t, n == 5, "%d came back of 5", n)
	// then nothing more is there when the cell of the draw is dropped
	s.at(61_000)
	n = s.draws(b, 10)
	testkit.Check(t, n == 0, "%d admitted beside 10 that are not a window old", n)
	s.audits()
}

func TestADebtTakesWhatIsThereAndAChargeMore(t *testing.T) {
	// given 4 of 10 that are left
	s, a, _ := windowAt(t, 0)
	s.draws(a, 6)
	// when 7 are owed by a fallback, then 3 were used beyond what was reserved
	g := s.executes(lease.Request{Holder: "c", Seq: 1, Config: s.config, Late: oneLate(lease.LateDebt, 7), Weight: 1})
	testkit.Check(t, g.Levels[0] == 0, "after a debt of 7: %d", g.Levels[0])
	g = s.executes(lease.Request{Holder: "c", Seq: 2, Config: s.config, Late: oneLate(lease.LateCharge, 3), Weight: 1, Need: 1, Want: 1})
	testkit.Check(t, g.Levels[0] == -3 && g.RetryAfter == 61*milli, "after a charge of 3: %d, %v", g.Levels[0],
		g.RetryAfter)
	// then nothing is left of either after the window
	s.at(61_000)
	g = s.executes(lease.Request{Holder: "c", Seq: 3, Config: s.config, Weight: 1})
	testkit.Check(t, g.Levels[0] == 10, "after the window: %d", g.Levels[0])
}

func TestRetryAfterIsWhenEnoughWillHaveBeenDropped(t *testing.T) {
	// given 4, 3 and 3 tokens admitted in three cells
	s, a, _ := windowAt(t, 0)
	for i, n := range []int64{4, 3, 3} {
		s.at(int64(i) * 10_000)
		s.draws(a, n)
	}
	// when more are needed
	for _, c := range []struct {
		need  int64
		after time.Duration
	}{{1, 61*milli - 20*milli}, {4, 61*milli - 20*milli}, {5, 71*milli - 20*milli}, {8, 81*milli - 20*milli},
		{10, 81*milli - 20*milli}} {
		g := s.executes(s.opens(s.holder(fmt.Sprint(c.need)), ask{Want: c.need, Need: c.need, Waiting: c.need}))
		// then they are told when the oldest of them will have gone
		testkit.Check(t, g.Granted == 0 && g.RetryAfter == c.after, "%d: granted %d, retry after %v, want %v",
			c.need,
			g.Granted, g.RetryAfter, c.after)
	}
}

func TestAWindowThatIsRaisedOrLoweredKeepsWhatIsLeased(t *testing.T) {
	for n, left := range map[int64]int64{12: 3, 5: -4} {
		// given 7 of 10 that were used, and 2 that are leased
		s, a, b := pair(t, lease.Sliding(10, 60*milli), 20*milli)
		s.at(10_500)
		s.draws(a, 7)
		s.now += 100
		s.calls(b, ask{Want: 2})
		// when the limit changes, then these are not there
		s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.Sliding(n, 60*milli)}, 1
		g := s.calls(a, ask{})
		testkit.Check(t, g.Levels[0] == left, "%d left of %d, want %d", g.Levels[0], n, left)
	}
}

func TestALostWindowThatStartsEmptyIsUsedUp(t *testing.T) {
	for _, promoted := range []bool{false, true} {
		// given a window of 10 that starts empty, all leased
		s, a, b := windowAt(t, 0)
		s.config.StartEmpty = true
		s.calls(b, ask{})
		testkit.Check(t, s.draws(a, 10) == 0, "a bucket that starts empty has tokens")
		s.at(70_000)
		s.calls(b, ask{})
		replica := s.bucket.Clone()
		s.calls(a, ask{Want: 10})
		testkit.Must(t, a.Pool.Held() == 10, "%d leased", a.Pool.Held())
		s.calls(b, ask{})
		// when it is lost, or a replica is promoted that knows nothing of the lease, as b can tell
		if s.bucket = (Bucket{}); promoted {
			s.bucket = *replica
		}
		lost := s.now
		s.calls(b, ask{})
		s.spends(a)
		// then nothing is granted until a window has passed
		for s.now < lost+60_000 {
			testkit.Must(t, s.draws(b, 10) == 0, "something was there %d µs after the loss", s.now-lost)
			s.now += 500
		}
		s.at(lost + 62_000)
		testkit.Check(t, s.draws(b, 10) == 10, "not all came back")
	}
}

func TestLocalSharesOfAWindowAreNoMoreThanTheWindow(t *testing.T) {
	for _, l := range []lease.Limit{lease.Sliding(10, time.Minute), lease.Sliding(1, time.Minute),
		lease.Calendar(1000, 24*time.Hour, time.Hour)} {
		for _, weights := range [][]int64{{1}, {1, 1, 1}, {1, 2, 4}, {3, 3, 5, 256}, {1, 1, 1, 1, 1, 1, 1, 1, 1,
			1, 1}} {
			// given processes that serve by themselves, each by its weight
			active, total := int64(0), int64(0)
			for _, w := range weights {
				active += w
			}
			for _, w := range weights {
				total += part{weight: w, active: active}.burst(l)
			}
			// and all of them are the window together, but for what rounding down leaves
			testkit.Check(t, total <= l.Tokens && total > l.Tokens-int64(len(weights)), "%v by weights %v: %d", l,
				weights,
				total)
		}
	}
}

func TestAWindowIsNotTakenForACalendarOfItsLength(t *testing.T) {
	// given a sliding window of which 7 are used
	s, a, _ := pair(t, lease.Sliding(10, time.Hour), 20*milli)
	s.at(10_500)
	s.draws(a, 7)
	// when a newer version raises it and puts a calendar of the same length before it
	s.config.Limits, s.config.Version.Deploy = []lease.Limit{lease.Calendar(50, time.Hour, 0),
		lease.Sliding(20, time.Hour)}, 1
	g := s.calls(a, ask{})
	// then what was used of the window is used of the window
	testkit.Check(t, g.Levels[0] == 50 && g.Levels[1] == 13,
		"%d of the calendar and %d of the window are left, want 50 and 13",
		g.Levels[0], g.Levels[1])
}
