package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

const (
	// alike is the fraction by which a simpler policy may make more calls than the cheapest one and still be
	// chosen. Chance changes calls by about as much.
	alike        = 0.02
	apart        = 10.0 / 9 // the least factor between the calls of two trade-offs
	tradeOffsMax = 8        // the largest number of trade-offs in a plan
	finalists    = 3        // number of best policies in promising
	ranges       = 6        // number of ranges of calls in promising
)

func (t *trial) calls() float64    { return t.report.CallsPerS.Mean }
func (t *trial) meets(at end) bool { return t.margin(t.targets, at) >= 0 }
func (t *trial) accuracy() float64 { return t.margin(traded(t.targets), expected) }

// open reports whether longer runs may show that t meets the targets.
func (t *trial) open() bool { return !t.meets(pessimistic) && (t.unsettled || t.meets(optimistic)) }

func (t *trial) mayReplace(best *trial) bool {
	return !best.meets(pessimistic) || t.calls()*(1+alike) < best.calls()
}

// decided reports whether a run of half the length gave the same verdict, or the scenario has a fixed length.
func (t *trial) decided() bool { return !t.scenario.Stationary() || t.shorter != nil && !t.shaky() }

// shaky reports whether a longer run of the policy of t may give another verdict.
func (t *trial) shaky() bool {
	o := t.shorter
	return t.scenario.Stationary() && (t.unsettled || t.open() || o != nil &&
		(t.meets(pessimistic) != o.meets(pessimistic) && !o.open() ||
			math.Abs(t.calls()-o.calls()) > steadily*t.calls()))
}

func (t *trial) margin(targets []Threshold, at end) float64 {
	least := math.Inf(1)
	for _, x := range targets {
		least = min(least, x.margin(t.report, at))
	}
	return least
}

// ranked sorts trials, best first. Trials that meet the targets at the given end come first, by calls. The
// other trials follow, by margin. Trials within the fraction alike of the fewest calls are sorted by these
// criteria: the scenario's own policy first, the least overcommit, the shortest TTL, the largest margin. A
// short TTL is good because the tokens of a crashed process are out of reach for a TTL.
func ranked(trials []*trial, at end) []*trial {
	cheapest, margin := math.Inf(1), map[*trial]float64{}
	for _, t := range trials {
		if margin[t] = t.margin(t.targets, at); margin[t] >= 0 {
			cheapest = min(cheapest, t.calls())
		}
	}
	step := func(t *trial) float64 {
		if t.calls() <= cheapest*(1+alike) {
			return 0
		}
		return t.calls()
	}
	return slices.SortedStableFunc(slices.Values(trials), func(a, b *trial) int {
		if margin[a] < 0 || margin[b] < 0 {
			return cmp.Compare(min(margin[b], 0), min(margin[a], 0))
		}
		p, q := a.scenario.Policy, b.scenario.Policy
		return cmp.Or(cmp.Compare(step(a), step(b)), cmp.Compare(a.changes, b.changes),
			cmp.Compare(p.Overcommit, q.Overcommit), cmp.Compare(a.scenario.TTLInForce(), b.scenario.TTLInForce()),
			cmp.Compare(p.TTL, q.TTL), cmp.Compare(margin[b], margin[a]))
	})
}

// promising returns the policies that deserve longer runs: the best policies at each end of the intervals,
// and the most accurate policy in each range of calls. The accurate policies become trade-offs. One of them
// is chosen if the cheaper policies were lucky or fail under stress.
func promising(trials []*trial) []lease.Policy {
	var all []*trial
	for at := pessimistic; at <= optimistic; at++ {
		all = append(all, ranked(trials, at)[:min(finalists, len(trials))]...)
	}
	low, high := math.Inf(1), 0.0
	for _, t := range trials {
		low, high = min(low, t.calls()), max(high, t.calls())
	}
	low = max(low, high/1e6) // low may be 0, which has no logarithm
	spread := make([]*trial, ranges)
	for _, t := range trials {
		i := 0
		if part := random.Log(t.calls()/low) / random.Log(high/low); part > 0 { // part is NaN for equal calls
			i = min(int(part*ranges), ranges-1)
		}
		if spread[i] == nil || t.accuracy() > spread[i].accuracy() {
			spread[i] = t
		}
	}
	return policiesOf(append(all, slices.DeleteFunc(spread, func(t *trial) bool { return t == nil })...))
}

// traded returns the targets about accuracy, which a plan trades against lease calls.
func traded(targets []Threshold) (all []Threshold) {
	for _, t := range targets {
		if !slices.Contains([]string{"calls_per_s", "redis_cpu", BoundFigure}, t.Figure) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return defaultTargets
	}
	return all
}

// tradeOffs returns the chosen trial and trials that keep the bound, sorted by calls. From one trial to the
// next, the calls grow by the factor apart or more, and the accuracy grows too.
func tradeOffs(trials []*trial, chosen *trial) (all []*trial) {
	front := slices.DeleteFunc(slices.Clone(trials), func(t *trial) bool {
		return slices.Contains(t.targets, promise) && t.report.BoundExceededBy.Worst > 0 ||
			slices.ContainsFunc(trials, func(o *trial) bool {
				return o.calls() < t.calls() && o.accuracy() >= t.accuracy()
			})
	})
	slices.SortStableFunc(front, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	switch {
	case len(front) == 0 && chosen == nil:
		return nil
	case chosen == nil:
		chosen = front[0]
	}
	for factor := apart; ; factor *= apart {
		all = []*trial{chosen}
		for _, t := range slices.Backward(front) {
			if t.calls()*factor <= all[0].calls() {
				all = slices.Insert(all, 0, t)
			}
		}
		for _, t := range front {
			last := all[len(all)-1]
			if t.calls() >= last.calls()*factor && (1-t.accuracy())*apart < 1-last.accuracy() {
				all = append(all, t)
			}
		}
		if len(all) <= tradeOffsMax {
			return all
		}
	}
}

// BoundFigure is the figure that must be 0 in a plan with the fallback deny.
const BoundFigure = "bound_exceeded_by"

var (
	promise        = Threshold{Figure: BoundFigure, Part: "worst", Op: "<="}
	defaultTargets = []Threshold{AtMost("false_reject_ratio", 0.005)}
)

func targetsOf(q Question) []Threshold {
	targets := q.Targets
	if len(targets) == 0 {
		targets = defaultTargets
	}
	if q.Scenario.Policy.Fallback == lease.FallbackDeny {
		targets = append(slices.Clip(targets), promise)
	}
	return targets
}

// end is a position in a figure's interval. Positions are ordered from bad to good for the target.
type end int

const (
	pessimistic end = iota
	expected        // the mean of the figure
	optimistic
)

func (t Threshold) value(report *sim.Report, at end) float64 {
	if at == expected {
		t.Part = cmp.Or(t.Part, "mean")
	}
	low, high := t.interval(report)
	if (t.Op == ">=") == (at == optimistic) {
		return high
	}
	return low
}

// margin returns the distance of the report's figure from the bound of t, as a fraction of the tolerance: 0
// on the bound, and -1 at twice the tolerance. An upper bound tolerates its value, and a lower bound 1 minus
// its value. For a target that tolerates nothing, margin returns the excess as a negative number, or +Inf
// without an excess.
func (t Threshold) margin(report *sim.Report, at end) float64 {
	x := t.value(report, at)
	room, tolerated := t.Bound-x, t.Bound
	if t.Op == ">=" {
		room, tolerated = x-t.Bound, 1-t.Bound
	}
	switch {
	case math.IsNaN(x):
		return math.Inf(-1)
	case tolerated > 0:
		return room / tolerated
	case room >= 0:
		return math.Inf(1)
	}
	return room
}

func (t *trial) graded() Grade {
	g := Grade{
		Meets:     t.meets(pessimistic) && !t.unsettled,
		Undecided: t.unsettled || t.scenario.Stationary() && t.open(),
		Figures:   t.report.Figures,
	}
	for _, x := range t.targets {
		m := Margin{Threshold: x, Value: x.value(t.report, pessimistic), Margin: x.margin(t.report, pessimistic)}
		if m.Meets = m.Margin >= 0; math.IsInf(m.Margin, 1) {
			m.Margin = 0 // JSON has no infinity
		}
		g.Margins = append(g.Margins, m)
	}
	return g
}
