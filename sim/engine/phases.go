package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// turn is the beginning of a phase.
type turn struct {
	at time.Duration
	to report.Phase
}

// disturbance is what has a fleet build its stock once more: a fault, from which it is Recovering
// when it is over, or growth, with which a part of it is Starting.
type disturbance struct {
	from, until time.Duration
	phase       report.Phase
}

// disturbances are those of s: the faults of Redis and of the network, processes that are stopped
// or killed at a named time, and processes that are added. A flash is none, though the stock grows
// with it: how often it comes belongs to the load, and what it costs to the ratio.
func disturbances(s *scenario.Scenario) (all []disturbance) {
	fault := func(at, lasts time.Duration) { all = append(all, disturbance{at, at + lasts, report.Recovering}) }
	for _, f := range s.Redis.Faults {
		fault(f.At, f.For)
	}
	for _, p := range s.Network.Partitions {
		fault(p.At, p.For)
	}
	for _, g := range s.Groups {
		for _, x := range []scenario.Stops{g.Pauses, g.Restarts} {
			if x.At > 0 {
				fault(x.At, time.Duration(x.For.Mean()))
			}
		}
		count := g.Count
		for _, step := range g.Scale {
			if step.Kill {
				fault(step.At, 0)
			} else if step.Count > count {
				all = append(all, disturbance{step.At, step.At, report.Starting})
			}
			count = step.Count
		}
	}
	return all
}

// phasesOf is when the stock of s is built, and how many faults it has since the warm-up. Building
// takes what a bucket takes to fill and some lives of leases, but no more than half of the time
// until the next disturbance or the end: the rest says what goes on.
func phasesOf(s *scenario.Scenario) (turns []turn, faults int) {
	all := disturbances(s)
	slices.SortFunc(all, func(a, b disturbance) int { return cmp.Compare(a.from, b.from) })
	settles, end, phase := s.Settles(), time.Duration(0), report.Starting
	for i := 0; i <= len(all); i++ {
		next := s.Duration
		if i < len(all) {
			next = min(next, all[i].from)
		}
		counted := max(end, s.Warmup)
		if half := counted + (next-counted)/2; next > counted {
			turns = append(turns, turn{max(end, min(end+settles, half)), report.Settled})
		}
		if next == s.Duration {
			break
		}
		if all[i].from >= s.Warmup {
			phase = all[i].phase
		}
		if phase == report.Recovering {
			faults++
		}
		turns = append(turns, turn{next, phase})
		end = max(end, all[i].until)
	}
	return turns, faults
}
