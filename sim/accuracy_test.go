//go:build !race

// These simulations are deterministic and have one goroutine each: the race detector would find
// nothing in ten times the time.

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// accuracy is a row of the tuning table: what the defaults of lease.Policy give, on one limit, from
// a cold start.
type accuracy struct {
	name     string
	rate     int64
	burst    int64
	n        int
	skew     float64
	workload sim.Workload
	goal     float64 // for admitted_vs_central
	fair     bool    // Jain's index is 0.999 at least, and the worst share 0.95, too
}

// The scenarios that decided how much a call asks for (lease/client_size.go) and how the rate is
// shared (lease/fair.go).
var accuracies = []accuracy{
	{"Poisson", 1_000, 200, 4, 0, sim.Workload{Load: 0.9}, 0.995, false},
	{"Poisson", 1_000, 200, 4, 1, sim.Workload{Load: 2}, 0.995, true},
	{"Poisson", 10_000, 2_000, 4, 1, sim.Workload{Load: 2}, 0.995, true},
	{"Poisson", 10_000, 2_000, 50, 1, sim.Workload{Load: 0.9}, 0.995, false},
	{"Poisson", 10_000, 2_000, 50, 1, sim.Workload{Load: 2}, 0.995, true},
	{"Poisson", 10_000, 2_000, 200, 0, sim.Workload{Load: 0.9}, 0.995, false},
	{"Poisson", 10_000, 2_000, 200, 0, sim.Workload{Load: 2}, 0.995, true},
	{"Poisson", 10_000, 2_000, 200, 1, sim.Workload{Load: 0.9}, 0.995, false},
	{"Poisson", 10_000, 2_000, 200, 1, sim.Workload{Load: 2}, 0.995, true},
	{"Poisson", 50_000, 10_000, 20, 1, sim.Workload{Load: 2}, 0.995, true},
	{"on/off", 1_000, 1_000, 4, 0, sim.Workload{Kind: sim.OnOff, Load: 0.9}, 0.98, false},
	{"on/off", 10_000, 10_000, 50, 0, sim.Workload{Kind: sim.OnOff, Load: 0.9}, 0.98, false},
	{"on/off", 10_000, 10_000, 200, 0, sim.Workload{Kind: sim.OnOff, Load: 2}, 0.98, false},
	{"all at one instant", 10_000, 10_000, 50, 0, sim.Workload{Kind: sim.Sync, Load: 0.9}, 0.98, false},
	{"all at one instant", 10_000, 10_000, 200, 0, sim.Workload{Kind: sim.Sync, Load: 0.9}, 0.98, false},
	{"all at one instant", 10_000, 10_000, 200, 0, sim.Workload{Kind: sim.Sync, Load: 2}, 0.98, false},
	{"all at one instant, exactly the burst", 10_000, 5_000, 40, 0, sim.Workload{Kind: sim.Sync, Load: 1}, 0.98, false},
	{"all within 50 ms", 10_000, 10_000, 200, 0,
		sim.Workload{Kind: sim.Sync, Load: 2, Within: 50 * time.Millisecond}, 0.98, false},
	{"small burst", 10, 1, 20, 0, sim.Workload{Load: 2}, 0.98, false},
	{"small burst", 100, 1, 100, 0, sim.Workload{Load: 2}, 0.98, false},
	{"small burst", 100, 5, 50, 0, sim.Workload{Load: 2}, 0.98, false},
	{"small burst", 1_000, 10, 20, 0, sim.Workload{Load: 2}, 0.98, false},
	{"small burst", 1_000, 10, 500, 0, sim.Workload{Load: 2}, 0.98, false},
}

func (a accuracy) scenario() sim.Scenario {
	return sim.Scenario{
		Duration: 30 * time.Second, Reps: 10, Limits: []lease.Limit{lease.PerSecond(a.rate).WithBurst(a.burst)},
		Policy: lease.Policy{Fallback: lease.FallbackDeny}, Groups: []sim.Group{{Count: a.n, Skew: a.skew}},
		Workload: a.workload,
	}
}

// run runs s; a window that exceeds promise (1) fails the test.
func run(t *testing.T, s sim.Scenario) sim.Report {
	t.Helper()
	r, err := sim.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.BoundExceededBy.Worst > 0 {
		t.Errorf("%+v: (1) is exceeded by %v, seed %d", s, r.BoundExceededBy.Worst, r.BoundExceededBy.WorstSeed)
	}
	return r
}

// reaches checks that so much of what one central bucket admits is admitted.
func reaches(t *testing.T, what string, r sim.Report, goal float64) {
	t.Helper()
	v := r.AdmittedVsCentral
	t.Logf("%s: admitted %.4f of one central bucket", what, v.Mean)
	if v.Mean < goal {
		t.Errorf("%s: admitted %.4f of one central bucket, want %v; worst seed %d", what, v.Mean, goal, v.WorstSeed)
	}
}

// TestDefaultsReachTheirGoals prints, with -v, the first table of docs/figures.md.
func TestDefaultsReachTheirGoals(t *testing.T) {
	t.Log("| load | limit | processes | of one central bucket | goal | lease calls/s | Jain | worst share |")
	t.Log("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, a := range accuracies {
		s := a.scenario()
		r := run(t, s)
		skew, fairness := "", "| |"
		if a.skew > 0 {
			skew = ", Zipf 1"
		}
		if a.fair {
			fairness = fmt.Sprintf("| %.4f | %.3f", r.Jain.Mean, r.WorstShare.Mean)
		}
		v := r.AdmittedVsCentral
		t.Logf("| %s, %.2g times the limit%s | %v | %d | %.2f ± %.2f %% | %.1f %% | %.0f %s |", a.name,
			a.workload.Load, skew, s.Limits[0], a.n, 100*v.Mean, 100*(v.High-v.Mean), 100*a.goal, r.CallsPerS.Mean,
			fairness)
		what := fmt.Sprintf("%+v", a)
		reaches(t, what, r, a.goal)
		if a.fair && (r.Jain.Mean < 0.999 || r.WorstShare.Mean < 0.95) {
			t.Errorf("%s: Jain %.4f, want 0.999; worst share %.3f, want 0.95", what, r.Jain.Mean, r.WorstShare.Mean)
		}
		target := s.Policy.TargetFor(s.Limits)
		if most := 2 * float64(a.n) / target.Seconds(); r.CallsPerS.Mean > most {
			t.Errorf("%s: %.0f lease calls/s, 2/Target for each process are %.0f", what, r.CallsPerS.Mean, most)
		}
	}
}

// TestAFewProcessesOnASmallBurst: one process, or a few, that ask for twice the limit are admitted
// 98 % of one bucket, whatever the burst: a token that waits in a full bucket keeps the next one
// from flowing in.
func TestAFewProcessesOnASmallBurst(t *testing.T) {
	for _, kind := range []string{sim.Poisson, sim.Constant} {
		for _, n := range []int{1, 2, 4} {
			for _, rate := range []int64{10, 100, 1000} {
				for _, burst := range []int64{1, 2, 3, 4, 5, 10, 20, 100} {
					s := accuracy{rate: rate, burst: burst, n: n, workload: sim.Workload{Kind: kind, Load: 2}}.scenario()
					s.Reps = 3
					if burst*1000 <= rate { // what fits into a round trip of 1 ms is over before anybody hears of it
						s.Network.RoundTrip = sim.Constantly(250 * time.Microsecond)
					}
					reaches(t, fmt.Sprintf("%s, %d processes, %v", kind, n, s.Limits[0]), run(t, s), 0.98)
				}
			}
		}
	}
}

// TestSteadyProcessesThatWaitGetTheirShares: 20 processes that each ask at even intervals, on a
// burst of 3. With Allow the same ones come first to each token for ever, as at one central bucket.
// Whoever waits up to the time between two of its requests gets his share, whatever the phases;
// they are other ones in every replication.
func TestSteadyProcessesThatWaitGetTheirShares(t *testing.T) {
	for _, load := range []float64{1.2, 1.5, 2, 4} {
		r := run(t, accuracy{rate: 100, burst: 3, n: 20, workload: sim.Workload{
			Kind: sim.Constant, Verb: sim.VerbWait, Deadline: 100 * time.Millisecond, Load: load}}.scenario())
		what := fmt.Sprintf("load %v", load)
		w := r.WorstShare
		t.Logf("%s: worst share %.3f, in the worst replication %.3f", what, w.Mean, w.Worst)
		if w.Worst < 0.86 {
			t.Errorf("%s: somebody got %.3f of its share, want 0.86; seed %d", what, w.Worst, w.WorstSeed)
		}
		reaches(t, what, r, 0.98)
	}
}

// TestOvercommitBuysAccuracy: what the overcommit is for. Beside bursts smaller than what the
// processes hold it must not cost admissions, which it did while it made leases longer by itself.
func TestOvercommitBuysAccuracy(t *testing.T) {
	for _, a := range []accuracy{
		{rate: 1000, burst: 10, n: 20, workload: sim.Workload{Load: 0.9}},
		{rate: 1000, burst: 10, n: 20, workload: sim.Workload{Load: 2}},
		{rate: 1000, burst: 100, n: 20, workload: sim.Workload{Load: 0.9}},
		{rate: 100, burst: 5, n: 50, workload: sim.Workload{Load: 0.9}},
		{rate: 10_000, burst: 2000, n: 200, workload: sim.Workload{Load: 0.9}},
	} {
		s := a.scenario()
		without := run(t, s).AdmittedVsCentral.Mean
		s.Policy.Overcommit = a.burst
		reaches(t, fmt.Sprintf("%v, %d processes, load %v, as much overcommit", s.Limits[0], a.n, a.workload.Load),
			run(t, s), without)
	}
}

// TestABurstIsNotPaidForWithSilence: a process that drew most of the burst at once, from a bucket
// that nobody else needed, is not kept from what has flowed in since, however far above its share
// that was.
func TestABurstIsNotPaidForWithSilence(t *testing.T) {
	for _, first := range []int{3000, 6000, 8000} { // with a delay that counted the whole debt 0.73 of 6,000, and 0.61 of 8,000
		trace := &sim.Trace{}
		ask := func(at time.Duration) {
			trace.Requests = append(trace.Requests, sim.TraceRequest{At: at, Cost: 1})
		}
		for burst := range 8 {
			at := time.Duration(1+2*burst) * time.Second
			for range first {
				ask(at)
			}
			for i := range 3000 {
				ask(at + 60*time.Millisecond + time.Duration(i)*100*time.Microsecond)
			}
		}
		r := run(t, sim.Scenario{
			Duration: 17 * time.Second, Reps: 2, Limits: []lease.Limit{lease.PerSecond(10_000)},
			Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Groups: []sim.Group{{Count: 1, Workload: &sim.Workload{Kind: sim.Replay, Trace: trace}},
				{Count: 3, Workload: &sim.Workload{Rate: 300}}},
		})
		reaches(t, fmt.Sprintf("%d at once, 3,000 more 60 ms later", first), r, 0.98)
	}
}

// TestClientTimeWithClocksThatDisagree: with Redis.ClientTime a bucket goes by the clocks of its
// callers. Up to a second between them it follows the one that is furthest ahead, so nothing is
// lost; and the first call of that one refills what would have flowed in meanwhile, once.
func TestClientTimeWithClocksThatDisagree(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
		900 * time.Millisecond} {
		// given four processes whose clocks are up to so much apart, at twice 10,000/s with a burst
		// of 2,000
		s := accuracy{rate: 10_000, burst: 2000, n: 4, workload: sim.Workload{Load: 2}}.scenario()
		s.Redis.ClientTime = true
		s.Clock.Offset = sim.DurationDist{Dist: sim.Dist{Kind: sim.DistUniform, P: -float64(apart) / 2,
			Q: float64(apart) / 2}}
		// when they run
		r, err := sim.Run(t.Context(), s) // exceeds (1), within what is asserted
		if err != nil {
			t.Fatal(err)
		}
		// then they are admitted what one bucket admits
		reaches(t, fmt.Sprintf("%v apart", apart), r, 0.98)
		if most := min(2000, 10_000*apart.Seconds()); r.BoundExceededBy.Worst > most+1 {
			t.Errorf("%v apart: exceeded by %v, at most %v flows in between the clocks", apart,
				r.BoundExceededBy.Worst, most)
		}
	}
}
