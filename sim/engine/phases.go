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
// takes what a bucket takes to fill and some lives of leases. Where it has not been built when the
// next disturbance comes or the run ends, nothing is settled until then, for what is rejected once
// would count as if it went on. But half of the longest stretch, or where none is long enough half
// of each, counts in any case: the rest of it says the most there is about what goes on.
func phasesOf(s *scenario.Scenario) (turns []turn, faults int) {
	all := disturbances(s)
	slices.SortFunc(all, func(a, b disturbance) int { return cmp.Compare(a.from, b.from) })
	all = append(all, disturbance{from: s.Duration})
	settles, longest := s.Settles(), time.Duration(0)
	end := time.Duration(0)
	for _, d := range all {
		longest = max(longest, min(d.from, s.Duration)-max(end, s.Warmup))
		end = max(end, d.until)
	}
	end = 0
	for _, d := range all {
		next := min(d.from, s.Duration)
		counted, settled := max(end, s.Warmup), end+settles
		if next-counted == longest || longest <= settles {
			settled = max(end, min(settled, counted+(next-counted)/2))
		}
		if settled < next && counted < next {
			turns = append(turns, turn{settled, report.Settled})
		}
		if next == s.Duration {
			break
		}
		to := d.phase
		if d.from < s.Warmup {
			to = report.Starting
		}
		if to == report.Recovering {
			faults++
		}
		turns = append(turns, turn{next, to})
		end = max(end, d.until)
	}
	return turns, faults
}
