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
// fifth of a second Redis is as busy as can be, and nine tenths of the limit are reached.
func TestALargeFleetKeepsItsBudgetOfCalls(t *testing.T) {
	all := []struct {
		burst       int
		service     string
		load        float64
		calls       float64
		part, equal float64
	}{
		{22_000, "150us", 2, 600, 0.99, 0.985},
		{10_000, "150us", 0.9, 1200, 0.99, 0.99},
		{10_000, "150us", 2, 1200, 0.99, 0.99},
		{10_000, "150us", 5, 1200, 0.99, 0.99},
		{22_000, "150us", 0.9, 600, 0.99, 0.99},
		{22_000, "150us", 5, 600, 0.99, 0.99},
		{2_000, "150us", 0.9, 6800, 0.95, 0.99},
		{2_000, "150us", 2, 6800, 0.88, 0.99},
		{2_000, "150us", 5, 6800, 0.88, 0.99},
	}
	for _, x := range all[:testkit.ShortOrLong(t, 1, len(all), "bursts and loads")] {
		s := fleet(t, fmt.Sprintf("10000/s burst %d", x.burst), 1000,
			"workload: {load: %v}, redis: {service_time: %s}", x.load, x.service)
		s.Policy.CallsPerSecond, s.Reps, s.Duration, s.Warmup = 500, 1, 42*time.Second, 24*time.Second
		r := run(t, s)
		what := fmt.Sprintf("burst %d, %s, load %v", x.burst, x.service, x.load)
		calls := r.CallsPerS.Mean
		t.Logf("%s: %.0f calls/s, %.3f of one bucket, Jain %.4f",
			what, calls, r.AdmittedVsCentral.Mean, r.Jain.Mean)
		reaches(t, what, r, x.part)
		testkit.Check(t, calls <= x.calls, "%s: %.0f calls/s, want at most %v", what, calls, x.calls)
		testkit.Check(t, r.Jain.Mean >= x.equal, "%s: Jain's index is %.4f", what, r.Jain.Mean)
	}
}

// TestFleetsCallAsSeldomAsTheirBurstAllows prints, with -v, the table of fleets of docs/figures.md: how many
// calls the default policy makes.
func TestFleetsCallAsSeldomAsTheirBurstAllows(t *testing.T) {
	const poisson, onOff = "load: %v", "kind: onoff, load: %v"
	all := []struct {
		n           int
		limit, kind string
		skew        float64
		load        float64
		calls       float64
		part, equal float64
	}{
		{20, "1000/s burst 1000", poisson, 0, 2, 100, 0.995, 0},
		{4, "1000/s burst 200", poisson, 0, 2, 145, 0.9985, 0},
		{20, "1000/s burst 1000", poisson, 0, 0.5, 100, 0.995, 0},
		{20, "1000/s burst 1000", poisson, 0, 0.9, 100, 0.995, 0},
		{20, "1000/s burst 1000", poisson, 0, 5, 100, 0.995, 0},
		{200, "10000/s burst 20000", poisson, 0, 0.5, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 0, 0.9, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 0, 2, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 0, 5, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 1, 0.5, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 1, 0.9, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 1, 2, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", poisson, 1, 5, 500, 0.995, 0.998},
		{200, "10000/s burst 20000", onOff, 0, 0.9, 500, 0.985, 0.97},
		{200, "10000/s burst 20000", onOff, 0, 2, 500, 0.985, 0.97},
		{200, "10000/s burst 2000", poisson, 0, 0.9, 1861, 0.995, 0},
		{200, "10000/s burst 2000", poisson, 0, 2, 3000, 0.995, 0.998},
		{10_000, "100000/s burst 100000", poisson, 0, 0.9, 11_750, 0.995, 0},
		{10_000, "100000/s burst 100000", poisson, 0, 2, 11_750, 0.995, 0},
		{10_000, "100000/s burst 100000", poisson, 0, 5, 11_750, 0.995, 0},
		{10_000, "100000/s burst 100000", onOff, 0, 0.9, 15_000, 0.97, 0},
	}
	t.Log("| processes | limit | load | calls/s | target | of one bucket | target | Jain |")
	t.Log("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, x := range all[:testkit.ShortOrLong(t, 2, len(all), "fleets")] {
		s := fleet(t, x.limit, x.n, "workload: {"+x.kind+"}", x.load)
		s.Groups[0].Skew, s.Reps = x.skew, 3
		if x.n > 1000 {
			s.Reps, s.Duration, s.Warmup = 1, 26*time.Second, 6*time.Second
		}
		r := run(t, s)
		what := fmt.Sprintf("%d, %s, %s, Zipf %v", x.n, x.limit, fmt.Sprintf(x.kind, x.load), x.skew)
		t.Logf("| %d | %v | %s, %v%s | %.0f | %.0f | %.2f %% | %.2f %% | %.4f |", x.n, s.Limits[0],
			s.Defaults().Workload.Kind, x.load, map[bool]string{true: ", Zipf 1"}[x.skew > 0],
			r.CallsPerS.Mean, x.calls, 100*r.AdmittedVsCentral.Mean, 100*x.part, r.Jain.Mean)
		reaches(t, what, r, x.part)
		testkit.Check(t, r.CallsPerS.Mean <= x.calls, "%s: %.0f calls/s, want at most %v", what,
			r.CallsPerS.Mean, x.calls)
		testkit.Check(t, r.Jain.Mean >= x.equal, "%s: Jain's index is %.4f, want %v", what, r.Jain.Mean, x.equal)
	}
}

// TestABudgetOfCallsStarvesNoFleetWhoseLoadComesAndGoes: processes whose T grows and shrinks with the number
// of those that are active, while they call seldom (docs/protocol.md 6.8). Where the default policy admits
// 99 % of one bucket, every budget from half a call to fifty a second and process admits 95 %.
func TestABudgetOfCallsStarvesNoFleetWhoseLoadComesAndGoes(t *testing.T) {
	fleets := []struct {
		n     int
		limit string
	}{
		{200, "10000/s burst 20000"}, {20, "1000/s burst 1000"}, {50, "1000/s burst 1000"},
		{200, "10000/s burst 2000"}, {1000, "10000/s burst 10000"},
	}
	loads := []string{"{kind: onoff, load: 0.9, on: 200ms, off: 800ms}", "{kind: onoff, load: 0.9}",
		"{kind: flash, load: 0.9, at: 10s, for: 4s, factor: 5}"}
	budgets := []float64{5, 0.5, 1, 2, 3.5, 10, 20, 50} // calls a second and process
	short := testkit.ShortOrLong(t, 1, 0, "budgets, loads and fleets") > 0
	for _, f := range fleets[:testkit.ShortOrLong(t, 1, len(fleets), "fleets")] {
		for _, load := range loads {
			admitted := func(budget int64) float64 {
				s := fleet(t, f.limit, f.n, "workload: %s", load)
				s.Policy.CallsPerSecond, s.Reps, s.Duration = budget, 1, 40*time.Second
				r := run(t, s)
				t.Logf("%d on %v, %s, a budget of %d: %.0f calls/s, %.3f of one bucket", f.n, s.Limits[0], load, budget,
					r.CallsPerS.Mean, r.AdmittedVsCentral.Mean)
				return r.AdmittedVsCentral.Mean
			}
			byDefault := admitted(0)
			for _, each := range budgets {
				part := admitted(int64(each * float64(f.n)))
				testkit.Check(t, part >= 0.95 || byDefault < 0.99,
					"%d on %s, %s: %v calls a second and process admit %.3f, the default %.3f",
					f.n, f.limit, load, each, part, byDefault)
				if short {
					return
				}
			}
		}
	}
}
