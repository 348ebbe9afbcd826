package rival

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestSettlingAfterwardsAdmitsWhatArrivesInAPeriodNTimes(t *testing.T) {
	const processes, each = 8, 50
	limit := lease.PerSecond(100).WithBurst(each)
	a := start(t, "settle_afterwards:100ms", fleetOf(processes, limit))
	// When as much as the burst arrives at each process at one moment, far from any settlement,
	// then all of them admit it.
	for p := range processes {
		admits(t, a, 100*second-1, p, each)
	}
	// Then the bucket is at -350, as everybody knows a period later, and nobody is admitted until
	// 351 have flowed in.
	due := 100*second + (processes-1)*each*10*ms + 10*ms
	for now := 100*second + 100*ms; now < due; now += ms {
		for p := range processes {
			if a.Decide(now, p, 0, 1) {
				t.Fatalf("process %d was admitted %d us too early", p, due-now)
			}
		}
	}
	for p := range processes { // all of them see the 1
		admits(t, a, due, p, 1)
	}
}

func TestSettlingTooSeldomForTheBurstMissesTheRate(t *testing.T) {
	for _, c := range []struct {
		period      string
		least, most int64
	}{
		{"10ms", 9990, 10_010}, // one token flows in in a period
		{"25ms", 9990, 10_010}, // half the burst
		{"50ms", 8500, 9500},   // as many as the burst holds: what the last settlement left does not fit any more
		{"200ms", 0, 8000},     // four times as many: most of them while the bucket stands full
	} {
		// Given one process that asks for ten times a rate of 100/s, with a burst of 5
		a := start(t, "settle_afterwards:"+c.period, fleetOf(1, lease.PerSecond(100).WithBurst(5)))
		if got := steadily(a, ms, 100*second); got < c.least || got > c.most {
			t.Errorf("a period of %s: %d of 10,000 tokens were admitted, want %d to %d", c.period, got, c.least, c.most)
		}
	}
}

func TestEveryProcessSettlesOnceInAPeriodForAllItsKeys(t *testing.T) {
	// Given 20 processes with 50 keys, all of which they use in the first period
	f := fleetOf(20, lease.PerSecond(1000))
	f.Keys = 50
	a := start(t, "settle_afterwards:50ms", f)
	for p := range f.Processes {
		for key := range f.Keys {
			a.Decide(0, p, key, 1)
		}
	}
	// Then 10 s hold 200 settlements of each, whether it does anything or not; a process settles
	// first at its phase, which is not 0 but for process 0, that has just begun.
	a.Decide(10*second, 0, 0, 1)
	if got := a.RoundTrips(); got != 20*200 {
		t.Errorf("%d round trips, want 4000", got)
	}
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
	d := &diligent{period: period, store: newModel(f.Limits), views: make([]*model, all), pending: make([]int64, all)}
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
	var seen counted
	for range 60 {
		// Given some processes of the start and some later ones, many of which settle at the same
		// moments
		f := fleetOf(1+rng.IntN(7), limits[rng.IntN(len(limits))]...)
		later := rng.IntN(4)
		period := 1 + rng.Int64N(90)
		what := fmt.Sprintf("%v, %d processes and %d later, a period of %d us", f.Limits, f.Processes, later, period)
		a, definition := start(t, fmt.Sprintf("settle_afterwards:%dus", period), f), newDiligent(f, later, period)
		f.Processes += later
		for i, r := range draw(rng, f, 200, 3) {
			got, want := a.Decide(r.now, r.p, 0, r.n), definition.decide(r.now, r.p, r.n)
			if got != want || a.RoundTrips() != definition.trips {
				t.Fatalf("%s: request %d %+v is %v after %d round trips, by the definition %v after %d", what, i, r, got,
					a.RoundTrips(), want, definition.trips)
			}
			seen.add(want)
		}
	}
	seen.check(t)
}
