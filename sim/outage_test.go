//go:build !race

// Like accuracy_test.go, whose helpers it uses: nothing here for the race detector.

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// outages are the rows of the table of docs/figures.md: the most tokens beyond the bound, in the mean of
// the seeds, in an outage of 400 ms, 3 s and 10 s and its recovery.
var outages = []struct {
	n     int
	load  float64
	limit string
	cut   bool // the network cuts half of the processes off, and Redis is well
	most  [3]float64
}{
	{3, 0.5, "1000/s burst 1000", false, [3]float64{0, 0, 0}},
	{3, 2, "1000/s burst 1000", false, [3]float64{210, 80, 90}},
	{3, 5, "1000/s burst 1000", false, [3]float64{310, 110, 110}},
	{20, 2, "1000/s burst 1000", false, [3]float64{250, 160, 130}},
	{20, 5, "1000/s burst 1000", false, [3]float64{400, 320, 200}},
	{200, 2, "1000/s burst 1000", false, [3]float64{130, 5, 10}},
	{200, 5, "1000/s burst 1000", false, [3]float64{260, 260, 60}},
	{20, 5, "1000/s burst 1000", true, [3]float64{450, 1650, 5200}},
	{20, 5, "300 in 3s", false, [3]float64{0, 0, 60}},
}

var outageSpans = [3]time.Duration{400 * time.Millisecond, 3 * time.Second, 10 * time.Second}

// TestOutagesExceedTheBoundByLittle prints the table, with -v.
func TestOutagesExceedTheBoundByLittle(t *testing.T) {
	t.Log("| processes, load | 0.4 s | 3 s | 10 s |")
	t.Log("| --- | --- | --- | --- |")
	long := testkit.Long(t, "four cells", "all cells")
	for i, o := range outages {
		row := fmt.Sprintf("| %d, %v, %s, half of them cut off: %v |", o.n, o.load, o.limit, o.cut)
		for j, span := range outageSpans {
			if !long && (o.n > 20 || i%2 == 1 || j > 0) {
				row += " not run |"
				continue
			}
			e := outage(t, o.limit, o.n, o.load, span, o.cut).BoundExceededBy
			row += fmt.Sprintf(" %.0f, %.0f at worst |", e.Mean, e.Worst)
			testkit.Check(t, e.Mean <= o.most[j], "%+v: %.0f beyond the bound in %v; worst seed %d",
				o, e.Mean, span, e.WorstSeed)
		}
		t.Log(row)
	}
}

// TestAnOutageCostsLittleBelowTheLimit: what the shares have refilled is not charged a second time. Each
// of 200 processes has a part by the calls that it counted (8.14), so some have less than they ask for: a
// tenth of all requests is rejected.
func TestAnOutageCostsLittleBelowTheLimit(t *testing.T) {
	for _, o := range []struct {
		n    int
		most float64
	}{{3, 0}, {20, 0}, {200, 1000}}[:testkit.ShortOrLong(t, 2, 3, "fleets")] {
		r := outage(t, "1000/s burst 1000", o.n, 0.9, 10*time.Second, false)
		rejected, beyond := r.FaultStock.Mean, r.BoundExceededBy.Worst
		t.Logf("%d processes: %.1f requests rejected wrongly, %.0f beyond the bound", o.n, rejected, beyond)
		testkit.Check(t, rejected <= o.most && beyond <= 0, "%d processes: %.1f rejected, %.0f beyond",
			o.n, rejected, beyond)
	}
}

// TestProcessesThatDrawExceedTheBoundByLittle: no reply to their draws names the others.
func TestProcessesThatDrawExceedTheBoundByLittle(t *testing.T) {
	for limit, most := range map[string]float64{"10/s burst 100": 15, "100 in 10s": 25} {
		e := outage(t, limit, 20, 2, 10*time.Second, false).BoundExceededBy
		t.Logf("%s: %.0f beyond the bound, %.0f at worst", limit, e.Mean, e.Worst)
		testkit.Check(t, e.Mean <= most, "%s: %.0f beyond the bound; worst seed %d", limit, e.Mean, e.WorstSeed)
	}
}

// outage runs a fleet with FallbackLocalShare through an outage that begins after 4.5 s.
func outage(t testing.TB, limit string, n int, load float64, span time.Duration, cut bool) sim.Report {
	t.Helper()
	fault := fmt.Sprintf("redis: {faults: [{kind: outage, at: 4500ms, for: %v}]}", span)
	if cut {
		fault = fmt.Sprintf("network: {partitions: [{at: 4500ms, for: %v, part: 50%%}]}", span)
	}
	s, err := file.Parse("outage", fmt.Appendf(nil,
		"{duration: %v, reps: 20, limits: [%s], groups: [{count: %d}], workload: {load: %v}, %s}",
		span+8*time.Second, limit, n, load, fault))
	testkit.NoErr(t, err)
	r, err := sim.Run(t.Context(), s)
	testkit.NoErr(t, err)
	return r
}
