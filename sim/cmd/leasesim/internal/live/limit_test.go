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
		asks  []int64
		want  int64
	}{
		// A window of 10 s has room again 10 s after the first admission, and not before.
		{"sliding", lease.Sliding(2, 10*second), []int64{5, 6, 7, 14, 15, 15, 16, 25}, 5},
		{"bucket", lease.PerSecond(1).WithBurst(2), []int64{5, 5, 5, 6, 6, 9, 9, 9}, 5},
	} {
		// Only the requests count, and not which of them the fleet admitted.
		got, err := central(c.limit, []outcomes{{seconds(c.asks[:2]...), seconds(c.asks[2:]...)}}, 2)
		testkit.NoErr(t, err)
		testkit.Check(t, got.Admitted == c.want && got.Part == 2/float64(c.want), "%s: %+v, want %d", c.name, *got,
			c.want)
	}
	got, err := central(lease.PerSecond(1), make([]outcomes, 2), 0)
	testkit.Check(t, got == nil && err == nil, "without a request: %+v, %v", got, err)
}

func TestAuditFindsTheWorstWindowOfEachKey(t *testing.T) {
	for _, c := range []struct {
		name       string
		overcommit int64
		admitted   []int64
		want       int64
	}{
		{"within the limit", 0, []int64{1, 2, 11, 12}, 0},
		{"one too many", 0, []int64{1, 2, 10}, 1},
		{"overcommit", 1, []int64{1, 2, 10}, 0},
	} {
		bound := audit.Of(lease.Sliding(2, 10*second), c.overcommit)
		w, err := worstOf(bound, []outcomes{{admitted: seconds(c.admitted...)}})
		testkit.Check(t, err == nil && w.ExceededBy == c.want, "%s: %+v, %v, want %d", c.name, w, err, c.want)
	}
	// Each key has a bound of its own: 3 tokens of two keys are well, of one key one is too many.
	bound, two, one := audit.Of(lease.PerSecond(1).WithBurst(2), 0), seconds(5, 5), seconds(5)
	for want, byKey := range [][]outcomes{{{admitted: two}, {admitted: one}}, {{admitted: append(two, one...)}, {}}} {
		w, err := worstOf(bound, byKey)
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
