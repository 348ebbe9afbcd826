package rival

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestAStaticSplitDividesByWeight(t *testing.T) {
	// Given 60 tokens at once and 6 per second for weights of 1, 2 and 3
	f := fleetOf(3, lease.PerSecond(6).WithBurst(60))
	f.Weights = []int64{1, 2, 3}
	a := start(t, "static_split", f)
	for p, part := range []int64{10, 20, 30} {
		admits(t, a, 0, p, part)
		admits(t, a, 5*second, p, part/2)
	}
	// A process that joins later has the part of a weight of 1 as well, on top.
	admits(t, a, 5*second, 3, 10)
	testkit.Check(t, a.RoundTrips() == 0, "%d round trips were made", a.RoundTrips())
}

func TestPartsOfALimitAreExactAndAddUp(t *testing.T) {
	// Given a limit that no three processes can share in whole tokens, each asking in every millisecond
	a := start(t, "static_split", fleetOf(3, lease.Limit{Tokens: 100, Per: 7 * time.Second, Burst: 20}))
	var admitted [3]int64
	const end = 101 * second
	for now := int64(0); now <= end; now += ms {
		for p := range admitted {
			for a.Decide(now, p, 0, 1) {
				admitted[p]++
			}
		}
	}
	// Then each has floor(20/3 + 101 s * 100/7s / 3) tokens in the end.
	earned := new(big.Rat).Add(big.NewRat(20, 3), big.NewRat(101*100, 7*3))
	want := new(big.Int).Div(earned.Num(), earned.Denom()).Int64()
	testkit.Check(t, admitted == [3]int64{want, want, want},
		"the processes were admitted %d, want %d each", admitted, want)
}

func TestASplitBurstIsAtLeastOneToken(t *testing.T) {
	// Given a burst of 5 for 20 processes
	a := start(t, "static_split", fleetOf(20, tenPerSecond))
	// Then 20 are admitted at once, and the next to each after N/R.
	for p := range 20 {
		admits(t, a, 0, p, 1)
		admits(t, a, 2*second-1, p, 0)
	}
	admits(t, a, 2*second, 7, 1)
}

func TestLocalBatchesExceedTheBoundByAllButOneOfEveryBatch(t *testing.T) {
	for _, batch := range []int64{1, 2, 10, 50} {
		const processes = 8
		limit := lease.PerSecond(100).WithBurst(500)
		a := batching(t, batch, fleetOf(processes, limit))
		// Given that every process has used one token of a batch, and the bucket is full again a day later
		for p := range processes {
			testkit.Must(t, a.Decide(0, p, 0, 1), "the first request was refused")
		}
		// When all come at once
		m := meterOf(limit)
		for p := range processes {
			m.Admit(86_400*second*1000, burst(a, 86_400*second, p))
		}
		// Then what they hold is admitted on top of the burst.
		if want := processes * (batch - 1); m.ExceededBy() != want {
			t.Errorf("batches of %d: the bound is exceeded by %d, want %d", batch, m.ExceededBy(), want)
		}
	}
}

func TestLocalBatchesAskOncePerBatch(t *testing.T) {
	// Given batches of 10 from a bucket of 25
	a := batching(t, 10, fleetOf(1, lease.PerSecond(1).WithBurst(25)))
	for i := range int64(25) {
		testkit.Must(t, a.Decide(0, 0, 0, 1) && a.RoundTrips() == i/10+1,
			"after %d requests there were %d round trips", i+1, a.RoundTrips())
	}
	// When the last, partial one is spent, then every further request asks again and gets nothing.
	if got := burst(a, 0, 0); got != 0 || a.RoundTrips() != 3+1000 {
		t.Errorf("%d more were admitted, with %d round trips; want 0 with 1003", got, a.RoundTrips())
	}
	// A request for more than a batch draws what it lacks.
	testkit.Check(t, a.Decide(25*second, 0, 0, 1) && a.Decide(25*second, 0, 0, 20) && a.RoundTrips() == 1005,
		"20 were refused of 24, or %d round trips were made, want 1005", a.RoundTrips())
	// That leaves 25-10-11 in the bucket, which is less than a request for 5 needs, and stays.
	testkit.Check(t, !a.Decide(25*second, 0, 0, 5) && burst(a, 25*second, 0) == 4,
		"4 tokens must be left, and not be lost by a request for 5")
}

func TestAStockIsNotSpentOnMoreThanABurst(t *testing.T) {
	for _, limits := range [][]lease.Limit{{tenPerSecond, lease.PerSecond(100)},
		{lease.PerSecond(100), tenPerSecond}} {
		// Given a process that holds 4 tokens, and can draw 5
		a := batching(t, 5, fleetOf(1, limits...))
		a.Decide(0, 0, 0, 1)
		// Then 6 are refused nevertheless, as by every other algorithm, and 5 are not.
		testkit.Check(t, !a.Decide(second, 0, 0, 6) && a.Decide(second, 0, 0, 5),
			"%v: of a burst of 5, 6 were admitted or 5 were not", limits)
	}
}

func TestTheDefaultBatchIsAHundredMillisecondsOfAProcessesPart(t *testing.T) {
	fast, slow := lease.PerSecond(10_000), lease.PerMinute(60_000)
	for _, c := range []struct {
		fleet Fleet
		want  int64
	}{
		{fleetOf(1, fast), 1000},
		{fleetOf(7, fast), 142},
		{fleetOf(1, fast, slow), 100},
		{fleetOf(1, slow, fast), 100},
		{fleetOf(200, lease.PerSecond(10)), 1},
		{fleetOf(1, lease.Limit{Tokens: 1 << 40, Per: time.Microsecond, Burst: 1}), 100_000 << 40},
	} {
		if got := start(t, "local_batches", c.fleet).(*batches).batch; got != c.want {
			t.Errorf("%v, %d processes: the batch is %d, want %d", c.fleet.Limits, c.fleet.Processes, got, c.want)
		}
	}
}

func TestEveryProcessSettlesOnceInAPeriodForAllItsKeys(t *testing.T) {
	// Given 20 processes with 50 keys, all of which they use in the first period
	f := fleetOf(20, lease.PerSecond(1000))
	f.Keys = 50
	a := settling(t, 50*ms, f)
	for p := range f.Processes {
		for key := range f.Keys {
			a.Decide(0, p, key, 1)
		}
	}
	// Then 10 s hold 200 settlements of each, whether it does anything or not; a process settles
	// first at its phase, which is not 0 but for process 0, that has just begun.
	a.Decide(10*second, 0, 0, 1)
	got := a.RoundTrips()
	testkit.Check(t, got == 20*200, "%d round trips, want 4000", got)
}

// diligent is the definition of settling afterwards, for one key: every process settles at every
// moment of its own, one by one, whether it matters or not.
type diligent struct {
	period  int64
	phases  []int64
	store   *model
	views   []*model // nil until the process has seen the key
	pending []int64
	now     int64
	trips   int64
}

func newDiligent(f Fleet, later int, period int64) *diligent {
	all := f.Processes + later
	d := &diligent{period: period, store: newModel(f.Limits), views: make([]*model, all),
		pending: make([]int64, all)}
	for p := range all {
		d.phases = append(d.phases, int64(p%f.Processes)*period/int64(f.Processes))
	}
	return d
}

func (d *diligent) decide(now int64, p int, n int64) bool {
	for d.now < now {
		d.now++
		for q, phase := range d.phases {
			if d.views[q] != nil && d.now%d.period == phase {
				d.store.refill(d.now)
				d.store.spend(d.pending[q])
				d.pending[q] = 0
				d.views[q].at = d.now
				for i, level := range d.store.levels {
					d.views[q].levels[i].Set(level)
				}
				d.trips++
			}
		}
	}
	if d.views[p] == nil {
		d.views[p] = newModel(d.store.limits)
		d.views[p].at = now
	}
	ok := d.views[p].take(now, n)
	if ok {
		d.pending[p] += n
	}
	return ok
}

func TestSettlingLateAndInOrderIsAsGoodAsAtEveryMoment(t *testing.T) {
	rng := testkit.Rand(t)
	limits := [][]lease.Limit{
		{{Tokens: 3, Per: 40 * time.Microsecond, Burst: 6}},
		{{Tokens: 1, Per: 7 * time.Microsecond, Burst: 4}, {Tokens: 20, Per: 300 * time.Microsecond}},
	}
	seen := map[bool]int{}
	for range 60 {
		// Given some processes of the start and some later ones, many of which settle at the same moments
		f := fleetOf(1+rng.IntN(7), limits[rng.IntN(len(limits))]...)
		later := rng.IntN(4)
		period := 1 + rng.Int64N(90)
		what := fmt.Sprintf("%v, %d processes and %d later, a period of %d us", f.Limits, f.Processes, later,
			period)
		a, definition := settling(t, period, f), newDiligent(f, later, period)
		f.Processes += later
		for i, r := range draw(rng, f, 200, 3) {
			got, want := a.Decide(r.now, r.p, 0, r.n), definition.decide(r.now, r.p, r.n)
			if got != want || a.RoundTrips() != definition.trips {
				t.Fatalf("%s: request %d %+v is %v after %d round trips, by the definition %v after %d", what, i, r, got,
					a.RoundTrips(), want, definition.trips)
			}
			seen[want]++
		}
	}
	showMuch(t, seen)
}
