package search

import (
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	finalists = 3 // are confirmed side by side; where they fail, as many others are
	// survivorsMax is where halving stops: these are refined.
	survivorsMax = 5
)

// effort is how much one candidate is simulated.
type effort struct {
	duration time.Duration
	reps     int
}

// efforts are those of the search, from the screening to what the survivors get. Together with the
// confirmation, a plan simulates as much as some 40 runs of the scenario.
var efforts = []struct {
	part float64 // of the scenario's duration
	reps int     // three tell luck from merit, with paired differences
}{{0.1, 3}, {0.3, 4}, {1, 5}}

// effortOf is the effort of a round of the search, where the longest lease is so long. A run is no
// shorter than several leases. A scenario in which things happen is never cut short, and none is
// simulated longer or more often than it asks for.
func effortOf(s sim.Scenario, round int, longest time.Duration) effort {
	e := efforts[min(round, len(efforts)-1)]
	counted := max(time.Duration(e.part*float64(s.Duration)), 4*longest+time.Second)
	if !stationary(s) {
		counted = s.Duration
	}
	return effort{min(s.Duration, s.Warmup+counted), min(s.Reps, e.reps)}
}

// full is what the scenario itself asks for.
func full(s sim.Scenario) effort { return effort{s.Duration, s.Reps} }

// stationary reports whether a shorter run of s shows the same as a longer one: nothing happens at
// a time of its own.
func stationary(s sim.Scenario) bool {
	steady := func(w sim.Workload) bool {
		return w.Kind != sim.Diurnal && w.Kind != sim.Flash && w.Kind != sim.Replay
	}
	for _, g := range s.Groups {
		if len(g.Scale) > 0 || g.Workload != nil && !steady(*g.Workload) {
			return false
		}
	}
	return steady(s.Workload) && len(s.Network.Partitions) == 0 && len(s.Redis.Faults) == 0
}
