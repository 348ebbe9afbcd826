package rival

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// someWindows are those of the random tests.
var someWindows = [][]lease.Limit{
	{lease.Sliding(5, 500*time.Millisecond)},
	{lease.Calendar(7, 700*time.Millisecond, 300*time.Millisecond)},
	{lease.Sliding(9, time.Second), tenPerSecond, lease.Calendar(90, 10*time.Second, 0)},
}

// TestTheCentralLimiterOfAWindowAdmitsAllThatTheDefinitionDoes: what was admitted in the last
// window, or since the boundary, and not a token less.
func TestTheCentralLimiterOfAWindowAdmitsAllThatTheDefinitionDoes(t *testing.T) {
	rng := testkit.Rand(t)
	for range 300 {
		// Given a window or a calendar, from which requests take and to which some give back,
		w, n := 1+rng.Int64N(50), 1+rng.Int64N(9)
		l := lease.Sliding(n, time.Duration(w)*time.Millisecond)
		if rng.IntN(2) == 0 {
			l = lease.Calendar(n, l.Per, time.Duration(rng.Int64N(w))*time.Millisecond)
		}
		c, err := NewCentral([]lease.Limit{l})
		testkit.NoErr(t, err)
		var all []admission // each of one token, in order of time
		for now := int64(0); now < 1000*ms; now += rng.Int64N(2+w/2) * ms {
			// when all that is in force at a time is looked at one by one,
			begins := now - w*ms + 1
			if l.Kind == lease.KindCalendar { // whose periods begin at whole milliseconds
				for begins += ms - 1; (begins-l.Offset.Microseconds())%(w*ms) != 0; {
					begins += ms
				}
			}
			all = slices.DeleteFunc(all, func(a admission) bool { return a.at < begins })
			want := 1 + rng.Int64N(4)
			// then a request is admitted if it fits, and not otherwise.
			fits := int64(len(all))+want <= n
			if got := c.Take(now, want); got != fits {
				t.Fatalf("%v at %d us: %d tokens admitted: %v, want %v with %d in force", l, now, want, got, fits,
					len(all))
			}
			if fits {
				all = append(all, slices.Repeat([]admission{{now, 1}}, int(want))...)
			}
			switch rng.IntN(6) {
			case 0: // more than was asked for, however little there is
				c.Settle(now, 2)
				all = append(all, admission{now, 1}, admission{now, 1})
			case 1: // less: the oldest comes back
				c.Settle(now, -2)
				all = all[min(2, len(all)):]
			}
		}
	}
}

func TestEveryAlgorithmHoldsAWindowOrSaysThatItKnowsBucketsOnly(t *testing.T) {
	for _, name := range Names() {
		for _, limits := range someWindows {
			a, err := New(name, fleetOf(1, limits...))
			if name == "settle_afterwards" {
				testkit.Check(t, errors.Is(err, ErrLimit) && strings.Contains(err.Error(), "only token "+
					"buckets"), "%v",
					err)
				continue
			}
			testkit.NoErr(t, err)
			quota := int64(math.MaxInt64)
			for _, l := range limits {
				quota = min(quota, l.Capacity())
			}
			// When a thousand ask at once, then the quota is admitted, and again after a long rest.
			admits(t, a, 77*second, 0, quota)
			admits(t, a, 77*second, 0, 0)
			admits(t, a, 90_000*second, 0, quota)
			testkit.Check(t, !a.Decide(180_000*second, 0, 0, quota+1) && a.Decide(180_000*second, 0, 0, quota),
				"%s: a request for %d was not admitted, or one for more was", name, quota)
		}
	}
}

// TestEachAlgorithmAtABoundary: everybody comes just before a fixed window ends, and again
// just after.
func TestEachAlgorithmAtABoundary(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  lease.Limit
		before int64 // in the last microsecond
		after  int64 // in the first
		most   int64 // that a second before the next boundary adds
		over   int64
	}{
		{"central", lease.Sliding(100, time.Minute), 100, 0, 0, 0},
		{"sliding_log", lease.Sliding(100, time.Minute), 100, 0, 0, 0},
		{"fixed_window", lease.Sliding(100, time.Minute), 100, 100, 0, 100},
		{oneCell, lease.Sliding(100, time.Minute), 100, 0, 98, 98},
		{"central", lease.Calendar(100, time.Minute, 0), 100, 100, 0, 0},
		{"fixed_window", lease.Calendar(100, time.Minute, 0), 100, 100, 0, 0},
		{"sliding_log", lease.Calendar(100, time.Minute, 0), 100, 0, 0, 0},
	} {
		a, m := start(t, c.name, fleetOf(1, c.limit)), audit.NewMeter(audit.Of(c.limit, 0))
		for _, x := range []struct{ at, want int64 }{{60*second - 1, c.before}, {60 * second, c.after},
			{119 * second, c.most}} {
			got := burst(a, x.at, 0)
			m.Admit(x.at*1000, got)
			testkit.Check(t, got == x.want, "%s, %v at %d us: %d admitted, want %d", c.name, c.limit, x.at, got,
				x.want)
		}
		testkit.Check(t, m.ExceededBy() == c.over, "%s, %v: exceeded by %d, want %d", c.name, c.limit,
			m.ExceededBy(), c.over)
	}
}

// TestAWindowIsSplitInWholeTokens, all parts together at most the whole.
func TestAWindowIsSplitInWholeTokens(t *testing.T) {
	f := fleetOf(3, lease.Sliding(10, time.Minute))
	f.Weights = []int64{1, 1, 2}
	a := start(t, "static_split", f)
	for p, want := range []int64{2, 2, 5} {
		admits(t, a, 0, p, want)
	}
}
