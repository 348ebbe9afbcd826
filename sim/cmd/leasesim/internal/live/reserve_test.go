package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

func TestAForgivenChargeIsFound(t *testing.T) {
	// Given a fleet that in a second used all that flowed in and that the bucket had, and as much more
	// as the bucket owes,
	o := Options{Rate: 1000, Burst: 100}
	fleet := []*process{{told: told{Charged: 30, Cancelled: 2}}, {told: told{Charged: 5}}}
	got := *o.settled(1100-35+20, 20, time.Second, fleet)
	testkit.Check(t, got == Settled{Cancelled: 2, Charged: 35, Owed: 20}, "%+v", got)
	// when the bucket owes three less, then these were forgiven.
	got = *o.settled(1100-35+20, 17, time.Second, fleet)
	testkit.Check(t, got.ExceededBy == 3, "%+v", got)
	r := Report{Settled: &got}
	testkit.Check(t, r.Excess() == 3, "the whole exceeds by %d", r.Excess())
}

func TestAClassBelowItsHeadroomIsFound(t *testing.T) {
	// Given processes of three classes, whose admissions together keep the bound,
	o := Options{Rate: 10, Burst: 100, Priorities: []float64{0.2, 0.45}}
	spans := [][]audit.Span{{{N: 30}}, {{N: 20}}, {{N: 50}}, {}}
	processes := []Process{{Offered: 1, Admitted: 30}, {Offered: 2, Admitted: 20}, {Offered: 3, Admitted: 50}, {Offered: 4}}
	check := func(want ...Class) {
		t.Helper()
		got, err := o.classes(processes, spans)
		testkit.NoErr(t, err)
		for i, c := range got {
			testkit.Check(t, c == want[i], "class %d: %+v, want %+v", i, c, want[i])
		}
		r := Report{Classes: got}
		testkit.Check(t, r.Excess() == want[2].ExceededBy, "the whole exceeds by %d", r.Excess())
	}
	check(Class{0, 5, 30, 0}, Class{0.2, 2, 20, 0}, Class{0.45, 3, 50, 0})
	// when the last one is admitted more than the burst less its headroom, then that is found.
	spans[2][0].N, processes[2].Admitted = 56, 56
	spans[0][0].N, processes[0].Admitted = 20, 20
	check(Class{0, 5, 20, 0}, Class{0.2, 2, 20, 0}, Class{0.45, 3, 56, 1})
}

func TestAChargeCountsOnceItIsAnswered(t *testing.T) {
	var c charges
	c.answered([]*lease.Call{{Request: lease.Request{Charge: 3}}, {}})
	c.answered([]*lease.Call{{Request: lease.Request{Charge: 5}, Err: lease.ErrUnavailable}})
	got := c.total.Load()
	testkit.Check(t, got == 3, "%d are charged for certain, want 3", got)
}

func TestWhatDoesNotGoTogetherIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--shadow and --reserve are for every --shape but":          func(o *Options) { o.Shadow, o.Shape = true, ShapeAdversary },
		"--shadow and --reserve are for":                            func(o *Options) { o.Reserve, o.Shape = true, ShapeAdversary },
		"--priorities are [0.1 0.2 0.3 0.4] with --processes 4, mu": func(o *Options) { o.Priorities = []float64{0.1, 0.2, 0.3, 0.4} },
		"bad usage: --priorities[1] is 0.2, must be below 1 and ab": func(o *Options) { o.Priorities = []float64{0.2, 0.2} },
		`--key is "@k", must not begin with @`:                      func(o *Options) { o.Reserve, o.Key = true, "@k" },
	} {
		o := fleet
		change(&o)
		err := o.Validate()
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), want), "%v, want %q", err, want)
	}
}
