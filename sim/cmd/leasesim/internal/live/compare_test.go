package live

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// fleet is four processes at twice the limit, with a Target of 50 ms and an entitlement of 510,000.
var fleet = Options{Key: "k", Scenario: sim.Scenario{
	Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(50_000).WithBurst(10_000)},
	Policy: lease.Policy{Fallback: lease.FallbackDeny}, Groups: []sim.Group{{Count: 4}},
	Workload: sim.Workload{Kind: sim.Constant, Load: 2},
}}

// simulated is a report of two replications.
func simulated() sim.Report {
	var r sim.Report
	r.Offered = sim.Figure{Mean: 1_000_000, Values: []float64{1_000_000, 1_000_000}}
	r.Admitted = sim.Figure{Mean: 505_000, Values: []float64{504_000, 506_000}}
	r.RoundTripsPerS = sim.Figure{Mean: 148, Values: []float64{152, 144}}
	r.BoundExceededBy = sim.Figure{} // as in a report that was read from a file
	return r
}

// real returns the report that agrees best.
func real() Report {
	return Report{Offered: 1_000_000, Admitted: 505_000, RoundTrips: 1480}
}

// compared are the rows of a comparison, by their names.
func compared(o Options, s sim.Report, r Report) map[string]Row {
	rows := map[string]Row{}
	for _, row := range Compare(o, s, r) {
		rows[row.Name] = row
	}
	return rows
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want) }

func TestEachRowHasItsOwnTolerance(t *testing.T) {
	rows := compared(fleet, simulated(), real())
	for _, want := range []Row{
		{Name: Offered, Simulated: 1_000_000, Real: 1_000_000,
			// the last request may be late
			Low: 990_000 - 1, High: 1_010_000 + 1},
		{Name: Admitted, Simulated: 505_000, Real: 505_000,
			Low: 498_960 - 1, High: 511_060 + 1},
		// A millisecond late in 25 is a part of 1/26; two calls in 10 s are 0.2 a second.
		{Name: Calls, Simulated: 37, Real: 37,
			Low: 36*(0.95-1./26) - 0.2, High: 38*1.05 + 0.2},
		{Name: Exceeded},
	} {
		got := rows[want.Name]
		if !near(got.Simulated, want.Simulated) || !near(got.Real, want.Real) ||
			!near(got.Low, want.Low) || !near(got.High, want.High) || !got.Agrees {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	}
	testkit.Check(t, len(rows) == 4, "%d rows", len(rows))
}

func TestARowAgreesUpToItsBoundsAndNotBeyond(t *testing.T) {
	for _, c := range []struct {
		name   string
		agrees bool
		set    func(*Report)
	}{
		{Offered, true, func(r *Report) { r.Offered = 989_999 }},
		{Offered, false, func(r *Report) { r.Offered = 989_998 }},
		{Offered, true, func(r *Report) { r.Offered = 1_010_001 }},
		{Offered, false, func(r *Report) { r.Offered = 1_010_002 }},
		{Admitted, false, func(r *Report) { r.Admitted = 498_958 }},
		{Calls, false, func(r *Report) { r.RoundTrips = 1304 }},
		{Exceeded, false, func(r *Report) { r.BoundExceededBy = 1 }},
	} {
		r := real()
		c.set(&r)
		rows := Compare(fleet, simulated(), r)
		for _, row := range rows {
			if want := c.agrees || row.Name != c.name; row.Agrees != want {
				t.Errorf("%s, where %s should agree: %v: %+v", row.Name, c.name, c.agrees, row)
			}
		}
	}
}

func TestTheToleranceOfCallsFollowsTheLoad(t *testing.T) {
	// With a lease of 10 ms a late timer is worth more;
	short := fleet
	short.Scenario.Limits = []lease.Limit{lease.PerSecond(50_000).WithBurst(2000)}
	if got := compared(short, simulated(), real())[Calls]; !near(got.Low, 36*(0.95-1./6)-0.2) {
		t.Errorf("%+v", got)
	}
	// and each of the 19 pauses between 20 bursts in 10 s may have a call more or less, 1.9 a second.
	bursts := fleet
	bursts.Scenario.Workload = sim.Workload{Kind: sim.Sync, Load: 2, Within: 50 * time.Millisecond}
	got := compared(bursts, simulated(), real())[Calls]
	testkit.Check(t, near(got.Low, 36*(0.95-1./26)-2.1) && near(got.High, 38*1.05+2.1), "%+v", got)
}
