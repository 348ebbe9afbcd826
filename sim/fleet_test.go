//go:build !race

// Like accuracy_test.go, whose helpers it uses: nothing here for the race detector.

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestALargeFleetKeepsItsBudgetOfCalls: a tenth of 10,000 processes on 100,000/s, on a Redis ten
// times slower, and a tenth of the budget. With a burst of a second the calls are those that the
// burst allows (docs/protocol.md 7.8), and with one of 2.2 s the budget and a fifth. With one of a
// fifth of a second Redis is as busy as can be, and the limit is still reached.
func TestALargeFleetKeepsItsBudgetOfCalls(t *testing.T) {
	all := []struct {
		burst       int
		service     string
		load        float64
		calls       float64
		part, equal float64
	}{
		{22_000, "150us", 2, 600, 0.99, 0.99},
		{10_000, "150us", 0.9, 1200, 0.99, 0.99},
		{10_000, "150us", 2, 1200, 0.99, 0.99},
		{10_000, "150us", 5, 1200, 0.99, 0.99},
		{22_000, "150us", 0.9, 600, 0.99, 0.99},
		{22_000, "150us", 5, 600, 0.99, 0.99},
		{2_000, "150us", 0.9, 6800, 0.95, 0.99},
		{2_000, "150us", 2, 6800, 0.95, 0.99},
		{2_000, "150us", 5, 6800, 0.9, 0.99},
	}
	for _, x := range all[:testkit.ShortOrLong(t, 1, len(all), "bursts and loads")] {
		s := fleet(t, fmt.Sprintf("10000/s burst %d", x.burst), 1000, "workload: {load: %v}, redis: {service_time: %s}",
			x.load, x.service)
		s.Policy.CallsPerSecond, s.Reps, s.Duration, s.Warmup = 500, 1, 26*time.Second, 8*time.Second
		r := run(t, s)
		what := fmt.Sprintf("burst %d, %s, load %v", x.burst, x.service, x.load)
		t.Logf("%s: %.0f calls/s, %.3f of one bucket, Jain %.4f", what, r.CallsPerS.Mean, r.AdmittedVsCentral.Mean, r.Jain.Mean)
		reaches(t, what, r, x.part)
		testkit.Check(t, r.CallsPerS.Mean <= x.calls, "%s: %.0f calls/s, want at most %v", what, r.CallsPerS.Mean, x.calls)
		testkit.Check(t, r.Jain.Mean >= x.equal, "%s: Jain's index is %.4f", what, r.Jain.Mean)
	}
}

// TestABudgetOfCallsStarvesNoFleetWhoseLoadComesAndGoes: 200 processes whose T grows and shrinks with the
// number of those that are active, while they call seldom (docs/protocol.md 6.8). No budget, from one call
// in two seconds and process on, costs more than a twentieth of what the default one admits.
func TestABudgetOfCallsStarvesNoFleetWhoseLoadComesAndGoes(t *testing.T) {
	loads := []string{"{kind: onoff, load: 0.9, on: 200ms, off: 800ms}",
		"{kind: flash, load: 0.9, at: 10s, for: 4s, factor: 5}", "{kind: diurnal, load: 0.9}"}
	budgets := []int64{1000, 100, 400, 700, 2000, 10_000}
	n := testkit.ShortOrLong(t, 1, len(budgets), "budgets")
	for _, load := range loads[:min(n, len(loads))] {
		admitted := func(budget int64) float64 {
			s := fleet(t, "10000/s burst 20000", 200, "workload: %s", load)
			s.Policy.CallsPerSecond, s.Reps, s.Duration = budget, 1, 40*time.Second
			r := run(t, s)
			t.Logf("%s, a budget of %d: %.0f calls/s, %.3f of one bucket", load, budget, r.CallsPerS.Mean,
				r.AdmittedVsCentral.Mean)
			return r.AdmittedVsCentral.Mean
		}
		least := admitted(0) - 0.05
		for _, budget := range budgets[:n] {
			part := admitted(budget)
			testkit.Check(t, part >= least, "%s: a budget of %d admits %.3f, want %.3f", load, budget, part, least)
		}
	}
}
