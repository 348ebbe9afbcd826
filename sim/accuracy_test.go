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
	{"all at one instant, exactly the burst", 10_000, 5_000, 40, 0, sim.Workload{Kind: sim.Sync, Load: 1},
		0.98, false},
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

// TestDefaultsReachTheirGoals prints, with -v, the first table of docs/figures.md.
func TestDefaultsReachTheirGoals(t *testing.T) {
	t.Log("| load | limit | processes | of one central bucket | goal | lease calls/s | Jain | worst share |")
	t.Log("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, a := range accuracies {
		s := a.scenario()
		r := run(t, s)
		skew := ""
		if a.skew > 0 {
			skew = ", Zipf 1"
		}
		fairness := "| |"
		if a.fair {
			fairness = fmt.Sprintf("| %.4f | %.3f", r.Jain.Mean, r.WorstShare.Mean)
		}
		v := r.AdmittedVsCentral
		t.Logf("| %s, %.2g times the limit%s | %v | %d | %.2f ± %.2f %% | %.1f %% | %.0f %s |", a.name,
			a.workload.Load, skew, s.Limits[0], a.n,
			100*v.Mean, 100*(v.High-v.Mean), 100*a.goal, r.CallsPerS.Mean, fairness)
		if v.Mean < a.goal {
			t.Errorf("%+v: admitted %.4f of one central bucket, want %v; worst seed %d", a, v.Mean, a.goal,
				v.WorstSeed)
		}
		if a.fair && (r.Jain.Mean < 0.999 || r.WorstShare.Mean < 0.95) {
			t.Errorf("%+v: Jain %.4f, want 0.999; worst share %.3f, want 0.95", a, r.Jain.Mean, r.WorstShare.Mean)
		}
		target := s.Policy.TargetFor(s.Limits)
		if most := 2 * float64(a.n) / target.Seconds(); r.CallsPerS.Mean > most {
			t.Errorf("%+v: %.0f lease calls/s, 2/Target for each process are %.0f", a, r.CallsPerS.Mean, most)
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
					r := run(t, s)
					if v := r.AdmittedVsCentral; v.Mean < 0.98 {
						t.Errorf("%s, %d processes, %v: admitted %.4f of one central bucket, want 0.98; worst seed %d", kind,
							n, s.Limits[0], v.Mean, v.WorstSeed)
					}
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
		s := accuracy{rate: 100, burst: 3, n: 20,
			workload: sim.Workload{Kind: sim.Constant, Verb: sim.VerbWait, Deadline: 100 * time.Millisecond,
				Load: load}}.scenario()
		r := run(t, s)
		w, v := r.WorstShare, r.AdmittedVsCentral
		t.Logf("load %v: worst share %.3f, in the worst replication %.3f; admitted %.4f of one central bucket",
			load, w.Mean, w.Worst, v.Mean)
		if w.Worst < 0.86 {
			t.Errorf("load %v: somebody got %.3f of its share, want 0.86; seed %d", load, w.Worst, w.WorstSeed)
		}
		if v.Mean < 0.98 {
			t.Errorf("load %v: admitted %.4f of one central bucket, want 0.98; worst seed %d", load, v.Mean,
				v.WorstSeed)
		}
	}
}

// TestOvercommitBuysAccuracy: what the overcommit is for. Beside bursts smaller than what the
// processes hold it must not cost admissions, which it did while it made leases longer by itself.
func TestOvercommitBuysAccuracy(t *testing.T) {
	for _, c := range []struct {
		rate, burst int64
		n           int
		load        float64
	}{{1000, 10, 20, 0.9}, {1000, 10, 20, 2}, {1000, 100, 20, 0.9}, {100, 5, 50, 0.9},
		{10_000, 2000, 200, 0.9}} {
		admitted := [2]sim.Figure{}
		for i, e := range []int64{0, c.burst} {
			s := accuracy{rate: c.rate, burst: c.burst, n: c.n, workload: sim.Workload{Load: c.load}}.scenario()
			s.Policy.Overcommit = e
			r := run(t, s)
			admitted[i] = r.AdmittedVsCentral
		}
		t.Logf("%d/s burst %d, %d processes, load %v: %.4f without, %.4f with as much overcommit", c.rate,
			c.burst, c.n, c.load, admitted[0].Mean, admitted[1].Mean)
		if admitted[1].Mean < admitted[0].Mean {
			t.Errorf("%+v: an overcommit lowered what is admitted from %.4f to %.4f", c, admitted[0].Mean,
				admitted[1].Mean)
		}
	}
}

// TestABurstIsNotPaidForWithSilence: a process that drew most of the burst at once, from a bucket
// that nobody else needed, is not kept from what has flowed in since, however far above its share
// that was.
func TestABurstIsNotPaidForWithSilence(t *testing.T) {
	for _, first := range []int{3000, 6000, 8000} { // with a delay that counted the whole debt 0.73 of 6,000, and 0.61 of 8,000
		trace := &sim.Trace{}
		for burst := range 8 {
			at := time.Duration(1+2*burst) * time.Second
			for range first {
				trace.Requests = append(trace.Requests, sim.TraceRequest{At: at, Cost: 1})
			}
			for i := range 3000 {
				trace.Requests = append(trace.Requests,
					sim.TraceRequest{At: at + 60*time.Millisecond + time.Duration(i)*100*time.Microsecond, Cost: 1})
			}
		}
		r := run(t, sim.Scenario{
			Duration: 17 * time.Second, Reps: 2, Limits: []lease.Limit{lease.PerSecond(10_000)},
			Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Groups: []sim.Group{{Count: 1, Workload: &sim.Workload{Kind: sim.Replay, Trace: trace}},
				{Count: 3, Workload: &sim.Workload{Rate: 300}}},
		})
		t.Logf("%d at once, 3,000 more 60 ms later: admitted %.3f of one central bucket", first,
			r.AdmittedVsCentral.Mean)
		if r.AdmittedVsCentral.Mean < 0.98 {
			t.Errorf("%d at once, 3,000 more 60 ms later: admitted %.3f of one central bucket, want 0.98", first,
				r.AdmittedVsCentral.Mean)
		}
	}
}

// TestClientTimeWithClocksThatDisagree: with Redis.ClientTime a bucket goes by the clocks of its
// callers. Up to a second between them it follows the one that is furthest ahead, so nothing is
// lost; and the first call of that one refills what would have flowed in meanwhile, once.
func TestClientTimeWithClocksThatDisagree(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
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
		t.Logf("%v apart: %.2f %% of one bucket, exceeded by %v", apart, 100*r.AdmittedVsCentral.Mean,
			r.BoundExceededBy.Worst)
		// then they are admitted what one bucket admits
		if r.AdmittedVsCentral.Mean < 0.98 {
			t.Errorf("%v apart: admitted %.4f of one central bucket", apart, r.AdmittedVsCentral.Mean)
		}
		if most := min(2000, 10_000*apart.Seconds()); r.BoundExceededBy.Worst > most+1 {
			t.Errorf("%v apart: exceeded by %v, at most %v flows in between the clocks", apart,
				r.BoundExceededBy.Worst, most)
		}
	}
}
