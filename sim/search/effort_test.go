package search

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

func TestTheEffortRisesFromRoundToRound(t *testing.T) {
	s := fleet() // 8 replications of 10 s
	for _, c := range []struct {
		round   int
		longest time.Duration
		want    effort
	}{
		{0, 0, effort{time.Second, 3}},
		{0, 100 * time.Millisecond, effort{1400 * time.Millisecond, 3}}, // no shorter than several leases
		{0, 3 * time.Second, effort{10 * time.Second, 3}},
		{1, 100 * time.Millisecond, effort{3 * time.Second, 4}},
		{2, 100 * time.Millisecond, effort{10 * time.Second, 5}},
		{9, 100 * time.Millisecond, effort{10 * time.Second, 5}},
	} {
		if got := effortOf(s, c.round, c.longest); got != c.want {
			t.Errorf("round %d, leases of %v: %+v, want %+v", c.round, c.longest, got, c.want)
		}
	}
	// The warm-up comes on top, and no more is run than was asked for.
	s.Warmup, s.Reps = 5*time.Second, 1
	if got := effortOf(s, 0, 0); got != (effort{6 * time.Second, 1}) {
		t.Errorf("%+v", got)
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
		if effortOf(s, 0, 0).duration == s.Duration {
			t.Fatal("nothing happens in the fleet, so that it may be cut")
		}
		change(&s)
		if got := effortOf(s, 0, 0); got != (effort{10 * time.Second, 3}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
