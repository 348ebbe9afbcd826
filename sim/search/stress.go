package search

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// The stresses that a plan tries its winner under.
const (
	StressSkew      = "skew"      // clocks twice as wrong, in offset and drift
	StressOutage    = "outage"    // Redis refuses connections in the middle of the run
	StressProcesses = "processes" // half as many processes again share the same load
)

// Stresses are the valid values of Question.MustHold, in the order of a Plan.
var Stresses = []string{StressSkew, StressOutage, StressProcesses}

// ErrStress is wrapped by the error about a stress that there is not.
var ErrStress = errors.New("search: unknown stress")

const (
	// Clocks that are right have no error to double; then they are as wrong as two bad quartzes
	// (100 ppm each) and a host without NTP.
	stressOffset   = time.Second
	stressDriftPPM = 200
	// The outage lasts as long as a failover that goes well, or a tenth of a short run.
	stressOutage = time.Second
)

// stressed is s, with its defaults, under a stress. The caller's own stays as it is.
func stressed(s sim.Scenario, name string) sim.Scenario {
	s.Groups = slices.Clone(s.Groups)
	switch name {
	case StressSkew:
		s.Clock = doubled(s.Clock)
		for i := range s.Groups {
			if c := s.Groups[i].Clock; c != nil {
				wrong := doubled(*c)
				s.Groups[i].Clock = &wrong
			}
		}
	case StressOutage:
		middle := s.Warmup + (s.Duration-s.Warmup)/2
		outage := sim.RedisFault{Kind: sim.FaultOutage, At: middle, For: outageLength(s)}
		s.Redis.Faults = append(slices.Clip(s.Redis.Faults), outage)
	case StressProcesses:
		// A closed loop's load is that of the clients of each process; others have the load of all.
		fewer := func(clients int) int { return max(1, (2*clients+1)/3) }
		for i := range s.Groups {
			g := &s.Groups[i]
			g.Count = halfAgain(g.Count)
			g.Scale = slices.Clone(g.Scale)
			for j := range g.Scale {
				g.Scale[j].Count = halfAgain(g.Scale[j].Count)
			}
			if g.Workload != nil {
				w := *g.Workload
				w.Clients = fewer(w.Clients)
				g.Workload = &w
			}
		}
		s.Workload.Clients = fewer(s.Workload.Clients)
	}
	return s
}

func halfAgain(n int) int { return n + (n+1)/2 }

func doubled(c sim.Clock) sim.Clock {
	if c.Offset.IsZero() {
		c.Offset = sim.Constantly(stressOffset)
	} else {
		c.Offset.Dist = twice(c.Offset.Dist)
	}
	if c.Drift.IsZero() {
		c.Drift.P = stressDriftPPM
	} else {
		c.Drift.Dist = twice(c.Drift.Dist)
	}
	return c
}

// twice is the distribution of twice the value.
func twice(d sim.Dist) sim.Dist {
	d.P *= 2
	if d.Kind != sim.DistPareto { // whose Q is a shape
		d.Q *= 2
	}
	return d
}

func outageLength(s sim.Scenario) time.Duration { return min(stressOutage, (s.Duration-s.Warmup)/10) }

// outagePart is the part of the counted time that the outage takes.
func outagePart(s sim.Scenario) float64 {
	return float64(outageLength(s)) / float64(s.Duration-s.Warmup)
}

// forgiven is the part of what counts that a stress costs every policy, whatever its lengths are:
// under deny, an outage rejects that part of an even load, but for what leases still hold.
func forgiven(s sim.Scenario, name string) float64 {
	if name != StressOutage || s.Policy.Fallback != lease.FallbackDeny {
		return 0
	}
	return outagePart(s)
}

// forgiving is targets with that much more room where they are about what is rejected.
func forgiving(targets []Target, part float64) []Target {
	all := slices.Clone(targets)
	for i := range all {
		switch t := &all[i]; {
		case t.Figure == "false_reject_ratio" && !t.Floor:
			t.Bound += part
		case t.Figure == "admitted_vs_central" && t.Floor:
			t.Bound -= part
		}
	}
	return all
}

// underStress describes what a stress does to s, for people.
func underStress(s sim.Scenario, name string) string {
	switch name {
	case StressSkew:
		return "clocks twice as wrong"
	case StressOutage:
		return fmt.Sprintf("Redis away for %v, %.3g %% of what counts", outageLength(s), 100*outagePart(s))
	}
	before, after := 0, 0
	for _, g := range s.Groups {
		before += g.Count
		after += halfAgain(g.Count)
	}
	return fmt.Sprintf("%d processes instead of %d", after, before)
}
