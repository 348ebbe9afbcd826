package engine

import (
	"time"

	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// turn is the beginning of a phase.
type turn struct {
	at time.Duration
	to report.Phase
}

// phasesOf is when the stock of s is built, and how many faults it has since the warm-up. Building
// takes what a bucket takes to fill and some lives of leases. Where it has not been built when the
// next disturbance comes or the run ends, nothing is settled until then, for what is rejected once
// would count as if it went on. Where half of no stretch that counts is settled, half of the
// longest one, or of each where not even that one settles, says the most there is about what goes
// on.
func phasesOf(s *scenario.Scenario) (turns []turn, faults int) {
	all := append(s.Disturbances(), scenario.Disturbance{From: s.Duration})
	settles, longest := s.Settles(), time.Duration(0)
	end, enough := time.Duration(0), false
	for _, d := range all {
		counted := max(end, s.Warmup)
		lasts := min(d.From, s.Duration) - counted
		longest = max(longest, lasts)
		enough = enough || lasts > 0 && end+settles <= counted+lasts/2
		end = max(end, d.Until)
	}
	end = 0
	for _, d := range all {
		next := min(d.From, s.Duration)
		counted, settled := max(end, s.Warmup), end+settles
		if !enough && (next-counted == longest || longest <= settles) {
			settled = max(end, min(settled, counted+(next-counted)/2))
		}
		if settled < next && counted < next {
			turns = append(turns, turn{settled, report.Settled})
		}
		if next == s.Duration {
			break
		}
		to := report.Starting
		if d.Fault && d.From >= s.Warmup {
			to = report.Recovering
			faults++
		}
		turns = append(turns, turn{next, to})
		end = max(end, d.Until)
	}
	return turns, faults
}
