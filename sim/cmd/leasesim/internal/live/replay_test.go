package live

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/stamps"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// recorded is a scenario that replays three requests.
func recorded() sim.Scenario {
	return sim.Scenario{
		Duration: time.Second, Limits: []lease.Limit{lease.PerSecond(100)},
		Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Keys:   sim.Keys{Count: 2},
		Groups: []sim.Group{{Name: "a", Count: 2}, {Name: "b", Count: 1, Weight: 3}},
		Workload: sim.Workload{Kind: sim.Replay,
			Trace: &sim.Trace{Keys: 3, Processes: 4, Requests: []sim.TraceRequest{
				{At: 0, Process: 0, Key: 0, Cost: 1}, {At: 5, Process: 3, Key: 2, Cost: 7},
				{At: 2 * time.Second, Cost: 1},
			}}},
	}
}

func TestAScenarioThatReplaysATraceIsRunByRealProcesses(t *testing.T) {
	testkit.RequireSignals(t)
	o, err := FromScenario(recorded())
	testkit.NoErr(t, err)
	testkit.Check(t, o.Processes == 3 && o.Keys == 2 && o.Weights[1] == 1 && o.Weights[2] == 3, "%+v", o)
	// The simulator's numbers go round: of keys, of processes; what comes after the end is not made.
	parts := o.parts()
	testkit.Check(t, len(parts) == 3 && len(parts[0]) == 2 &&
		parts[0][1] == sim.TraceRequest{At: 5, Key: 0, Cost: 7} && len(parts[1])+len(parts[2]) == 0, "%+v", parts)
	// A single stop and a single kill happen to real processes too.
	s := recorded()
	s.Groups[0].Pauses = sim.Stops{At: 200 * time.Millisecond, For: sim.Constantly(300 * time.Millisecond)}
	s.Groups[1].Scale = []sim.Step{{At: 400 * time.Millisecond, Kill: true}}
	o, err = FromScenario(s)
	testkit.Check(t, err == nil && o.StopAfter == 200*time.Millisecond && o.StopFor == 300*time.Millisecond &&
		o.KillAfter == 400*time.Millisecond, "%+v %v", o, err)
	// Other fields are refused by name.
	random, one := sim.Stops{Every: time.Second}, sim.Stops{At: time.Millisecond}
	for want, change := range map[string]func(s *sim.Scenario){
		"groups[0].pauses.every": func(s *sim.Scenario) { s.Groups[0].Pauses = random },
		"groups[1].pauses.at":    func(s *sim.Scenario) { s.Groups[1].Pauses = one },
		"groups[0].restarts.at":  func(s *sim.Scenario) { s.Groups[0].Restarts = one },
		"groups[0].scale":        func(s *sim.Scenario) { s.Groups[0].Scale = []sim.Step{{Count: 1, Kill: true}} },
		"groups[1].scale":        func(s *sim.Scenario) { s.Groups[1].Scale = []sim.Step{{Count: 0}} },
		"workload.repeated":      func(s *sim.Scenario) { s.Workload.Repeated = true },
		"groups[1].skew":         func(s *sim.Scenario) { s.Groups[1].Skew = 1 },
		"groups[0].headroom":     func(s *sim.Scenario) { s.Groups[0].Headroom = 0.5 },
		"workload.verb":          func(s *sim.Scenario) { s.Workload.Verb = sim.VerbTry },
	} {
		s := recorded()
		change(&s)
		_, err := FromScenario(s)
		testkit.Check(t, errors.Is(err, ErrUsage) && strings.Contains(err.Error(), want), "%s: %v", want, err)
	}
}

// TestATraceIsAdmittedAsTheSimulatorSays: on fake time, processes that play a trace to one store are
// admitted what the simulator says that they are, each of them and all together.
func TestATraceIsAdmittedAsTheSimulatorSays(t *testing.T) {
	one := func(*rand.Rand) int64 { return 1 }
	for _, c := range []struct {
		name      string
		perSecond float64
		limit     lease.Limit
		keys      int
		cost      func(*rand.Rand) int64
		weights   []int64
		killed    bool // the last process, after 2 s
	}{
		{"a small burst", 1000, lease.PerSecond(500).WithBurst(5), 1, one, []int64{1, 1, 1, 1, 1, 1}, false},
		{"weights", 6000, lease.PerSecond(3000).WithBurst(300), 1, one, []int64{1, 2, 3, 4}, false},
		{"keys", 2000, lease.PerSecond(10).WithBurst(20), 300, one, []int64{1, 1, 1, 1}, false},
		{"costs", 100, lease.PerSecond(100_000).WithBurst(20_000), 1, func(r *rand.Rand) int64 {
			return 1 + r.Int64N(4000)
		}, []int64{1, 1, 1, 1}, false},
		{"heavy-tailed costs", 1000, lease.PerSecond(50_000).WithBurst(20_000), 1, func(r *rand.Rand) int64 {
			return int64(min(20/math.Pow(1-r.Float64(), 1/1.15), 20000))
		}, []int64{1, 1, 1, 1}, false},
		{"a kill", 2000, lease.PerSecond(1200).WithBurst(200), 1, one, []int64{1, 1, 1, 1}, true},
	} {
		// Given Poisson requests for five seconds, of which key k has a part in proportion to 1/k,
		const seconds = 5
		r := rand.New(rand.NewPCG(1, 1))
		trace := &sim.Trace{Keys: c.keys, Processes: len(c.weights)}
		for at := r.ExpFloat64() / c.perSecond; at < seconds; at += r.ExpFloat64() / c.perSecond {
			trace.Requests = append(trace.Requests, sim.TraceRequest{
				At: time.Duration(at * 1e9), Process: r.IntN(len(c.weights)),
				Key: int(math.Exp(r.Float64()*math.Log(float64(c.keys)+1))) - 1, Cost: c.cost(r),
			})
		}
		s := sim.Scenario{Duration: seconds * time.Second, Reps: 1, Limits: []lease.Limit{c.limit},
			Policy: lease.Policy{Fallback: lease.FallbackDeny}, Keys: sim.Keys{Count: c.keys},
			Network:  sim.Network{RoundTrip: sim.Constantly(time.Microsecond)},
			Redis:    sim.Redis{ServiceTime: sim.Constantly(time.Microsecond)},
			Workload: sim.Workload{Kind: sim.Replay, Trace: trace}}
		for i, w := range c.weights {
			s.Groups = append(s.Groups, sim.Group{Name: fmt.Sprint("g", i), Count: 1, Weight: w})
		}
		if c.killed {
			s.Groups[len(c.weights)-1].Scale = []sim.Step{{At: 2 * time.Second, Kill: true}}
		}
		// when it is played to real limiters, and simulated,
		o, err := FromScenario(s)
		testkit.NoErr(t, err)
		admitted := playOnFakeTime(t, o)
		want, err := sim.Run(t.Context(), s)
		testkit.NoErr(t, err)
		// then the two agree. Which process is served first is up to the scheduler, and a weight that goes
		// astray is off by far more. Of many keys the simulator tells processes apart for one alone.
		total := int64(0)
		for i, got := range admitted {
			m := want.Members[i]
			total += got
			near := math.Abs(float64(got-m.Admitted)) <= 0.25*float64(m.Admitted)
			testkit.Check(t, near || c.keys > 1, "%s: process %d is admitted %d, simulated %d",
				c.name, i, got, m.Admitted)
		}
		off := math.Abs(float64(total)/want.Admitted.Mean - 1)
		testkit.Check(t, off <= 0.05, "%s: %d are admitted, simulated %v", c.name, total, want.Admitted.Mean)
	}
}

// playOnFakeTime has a fleet play its trace, and returns what each process was admitted.
func playOnFakeTime(t *testing.T, o Options) (admitted []int64) {
	t.Helper()
	parts := o.parts()
	children := make([]*child, o.Processes)
	for i := range children {
		path := filepath.Join(t.TempDir(), "stamps")
		testkit.NoErr(t, writeTrace(path, parts[i]))
		file, err := stamps.Create(path, o.capacity())
		testkit.NoErr(t, err)
		defer file.Close()
		children[i] = &child{orders: orders{Options: o, Index: i, Path: path}, file: file, took: newLatencies()}
	}
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(clock.System())
		var wg sync.WaitGroup
		for _, c := range children {
			var err error
			c.limiter, err = hybrid.New(store, c.config())
			testkit.NoErr(t, err)
			defer c.limiter.Close()
			wg.Go(func() { testkit.Check(t, c.play() == nil, "process %d does not play", c.Index) })
		}
		if o.KillAfter > 0 { // which begins with the next period
			time.Sleep(period + o.KillAfter)
			children[len(children)-1].ended.Store(true)
		}
		wg.Wait()
	})
	for i, c := range children {
		admitted = append(admitted, played(c.file, parts[i], map[int][]audit.Span{}))
	}
	return admitted
}

func TestEachKeyOfATraceHasABoundOfItsOwn(t *testing.T) {
	o := Options{Limit: "1/s burst 2", Keys: 2}
	// Given 3 tokens at once of two keys together, all is well; of one key, one is too many.
	for _, c := range []struct {
		other int
		want  int64
	}{{1, 0}, {0, 1}} {
		byKey := map[int][]audit.Span{0: {{Before: 5, After: 6, N: 2}}}
		byKey[c.other] = append(byKey[c.other], audit.Span{Before: 5, After: 6, N: 1})
		w, err := worstOf(audit.Of(o.limit(), 0), 2, byKey, interval{})
		testkit.Check(t, err == nil && w.ExceededBy == c.want, "%+v %v", w, err)
	}
}

func TestAMachineThatMakesRequestsLateIsOverloaded(t *testing.T) {
	target := Options{Limit: "100/s"}.leased().Target
	for late, want := range map[time.Duration]bool{time.Millisecond: false, 50 * time.Millisecond: true} {
		got := isOverloaded(Quantiles{P99: int64(late)}, target)
		testkit.Check(t, got == want, "%v late: %v", late, got)
	}
}

func TestAnEmbeddedRedisThatIsTooSlowIsNamed(t *testing.T) {
	for _, c := range []struct {
		redis string
		trip  time.Duration
		named bool
	}{{embedded, 60 * time.Millisecond, true}, {embedded, 5 * time.Millisecond, false},
		{"localhost:6379", 60 * time.Millisecond, false}} {
		var b strings.Builder
		r := Report{Redis: c.redis, TargetMs: 62.5, TTLMs: 720_000, RoundTripNs: Quantiles{P50: int64(c.trip)},
			Processes: make([]Process, 1), DurationMs: 1}
		testkit.NoErr(t, r.WriteTable(&b))
		testkit.Check(t, strings.Contains(b.String(), "TOO SLOW") == c.named, "%+v:\n%s", c, b.String())
		testkit.Check(t, strings.Contains(b.String(), "leases of target 62.5ms, TTL 12m0s\n"), "%s", b.String())
	}
}
