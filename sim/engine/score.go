package engine

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// score compares the decisions of one algorithm, of the fleet or of a rival, with those of one central
// bucket.
type score struct {
	tally    report.Tally
	accuracy report.Accuracy
}

// decided returns the decisions of s beside central, the number of tokens that the central bucket admitted.
func (s *score) decided(central int64) report.Decided {
	t := &s.tally
	return report.Decided{Central: central, Admitted: t.Admitted, FalseRejects: t.FalseRejects, Credit: t.Credit}
}

// figures returns the figures of an algorithm in a run of x with a number of faults. settled reports whether
// the run has settled.
func (s *score) figures(
	x *scenario.Scenario, faults int, central int64, shares []float64,
) (its report.RivalReport, settled bool) {
	fair := report.Judge(s.tally.ByProcess, shares)
	admitted, rejected, atStart, perFault, settled := s.accuracy.Ratios(faults, x.Stockable())
	return report.RivalReport{
		Admitted:          figure(s.tally.Admitted),
		AdmittedVsCentral: figure(admitted),
		FalseRejectRatio:  figure(rejected),
		StartStock:        figure(atStart),
		FaultStock:        figure(perFault),
		SwappedRatio:      figure(report.Part(s.tally.Swapped, central, 0)),
		Jain:              figure(fair.Jain),
		WorstShare:        figure(fair.Worst),
	}, settled
}

func figure[T int64 | float64](x T) report.Figure { return report.Figure{Mean: float64(x)} }

// fromStart returns limits whose calendar periods are shifted to time since the start of the run.
func fromStart(limits []lease.Limit) []lease.Limit {
	limits = slices.Clone(limits)
	for i, l := range limits {
		if l.Kind == lease.KindCalendar {
			limits[i].Offset = (l.Offset - serverStart*time.Microsecond%l.Per + l.Per) % l.Per
		}
	}
	return limits
}

// newAuditor returns an auditor of the promise of each limit, for every key of s.
func newAuditor(s *scenario.Scenario, overcommit int64) audit.Auditor {
	var bounds []audit.Bound
	for _, l := range fromStart(s.Limits) {
		bounds = append(bounds, audit.Of(l, overcommit))
	}
	return audit.NewAuditor(bounds, s.Keys.Count)
}

type turn struct {
	at time.Duration
	to report.Phase
}

// phasesOf returns the phases of s, and the number of faults in s since the warm-up. A stretch is the time
// between two disturbances. After Settles, the rest of a stretch counts as settled: before, one-time
// rejections would count as permanent ones. If no stretch is settled for half of its length, the second half
// of the longest stretch counts as settled. If not even the longest stretch settles, the second half of each
// stretch does.
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
		if w := s.Window(); w > 0 && settled+w <= next {
			settled = next - (next-settled)/w*w // an incomplete window has another share of rejections
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
