//go:build !race

// These simulations are deterministic and have one goroutine each: the race detector would find
// nothing in ten times the time.

package sim_test

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// accuracies are the rows of the tuning table: what the defaults of lease.Policy give, on one
// limit, from a cold start. The scenarios decided how much a call asks for (internal/protocol/sizer.go)
// and how the rate is shared (internal/protocol/fair.go).
var accuracies = []struct {
	name, limit string
	n           int
	skew        float64
	workload    string
	goal        float64 // for admitted_vs_central
	fair        bool    // Jain's index is 0.999 at least, and the worst share 0.95, too
	trip        string  // round trip
}{
	{"Poisson", "1000/s burst 200", 4, 0, "load: 0.9", 0.995, false, even},
	{"Poisson", "1000/s burst 200", 4, 1, "load: 2", 0.995, true, even},
	{"Poisson", "10000/s burst 2000", 4, 1, "load: 2", 0.995, true, even},
	{"Poisson", "10000/s burst 2000", 50, 1, "load: 0.9", 0.995, false, even},
	{"Poisson", "10000/s burst 2000", 50, 1, "load: 2", 0.995, true, even},
	{"Poisson", "10000/s burst 2000", 200, 0, "load: 0.9", 0.995, false, even},
	{"Poisson", "10000/s burst 2000", 200, 0, "load: 2", 0.995, true, even},
	{"Poisson", "10000/s burst 2000", 200, 1, "load: 0.9", 0.995, false, even},
	{"Poisson", "10000/s burst 2000", 200, 1, "load: 2", 0.995, true, even},
	{"Poisson", "50000/s burst 10000", 20, 1, "load: 2", 0.995, true, even},
	{"on/off", "1000/s burst 1000", 4, 0, "kind: onoff, load: 0.9", 0.98, false, even},
	{"on/off", "10000/s burst 10000", 50, 0, "kind: onoff, load: 0.9", 0.98, false, even},
	{"on/off", "10000/s burst 10000", 200, 0, "kind: onoff, load: 2", 0.98, false, even},
	{"all at one instant", "10000/s burst 10000", 50, 0, "kind: sync, load: 0.9", 0.98, false, even},
	{"all at one instant", "10000/s burst 10000", 200, 0, "kind: sync, load: 0.9", 0.98, false, even},
	{"all at one instant", "10000/s burst 10000", 200, 0, "kind: sync, load: 2", 0.98, false, even},
	{"all at one instant, exactly the burst", "10000/s burst 5000", 40, 0, "kind: sync, load: 1",
		0.98, false, even},
	{"all within 50 ms", "10000/s burst 10000", 200, 0, "kind: sync, load: 2, within: 50ms", 0.98, false, even},
	{"in step within 2 ms", "1000/s burst 1000", 8, 0, inStep + "0.9", 0.98, false, slowTail},
	{"in step within 2 ms, exactly the burst", "1000/s burst 1000", 8, 0, inStep + "1", 0.98, false, slowTail},
	{"in step within 2 ms, exactly the burst", "10000/s burst 10000", 8, 0, inStep + "1", 0.98, false, slowTail},
	{"in step within 2 ms, exactly the burst", "10000/s burst 10000", 50, 1, inStep + "1",
		0.98, false, slowTail},
	{"in step within 50 ms", "1000/s burst 1000", 8, 0, "kind: sync, every: 1s, within: 50ms, load: 1.2",
		0.98, false, slowTail},
	{"small burst", "10/s burst 1", 20, 0, "load: 2", 0.98, false, even},
	{"small burst", "100/s burst 1", 100, 0, "load: 2", 0.98, false, even},
	{"small burst", "100/s burst 5", 50, 0, "load: 2", 0.98, false, even},
	{"small burst", "1000/s burst 10", 20, 0, "load: 2", 0.98, false, even},
	{"small burst", "1000/s burst 10", 500, 0, "load: 2", 0.98, false, even},
}

// Of the rows: round trips that are all alike, or of which one in a hundred takes four times as
// long as the median; and bursts of all processes at the same time.
const (
	even, slowTail = "1ms", "lognormal(800us,3500us)"
	inStep         = "kind: sync, every: 1s, within: 2ms, load: "
)

// fleet is n processes on one limit, with more of the scenario's text; see package file.
func fleet(t testing.TB, limit string, n int, more string, args ...any) sim.Scenario {
	t.Helper()
	const world = "{duration: 30s, limits: [%s], policy: {fallback: deny}, groups: [{count: %d}], "
	text := fmt.Sprintf(world, limit, n) +
		fmt.Sprintf(more, args...) + "}"
	s, err := file.Parse("fleet", []byte(text))
	testkit.NoErr(t, err)
	return s
}

// run runs s; a window that exceeds promise (1) fails the test.
func run(t *testing.T, s sim.Scenario) sim.Report {
	t.Helper()
	r, err := sim.Run(t.Context(), s)
	testkit.NoErr(t, err)
	testkit.Check(t, r.BoundExceededBy.Worst <= 0,
		"%+v: (1) is exceeded by %v, seed %d", s, r.BoundExceededBy.Worst, r.BoundExceededBy.WorstSeed)
	return r
}

// reaches checks that so much of what one central bucket admits is admitted.
func reaches(t *testing.T, what string, r sim.Report, goal float64) {
	t.Helper()
	v := r.AdmittedVsCentral
	t.Logf("%s: admitted %.4f of one central bucket", what, v.Mean)
	testkit.Check(t, v.Mean >= goal,
		"%s: admitted %.4f of one central bucket, want %v; worst seed %d", what, v.Mean, goal, v.WorstSeed)
}

// TestDefaultsReachTheirGoals prints, with -v, the first table of docs/figures.md.
func TestDefaultsReachTheirGoals(t *testing.T) {
	t.Log("| load | limit | processes | of one central bucket | goal | lease calls/s | Jain | worst share |")
	t.Log("| --- | --- | --- | --- | --- | --- | --- | --- |")
	long := testkit.Long(t, "small bursts of up to 100/s, and bursts in step of 1,000/s", "all rows")
	for _, a := range accuracies {
		s := fleet(t, a.limit, a.n, "workload: {%s}, network: {round_trip: %q}", a.workload, a.trip)
		rate := s.Limits[0].Tokens
		if !long && (rate > 1000 || a.trip == even && (a.name != "small burst" || rate > 100)) {
			continue
		}
		s.Groups[0].Skew = a.skew
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
			s.Workload.Load, skew, s.Limits[0], a.n, 100*v.Mean, 100*(v.High-v.Mean), 100*a.goal, r.CallsPerS.Mean,
			fairness)
		what := fmt.Sprintf("%+v", a)
		reaches(t, what, r, a.goal)
		testkit.Check(t, !a.fair || r.Jain.Mean >= 0.999 && r.WorstShare.Mean >= 0.95,
			"%s: Jain %.4f, want 0.999; worst share %.3f, want 0.95", what, r.Jain.Mean, r.WorstShare.Mean)
		target := s.Policy.TargetFor(s.Limits)
		if most := 2 * float64(a.n) / target.Seconds(); r.CallsPerS.Mean > most {
			t.Errorf("%s: %.0f lease calls/s, 2/Target for each process are %.0f", what, r.CallsPerS.Mean, most)
		}
	}
}

// TestAFewProcessesOnASmallBurst: one process, or a few, that ask for twice the limit are admitted
// 97.5 % of one bucket, whatever the burst: a token that waits in a full bucket keeps the next one
// from flowing in.
func TestAFewProcessesOnASmallBurst(t *testing.T) {
	kinds, rates := []string{sim.Poisson, sim.Constant}, []int{10, 100, 1000}
	if !testkit.Long(t, "Poisson arrivals at up to 100/s", "all arrivals and rates") {
		kinds, rates = kinds[:1], rates[:2]
	}
	for _, kind := range kinds {
		for _, n := range []int{1, 2, 4} {
			for _, rate := range rates {
				for _, burst := range []int{1, 2, 3, 4, 5, 10, 20, 100} {
					trip := "1ms"
					if burst*1000 <= rate { // what fits into a round trip is over before anybody hears of it
						trip = "250us"
					}
					limit := fmt.Sprintf("%d/s burst %d", rate, burst)
					s := fleet(t, limit, n, "reps: 2, workload: {kind: %s, load: 2}, network: {round_trip: %s}", kind, trip)
					reaches(t, fmt.Sprintf("%s, %d processes, %s", kind, n, limit), run(t, s), 0.975)
				}
			}
		}
	}
}

// TestSteadyProcessesThatWaitGetTheirShares: 20 processes that each ask at even intervals, on a
// burst of 3. With Allow the same ones come first to each token for ever, as at one central bucket.
// A process that waits up to the time between two of its requests gets its share, whatever the
// phases; these differ in every replication.
func TestSteadyProcessesThatWaitGetTheirShares(t *testing.T) {
	loads := []float64{1.5, 1.2, 2, 4}
	for _, load := range loads[:testkit.ShortOrLong(t, 1, len(loads), "loads")] {
		r := run(t, fleet(t, "100/s burst 3", 20,
			"workload: {kind: constant, verb: wait, deadline: 100ms, load: %v}", load))
		what := fmt.Sprintf("load %v", load)
		w := r.WorstShare
		t.Logf("%s: worst share %.3f, in the worst replication %.3f", what, w.Mean, w.Worst)
		testkit.Check(t, w.Worst >= 0.86,
			"%s: somebody got %.3f of its share, want 0.86; seed %d", what, w.Worst, w.WorstSeed)
		reaches(t, what, r, 0.97)
	}
}

// TestALineAtTwiceTheLimitWastesNothing: 16 processes whose requests wait for up to 5 s for many tokens. Most
// are found hopeless while they have some of their tokens, which the next in line has to have then: on their
// way back they would be worth nothing, as the bucket has refilled as much since.
func TestALineAtTwiceTheLimitWastesNothing(t *testing.T) {
	costs := []struct {
		tokens int
		part   float64
		// The last is a quarter of a second's limit at a time
	}{{634, 0.99}, {100, 0.99}, {2000, 0.99}, {8000, 0.75}}
	for _, c := range costs[:testkit.ShortOrLong(t, 1, len(costs), "costs")] {
		s := fleet(t, "2000000/m burst 200000", 16,
			"reps: 2, workload: {load: 2, verb: wait, deadline: 5s, cost: %d}",
			c.tokens)
		s.Duration = time.Minute
		reaches(t, fmt.Sprintf("requests for %d", c.tokens), run(t, s), c.part)
	}
}

// TestOvercommitBuysAccuracy: what the overcommit is for. Beside bursts smaller than what the
// processes hold it must not cost admissions, which it did while it made leases longer by itself.
func TestOvercommitBuysAccuracy(t *testing.T) {
	all := []struct {
		limit string
		n     int
		load  float64
	}{{"100/s burst 5", 50, 0.9}, {"1000/s burst 10", 20, 0.9}, {"1000/s burst 10", 20, 2},
		{"1000/s burst 100", 20, 0.9}, {"10000/s burst 2000", 200, 0.9}}
	for _, c := range all[:testkit.ShortOrLong(t, 1, len(all), "fleets")] {
		s := fleet(t, c.limit, c.n, "workload: {load: %v}", c.load)
		// Twenty processes with leases of 2.5 ms exceed the default budget of calls. Longer leases cost
		// the first limit half a percent, with an overcommit or without: not the question here.
		s.Policy.CallsPerSecond = 20_000
		without := run(t, s).AdmittedVsCentral.Mean
		s.Policy.Overcommit = s.Limits[0].Burst
		// A reply that takes four times as long as most finds longer leases spent, which costs a little.
		reaches(t, fmt.Sprintf("%+v, with as much overcommit", c), run(t, s), without-0.003)
	}
}

// TestABurstIsNotPaidForWithSilence: a process that drew most of an idle bucket's burst at once may
// draw the tokens that have flowed in since, however far above its share the burst was.
func TestABurstIsNotPaidForWithSilence(t *testing.T) {
	// With a delay that counted the whole debt 0.73 were admitted of 6,000, and 0.61 of 8,000.
	for _, first := range []int{3000, 6000, 8000} {
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
		s := fleet(t, "10000/s", 1, "reps: 2")
		s.Duration = 17 * time.Second
		s.Groups = []sim.Group{{Workload: &sim.Workload{Kind: sim.Replay, Trace: trace}},
			{Count: 3, Workload: &sim.Workload{Rate: 300}}}
		reaches(t, fmt.Sprintf("%d at once, 3,000 more 60 ms later", first), run(t, s), 0.98)
	}
}

// BenchmarkFleet has a goal of 5,000,000 requests a second for 200 processes and of 1,000,000 for 10,000: the
// auditor on, rivals off, on one core. The reference is an operation of a heap of 200 times,
// which any simulator of 200 processes needs once a request.
func BenchmarkFleet(b *testing.B) {
	for _, c := range []struct {
		processes int
		load      float64
	}{{200, 0.9}, {200, 2}, {10_000, 2}} {
		b.Run(fmt.Sprintf("%d processes, load %v", c.processes, c.load), func(b *testing.B) {
			s := fleet(b, "100000/s burst 40000", c.processes, "reps: 1, workload: {load: %v}", c.load)
			s.Duration = 10 * time.Second
			requests, reference := int64(0), time.Duration(0)
			const operations = 1_000_000
			for b.Loop() {
				r, err := sim.Runner{Parallel: 1}.Run(b.Context(), s)
				testkit.NoErr(b, err)
				requests += r.Machine.Requests
				reference += heapTime(operations)
			}
			each := float64(b.Elapsed()-reference) / float64(requests)
			b.ReportMetric(1e9/each, "requests/s")
			b.ReportMetric(each*operations*float64(b.N)/float64(reference), "ratio")
		})
	}
}

// heapTime is the time of n operations on a heap of 200 times: the earliest moves on by an hour or less.
func heapTime(n int) time.Duration {
	h := make(times, 200)
	start := time.Now()
	for i := range n {
		h[0] += int64(i*7919) % 3600
		heap.Fix(&h, 0)
	}
	return time.Since(start)
}

// times is a heap.Interface; the earliest time is the first.
type times []int64

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i] < t[j] }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(x any)        { *t = append(*t, x.(int64)) }
func (t *times) Pop() any          { panic("nothing leaves") }

// TestAWindowAdmitsNearlyWhatACentralLogDoes: processes that ask for twice a sliding window are
// admitted 97 % of what one log of all requests would admit at 10 s and more, and 90 % at a second:
// over sixty windows and a half, as each begins a little later than the log's, and a run that ends
// between two would hide that. It prints, with -v, what docs/windows.md has a table of.
func TestAWindowAdmitsNearlyWhatACentralLogDoes(t *testing.T) {
	all := []struct {
		limit string
		span  time.Duration
		goal  float64
	}{
		{"100 in 10s", 10 * time.Second, 0.97}, {"100 in 1s", time.Second, 0.90},
		{"1000 in 1s", time.Second, 0.90}, {"1000 in 10s", 10 * time.Second, 0.97},
		{"1000 in 1m", time.Minute, 0.97},
	}
	for _, w := range all[:testkit.ShortOrLong(t, 1, len(all), "windows")] {
		for _, n := range []int{4, 16} {
			for _, kind := range []string{sim.Poisson, sim.Constant, sim.Adversary, scenario.OnOff} {
				load := ", load: 2"
				if kind == sim.Adversary { // asks for all that there is
					load = ""
				}
				s := fleet(t, w.limit, n, "workload: {kind: %s%s}", kind, load)
				s.Duration, s.Reps = 60*w.span+w.span/2, 1
				reaches(t, fmt.Sprintf("%s, %d processes, %s", w.limit, n, kind), run(t, s), w.goal)
			}
		}
	}
}
