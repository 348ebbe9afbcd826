package rival

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

const (
	ms     = int64(1000) // microseconds
	second = 1000 * ms
)

// tenPerSecond allows 5 at once and one more every 100 ms: its window Burst/R is 500 ms.
var tenPerSecond = lease.PerSecond(10).WithBurst(5)

// fleetOf is n processes whose clocks are right, with one key.
func fleetOf(n int, limits ...lease.Limit) Fleet {
	return Fleet{Processes: n, Limits: limits, Keys: 1}
}

// apart is a fleet of n in which the clock of each process is d microseconds ahead of the one
// before; that of the first is right.
func apart(n int, d int64, limits ...lease.Limit) Fleet {
	f := fleetOf(n, limits...)
	f.Local = func(p int, now int64) int64 { return now + int64(p)*d }
	return f
}

// settlesOften, oneCell and threeCells name variants of algorithms for start.
const (
	settlesOften = "settle_afterwards every 50 us"
	oneCell      = "sliding_cells_client with 1 cell"
	threeCells   = "sliding_cells_client with 3 cells"
)

func start(t *testing.T, name string, f Fleet) Algorithm {
	t.Helper()
	count := int64(1)
	switch name {
	case settlesOften:
		return settling(t, 50, f)
	case threeCells:
		count = 3
	case oneCell:
	default:
		a, err := New(name, f)
		testkit.NoErr(t, err)
		return a
	}
	if f.Local == nil {
		f.Local = func(_ int, now int64) int64 { return now }
	}
	a, err := newCells(f, count, count)
	testkit.NoErr(t, err)
	return a
}

// batching returns local_batches with batches of another size.
func batching(t *testing.T, batch int64, f Fleet) Algorithm {
	t.Helper()
	a := start(t, "local_batches", f)
	a.(*batches).batch = batch
	return a
}

// settling returns settle_afterwards with a period in microseconds.
func settling(t *testing.T, period int64, f Fleet) Algorithm {
	t.Helper()
	a := start(t, "settle_afterwards", f)
	a.(*settleAfterwards).period = period
	return a
}

// burst is how many of many requests for one token a process is admitted at one moment.
func burst(a Algorithm, now int64, p int) (n int64) {
	for range 1000 {
		if a.Decide(now, p, 0, 1) {
			n++
		}
	}
	return n
}

// admits checks that as many are admitted at one moment, and no more.
func admits(t *testing.T, a Algorithm, now int64, p int, want int64) {
	t.Helper()
	got := burst(a, now, p)
	testkit.Check(t, got == want, "at %d us process %d was admitted %d, want %d", now, p, got, want)
}

// steadily is how many requests for one token a process is admitted that comes in every gap until
// the end.
func steadily(a Algorithm, gap, end int64) (n int64) {
	for now := int64(0); now < end; now += gap {
		if a.Decide(now, 0, 0, 1) {
			n++
		}
	}
	return n
}

// meterOf audits what is admitted by a limit, at nanoseconds.
func meterOf(l lease.Limit) *audit.Meter {
	return audit.NewMeter(audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity()})
}

// showMuch fails a random test that has not seen a thousand decisions of either kind.
func showMuch(t *testing.T, seen map[bool]int) {
	t.Helper()
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Errorf("%d admitted, %d refused: these requests show little", seen[true], seen[false])
	}
}

// request is one that a random test draws.
type request struct {
	now    int64
	p, key int
	n      int64
}

// draw makes a load of about the limit's rate, in bursts and pauses, of processes and keys at
// random.
func draw(rng *rand.Rand, f Fleet, count int, most int64) []request {
	between := float64(f.Limits[0].Per) / 1000 / float64(
		f.Limits[0].Tokens) * float64(1+most) / 2 / float64(f.Keys)
	all := make([]request, count)
	var now float64
	for i := range all {
		if rng.IntN(3) > 0 {
			now += rng.ExpFloat64() * between * []float64{0.1, 1, 1, 10}[rng.IntN(4)]
		}
		all[i] = request{int64(now), rng.IntN(f.Processes), rng.IntN(f.Keys), 1 + rng.Int64N(most)}
	}
	return all
}

func decide(a Algorithm, all []request) (ok []bool) {
	for _, r := range all {
		ok = append(ok, a.Decide(r.now, r.p, r.key, r.n))
	}
	return ok
}

// alike checks that two sequences of decisions are the same.
func alike(t *testing.T, what string, all []request, a, b []bool) {
	t.Helper()
	for i := range all {
		if a[i] != b[i] {
			t.Errorf("%s: request %d %+v: %v and %v", what, i, all[i], a[i], b[i])
			return
		}
	}
}

// anyLimit draws a limit that lease accepts, from all orders of magnitude.
func anyLimit(rng *rand.Rand) lease.Limit {
	for {
		l := lease.Limit{
			Tokens: 1 + rng.Int64N(1<<rng.IntN(61)),
			Per:    time.Microsecond + time.Duration(rng.Int64N(1<<rng.IntN(63))),
			Burst:  rng.Int64N(1 << rng.IntN(53)),
		}
		if rng.IntN(2) == 0 {
			l.Per = []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}[rng.IntN(5)]
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// anyGap draws a time between requests, from none to 36 years.
func anyGap(rng *rand.Rand) int64 { return rng.Int64N(1 << rng.IntN(51)) }

func TestNamesAreFoundDescribedAndInOrder(t *testing.T) {
	got := Names()
	testkit.Check(t, len(got) == 11 && got[0] == "central" && got[1] == "central_client", "Names() is %v", got)
	for _, name := range got {
		start(t, name, fleetOf(3, tenPerSecond))
		testkit.Check(t, Describe(name) != "", "%s is not described", name)
	}
	testkit.Check(t, Describe("magic") == "", "an unknown name is described")
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	f := fleetOf(3, tenPerSecond)
	awful := fleetOf(1, lease.Limit{}, tenPerSecond, tenPerSecond, tenPerSecond, tenPerSecond)
	crooked := fleetOf(3, lease.Limit{Tokens: 7, Per: 50 * 365 * 24 * time.Hour})
	crooked.Weights = []int64{1, 1 << 32, 1<<32 - 5}
	coprime := fleetOf(1, lease.Limit{Tokens: 999_983, Per: 24 * time.Hour, Burst: 4_000_000_007})
	for _, c := range []struct {
		name  string
		fleet Fleet
		is    error
		says  []string
	}{
		{"magic", f, ErrUnknown, append(Names(), `"magic"`)},
		{"central:5", f, ErrUnknown, []string{`"central:5"`}},
		{"CENTRAL", f, ErrUnknown, []string{`"CENTRAL"`}},
		{"central", awful, ErrLimit, []string{"Limits has 5 entries", "Limits[0]", "Tokens is 0"}},
		{"fixed_window", awful, ErrLimit, []string{"Limits has 5 entries", "Limits[0]", "Tokens is 0"}},
		{"sliding_cells", fleetOf(1, lease.Every(9*time.Microsecond)), ErrLimit, []string{"9/10 us", "at least 1"}},
		{"fixed_window", fleetOf(1, lease.Limit{Tokens: 3, Per: time.Microsecond, Burst: 1}), ErrLimit,
			[]string{"1/3 us"}},
		{"sliding_cells", coprime, ErrLimit, []string{"both numbers below 2^63"}},
		{"static_split", crooked, ErrLimit, []string{"cannot be divided exactly"}},
	} {
		a, err := New(c.name, c.fleet)
		if !errors.Is(err, c.is) || a != nil {
			t.Errorf("New(%q) is %v, error %v; want one that wraps %v", c.name, a, err, c.is)
			continue
		}
		// A wrong name is wrong for any fleet.
		known := Check(c.name)
		testkit.Check(t, errors.Is(c.is, ErrLimit) && known == nil || errors.Is(known, c.is), "Check(%q) is %v",
			c.name, known)
		for _, text := range c.says {
			testkit.Check(t, strings.Contains(err.Error(), text),
				"%q: the error does not say %q:\n%v", c.name, text, err)
		}
	}
}
