package search

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

func TestRequestsBecomeDurationsAndReplications(t *testing.T) {
	s := fleet() // 8 replications of 10 s
	for _, c := range []struct {
		what                string
		requests, perSecond float64
		reps                int
		want                effort
	}{
		{"more than enough", 1e9, 100, 3, effort{10 * time.Second, 8}},
		{"enough for all", 8000, 100, 3, effort{10 * time.Second, 8}},
		{"full length goes before more replications", 5000, 100, 3, effort{10 * time.Second, 5}},
		{"three of five seconds", 1500, 100, 3, effort{5 * time.Second, 3}},
		{"six of five seconds", 3000, 100, 6, effort{5 * time.Second, 6}},
		{"no shorter than several leases", 100, 100, 3, effort{1400 * time.Millisecond, 2}},
	} {
		if got := within(s, 100*time.Millisecond, c.requests, c.perSecond, c.reps); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
	s.Warmup = 5 * time.Second
	if got := within(s, 100*time.Millisecond, 0, 100, 3); got.duration <= s.Warmup {
		t.Errorf("%v is over before the warm-up", got.duration)
	}
	s.Reps = 1
	if got := within(s, time.Second, 1e9, 100, 3); got != (effort{10 * time.Second, 1}) {
		t.Errorf("one replication was asked for: %+v", got)
	}
}

func TestAScenarioInWhichThingsHappenIsNeverCutShort(t *testing.T) {
	for name, change := range map[string]func(*sim.Scenario){
		"flash":      func(s *sim.Scenario) { s.Workload.Kind = sim.Flash },
		"diurnal":    func(s *sim.Scenario) { s.Workload.Kind = sim.Diurnal },
		"replay":     func(s *sim.Scenario) { s.Workload.Kind = sim.Replay },
		"own flash":  func(s *sim.Scenario) { s.Groups[0].Workload = &sim.Workload{Kind: sim.Flash} },
		"scale":      func(s *sim.Scenario) { s.Groups[0].Scale = make([]sim.Step, 1) },
		"partitions": func(s *sim.Scenario) { s.Network.Partitions = make([]sim.Partition, 1) },
		"faults":     func(s *sim.Scenario) { s.Redis.Faults = make([]sim.RedisFault, 1) },
	} {
		s := fleet()
		if !stationary(s) || within(s, time.Second, 0, 1, 3).duration == s.Duration {
			t.Fatal("nothing happens in the fleet, so that it may be cut")
		}
		change(&s)
		if got := within(s, time.Second, 0, 1, 3); got != (effort{10 * time.Second, 2}) || probe(s) != (effort{10 * time.Second, 1}) {
			t.Errorf("%s: %+v, probed for %v", name, got, probe(s))
		}
	}
}

func TestTheSearchKeepsToItsBudget(t *testing.T) {
	s := fleet()
	s.Duration, s.Reps = 100*time.Second, 20
	f := rising(func(ms float64) float64 { return ms / 1e5 })
	spent := func(budget int64) int64 {
		w := &world{f: func(s sim.Scenario) truth {
			x := f(s)
			x.calls /= 100 // so that requests are nearly all that costs
			return x
		}}
		p, err := Planner{Run: w.run, Parallel: 1, Budget: budget}.Plan(t.Context(), Question{Scenario: s})
		if err != nil {
			t.Fatal(err)
		}
		return p.Machine.Requests
	}
	// A full run is 1.8 million requests; the confirmation of ten is set aside.
	const confirmed = 7 * 1_800_000
	for _, budget := range []int64{25_000_000, 40_000_000} {
		got := spent(budget)
		t.Logf("budget %d: %d", budget, got)
		if got > budget || got < confirmed+(budget-18_000_000)/4 {
			t.Errorf("%d of a budget of %d", got, budget)
		}
	}
}

func TestADearScenarioIsScreenedThinly(t *testing.T) {
	s := fleet()
	s.Workload.Kind = sim.Flash // so that no run is short
	w := &world{f: rising(func(ms float64) float64 { return ms / 1e5 })}
	screened := func(budget int64) int {
		p, err := Planner{Run: w.run, Parallel: 1, Budget: budget}.Plan(t.Context(), Question{Scenario: s})
		if err != nil {
			t.Fatal(err)
		}
		return p.Phases[1].Candidates
	}
	if dear, cheap := screened(1), screened(0); dear < 9 || dear > screenMin+1 || cheap < 30 {
		t.Errorf("%d policies without any budget, %d with the default one", dear, cheap)
	}
}
