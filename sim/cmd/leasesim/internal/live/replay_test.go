package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// recorded is a scenario that replays three requests.
func recorded() sim.Scenario {
	return sim.Scenario{
		Duration: time.Second, Limits: []lease.Limit{lease.PerSecond(100)}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
		Keys:   sim.Keys{Count: 2},
		Groups: []sim.Group{{Name: "a", Count: 2}, {Name: "b", Count: 1, Weight: 3}},
		Workload: sim.Workload{Kind: sim.Replay, Trace: &sim.Trace{Keys: 3, Processes: 4, Requests: []sim.TraceRequest{
			{At: 0, Process: 0, Key: 0, Cost: 1}, {At: 5, Process: 3, Key: 2, Cost: 7}, {At: 2 * time.Second, Cost: 1},
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
	testkit.Check(t, len(parts) == 3 && len(parts[0]) == 2 && parts[0][1] == sim.TraceRequest{At: 5, Key: 0, Cost: 7} &&
		len(parts[1])+len(parts[2]) == 0, "%+v", parts)
	// What is done to them once is done to real processes too.
	s := recorded()
	s.Groups[0].Pauses = sim.Stops{At: 200 * time.Millisecond, For: sim.Constantly(300 * time.Millisecond)}
	s.Groups[1].Scale = []sim.Step{{At: 400 * time.Millisecond, Kill: true}}
	o, err = FromScenario(s)
	testkit.Check(t, err == nil && o.StopAfter == 200*time.Millisecond && o.StopFor == 300*time.Millisecond &&
		o.KillAfter == 400*time.Millisecond, "%+v %v", o, err)
	// What real processes do not do is refused by name.
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

func TestEachKeyOfATraceHasABoundOfItsOwn(t *testing.T) {
	o := Options{Rate: 1, Burst: 2, Keys: 2}
	// Given 3 tokens at once of two keys together, all is well; of one key, one is too many.
	for _, c := range []struct {
		other int
		want  int64
	}{{1, 0}, {0, 1}} {
		byKey := map[int][]audit.Span{0: {{Before: 5, After: 6, N: 2}}}
		byKey[c.other] = append(byKey[c.other], audit.Span{Before: 5, After: 6, N: 1})
		w, err := o.auditTrace(byKey)
		testkit.Check(t, err == nil && w.ExceededBy == c.want, "%+v %v", w, err)
	}
}

func TestAMachineThatMakesRequestsLateIsOverloaded(t *testing.T) {
	for late, want := range map[time.Duration]bool{time.Millisecond: false, 50 * time.Millisecond: true} {
		took := newLatencies()
		for range 100 {
			took.observe(took.lags, late)
		}
		o := Options{Rate: 100, Burst: 100, Shape: ShapeSteady, Duration: time.Second}
		exited := took.told()
		r := Report{}
		all := newLatencies()
		all.merge(exited)
		r.late(all, o.leased().Target)
		testkit.Check(t, r.Overloaded == want && r.LagNs.P99 > 0, "%v late: %+v", late, r)
	}
}

func TestAnEmbeddedRedisThatIsTooSlowIsNamed(t *testing.T) {
	for _, c := range []struct {
		redis string
		trip  time.Duration
		named bool
	}{{embedded, 60 * time.Millisecond, true}, {embedded, 5 * time.Millisecond, false}, {"localhost:6379", 60 * time.Millisecond, false}} {
		var b strings.Builder
		r := Report{Redis: c.redis, TargetMs: 62.5, TTLMs: 720_000, RoundTripNs: Quantiles{P50: int64(c.trip)}, Processes: make([]Process, 1), DurationMs: 1}
		testkit.NoErr(t, r.WriteTable(&b))
		testkit.Check(t, strings.Contains(b.String(), "TOO SLOW") == c.named, "%+v:\n%s", c, b.String())
		testkit.Check(t, strings.Contains(b.String(), "leases of target 62.5ms, TTL 12m0s\n"), "%s", b.String())
	}
}
