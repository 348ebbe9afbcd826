package live

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

const second = time.Second

// seconds are admissions, or refusals, at these whole seconds.
func seconds(all ...int64) (spans []audit.Span) {
	for _, s := range all {
		at := s * int64(time.Second)
		spans = append(spans, audit.Span{Before: at, After: at + 1, N: 1})
	}
	return spans
}

func TestCentralLimiterIsExact(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit lease.Limit
		ahead interval
		asks  []int64
		want  int64
	}{
		// A window of 10 s has room again 10 s after the first admission, and not before.
		{"sliding", lease.Sliding(2, 10*second), interval{}, []int64{5, 6, 7, 14, 15, 15, 16, 25}, 5},
		{"calendar", lease.Calendar(2, 10*second, 5*second), interval{}, []int64{5, 14, 14, 15, 16, 24, 25}, 5},
		{"bucket", lease.PerSecond(1).WithBurst(2), interval{}, []int64{5, 5, 5, 6, 6, 9, 9, 9}, 5},
		// By a server whose clock is 3 s ahead, a period ends 3 s earlier.
		{"a clock ahead", lease.Calendar(2, 10*second, 0), interval{3e9, 3e9}, []int64{5, 6, 6, 7, 7, 7}, 4},
	} {
		// Only the requests count, and not which of them the fleet admitted.
		got, err := central(c.limit, []asks{{seconds(c.asks[:2]...), seconds(c.asks[2:]...)}}, 2, c.ahead)
		testkit.NoErr(t, err)
		testkit.Check(t, got.Admitted == c.want && got.Part == 2/float64(c.want), "%s: %+v, want %d", c.name, *got,
			c.want)
	}
	got, err := central(lease.PerSecond(1), make([]asks, 2), 0, interval{})
	testkit.Check(t, got == nil && err == nil, "without a request: %+v, %v", got, err)
}

func TestAuditGoesByTheServersClockOnlyForACalendar(t *testing.T) {
	sliding, calendar := lease.Sliding(2, 10*second), lease.Calendar(2, 10*second, 0)
	for _, c := range []struct {
		name       string
		limit      lease.Limit
		overcommit int64
		ahead      interval
		admitted   []int64
		want       int64
	}{
		{"sliding", sliding, 0, interval{}, []int64{1, 2, 11, 12}, 0},
		{"one too many", sliding, 0, interval{}, []int64{1, 2, 10}, 1},
		{"overcommit", sliding, 1, interval{}, []int64{1, 2, 10}, 0},
		// A period goes by the server's clock,
		{"calendar", calendar, 0, interval{}, []int64{7, 8, 11}, 0},
		{"a clock behind", calendar, 0, interval{-2e9, -2e9}, []int64{7, 8, 11}, 1},
		// of which is counted only what is certain.
		{"a clock that is not known", calendar, 0, interval{-2e9, 0}, []int64{7, 8, 11}, 0},
	} {
		w, err := worstOf(audit.Of(c.limit, c.overcommit), []asks{{admitted: seconds(c.admitted...)}}, c.ahead)
		testkit.Check(t, err == nil && w.ExceededBy == c.want, "%s: %+v, %v, want %d", c.name, w, err, c.want)
	}
	// Each key has a bound of its own: 3 tokens of two keys are well, of one key one is too many.
	bound, two, one := audit.Of(lease.PerSecond(1).WithBurst(2), 0), seconds(5, 5), seconds(5)
	for want, asked := range [][]asks{{{admitted: two}, {admitted: one}}, {{admitted: append(two, one...)}, {}}} {
		w, err := worstOf(bound, asked, interval{})
		testkit.Check(t, err == nil && w.ExceededBy == int64(want), "%+v %v", w, err)
	}
}

func TestAnAdversaryTurnsAroundTheEndOfEveryWindow(t *testing.T) {
	const target = 100 * time.Millisecond
	began := time.Unix(1_000_003, 0)
	for _, c := range []struct {
		limit lease.Limit
		from  time.Duration // of the first end that is looked at
		turns bool
	}{
		{lease.Sliding(9, 10*time.Second), 10 * time.Second, true},
		{lease.Calendar(9, 10*time.Second, 2*time.Second), 9 * time.Second, true}, // 1,000,012
		{lease.PerSecond(9), 10 * time.Second, false},
	} {
		var at []time.Duration
		last := turn(c.limit, began, began.Add(time.Second), target)
		for ms := time.Duration(1000); ms < 15_000; ms++ {
			now := turn(c.limit, began, began.Add(ms*time.Millisecond), target)
			if now != last {
				at, last = append(at, ms*time.Millisecond), now
			}
		}
		if !c.turns {
			testkit.Check(t, at == nil, "%v: %v", c.limit, at)
			continue
		}
		testkit.Check(t, len(at) == 2 && at[0] == c.from-target/2 && at[1] == c.from+target/2, "%v: %v", c.limit,
			at)
	}
}
