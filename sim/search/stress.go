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
	// Clocks that are right have no error to double; then they are as wrong as two bad quartzes (100
	// ppm each) and a host without NTP.
	stressOffset   = time.Second
	stressDriftPPM = 200
	// The outage lasts as long as a failover that goes well, or a tenth of a short run.
	stressOutage = time.Second
)

// stressed is s, with its defaults, under a stress, and what that does, for people. The caller's
// own scenario stays as it is.
func stressed(s sim.Scenario, name string) (harder sim.Scenario, description string) {
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
		return s, "clocks twice as wrong"
	case StressOutage:
		length, part := outage(s)
		fault := sim.RedisFault{Kind: sim.FaultOutage, At: s.Warmup + (s.Duration-s.Warmup)/2, For: length}
		s.Redis.Faults = append(slices.Clip(s.Redis.Faults), fault)
		return s, fmt.Sprintf("Redis away for %v, %.3g %% of what counts", length, 100*part)
	}
	// A closed loop's load is that of the clients of each process; others have the load of all.
	fewer := func(w *sim.Workload) {
		if w.Kind == sim.Closed {
			w.Clients = max(1, (2*w.Clients+1)/3)
		}
	}
	halfAgain := func(n int) int { return n + (n+1)/2 }
	before, after := 0, 0
	for i := range s.Groups {
		g := &s.Groups[i]
		before += g.Count
		g.Count = halfAgain(g.Count)
		after += g.Count
		g.Scale = slices.Clone(g.Scale)
		for j := range g.Scale {
			g.Scale[j].Count = halfAgain(g.Scale[j].Count)
		}
		if g.Workload != nil {
			w := *g.Workload
			fewer(&w)
			g.Workload = &w
		}
	}
	fewer(&s.Workload)
	return s, fmt.Sprintf("%d processes instead of %d", after, before)
}

func doubled(c sim.Clock) sim.Clock {
	if c.Offset.Dist = twice(c.Offset.Dist); c.Offset.IsZero() {
		c.Offset = sim.Constantly(stressOffset)
	}
	if c.Drift.Dist = twice(c.Drift.Dist); c.Drift.IsZero() {
		c.Drift.P = stressDriftPPM
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

// outage is how long that of a stress lasts, and which part of what counts.
func outage(s sim.Scenario) (length time.Duration, part float64) {
	counted := s.Duration - s.Warmup
	length = min(stressOutage, counted/10)
	return length, float64(length) / float64(counted)
}

// forgiving is targets, with more room where a stress costs it to every policy whatever its lengths
// are: under deny, an outage rejects its part of an even load, but for what leases still hold.
func forgiving(targets []Threshold, s sim.Scenario, name string) (all []Threshold, part float64) {
	if name != StressOutage || s.Policy.Fallback != lease.FallbackDeny {
		return targets, 0
	}
	_, part = outage(s)
	all = slices.Clone(targets)
	for i := range all {
		switch t := &all[i]; {
		case t.Figure == "false_reject_ratio" && t.Op == "<=":
			t.Bound += part
		case t.Figure == "admitted_vs_central" && t.Op == ">=":
			t.Bound -= part
		}
	}
	return all, part
}
