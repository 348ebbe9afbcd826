package search

import (
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

const (
	// DefaultBudget lets a plan end within a minute on two cores: a core simulates four million
	// requests a second and more.
	DefaultBudget = 400_000_000
	// callCost is how many requests a simulated lease call takes as long as: about 5 us against
	// 0.15 us.
	callCost = 30
	// repsMin tells luck from merit with paired differences; repsScreen is where screening starts.
	repsMin, repsScreen = 2, 3
	// finalists are confirmed side by side; confirmRounds bounds how often others get a turn after
	// them.
	finalists, confirmRounds = 3, 2
	// survivorsMax is where halving stops: these are refined.
	survivorsMax = 5
)

// effort is how much one candidate is simulated.
type effort struct {
	duration time.Duration
	reps     int
}

// load is what the scenario offers and how it leases, as a short run of its own policy showed it. So
// it holds for every kind of workload, closed loops and traces too.
type load struct {
	requestsPerS float64
	calls        float64 // per second, with leases as long as target
	target       time.Duration
}

func loadOf(t *trial) load {
	r := &t.report
	seconds := max(r.DurationS, 1e-9) * float64(max(r.Reps, 1))
	return load{float64(r.Machine.Requests) / seconds, t.calls(), t.target}
}

// callsPerS estimates a choice's lease calls: a lease that is half as long is renewed twice as
// often, but a request needs at most one call.
func (l load) callsPerS(c choice) float64 {
	return min(l.requestsPerS, l.calls*l.target.Seconds()/max(c.target.Seconds(), 1e-9))
}

// stationary reports whether a shorter run of s shows the same as a longer one: nothing happens at a
// time of its own.
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

// full is what the scenario itself asks for.
func full(s sim.Scenario) effort { return effort{s.Duration, s.Reps} }

// probe is the run that finds the load.
func probe(s sim.Scenario) effort {
	if !stationary(s) {
		return effort{s.Duration, 1}
	}
	return effort{min(s.Duration, s.Warmup+max(s.Duration/10, time.Second)), 1}
}

// within divides requests between candidates: how long and how often each may be simulated, when one
// second of all of them together costs perSecond requests. It is at least repsMin short replications
// and at most what the scenario asks for. A scenario in which things happen is never cut short.
func within(s sim.Scenario, longest time.Duration, requests, perSecond float64, reps int) effort {
	seconds := requests / max(perSecond, 1e-9)
	e := effort{s.Duration, min(max(reps, repsMin), s.Reps)}
	if stationary(s) {
		// A tenth of the run, but several of the longest leases.
		low := min(s.Duration, s.Warmup+max(s.Duration/10, 4*longest+time.Second))
		length := min(seconds/float64(e.reps), s.Duration.Seconds())
		e.duration = max(low, time.Duration(length*10)*(time.Second/10))
	}
	most := int(min(seconds/e.duration.Seconds(), 1e6))
	if e.duration == s.Duration || most < e.reps {
		e.reps = most
	}
	e.reps = min(max(e.reps, repsMin), s.Reps)
	return e
}
