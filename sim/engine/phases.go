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

// phasesOf is when the stock of s is built, and how many faults it has since the warm-up: of Redis,
// of the network, and processes that are stopped or killed at a named time. Building takes what a
// bucket takes to fill and some lives of leases, but no more than half of the time until the next
// fault or the end: the rest says what goes on.
func phasesOf(s *scenario.Scenario) (turns []turn, faults int) {
	type disturbance struct{ from, until time.Duration }
	var all []disturbance
	for _, f := range s.Redis.Faults {
		all = append(all, disturbance{f.At, f.At + f.For})
	}
	for _, p := range s.Network.Partitions {
		all = append(all, disturbance{p.At, p.At + p.For})
	}
	for _, g := range s.Groups {
		for _, x := range []scenario.Stops{g.Pauses, g.Restarts} {
			if x.At > 0 {
				all = append(all, disturbance{x.At, x.At + time.Duration(x.For.Mean())})
			}
		}
		for _, step := range g.Scale {
			if step.Kill {
				all = append(all, disturbance{step.At, step.At})
			}
		}
	}
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
			faults, phase = faults+1, report.Recovering
		}
		turns = append(turns, turn{next, phase})
		end = max(end, all[i].until)
	}
	return turns, faults
}
