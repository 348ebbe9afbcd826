package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// alike is how near the calls of a policy are to the fewest when a user would not care: then the
// simpler one is chosen. Less than that is also what luck makes of calls.
const alike = 0.02

func (t *trial) calls() float64 { return t.report.CallsPerS.Mean }

// margin is the least of all targets.
func (t *trial) margin(at end) float64 {
	least := math.Inf(1)
	for _, x := range t.targets {
		least = min(least, x.margin(t.report, at))
	}
	return least
}

func (t *trial) meets(at end) bool { return t.margin(at) >= 0 }

// ranked is trials, the best first. Those that meet the targets at an end come before the others,
// which stand by what they lack. Fewer calls are better. Of those with about the fewest the first
// is the scenario's own policy, then that with the least overcommit, the
// shortest TTL, which is how long the tokens of a crash and a lost bucket are missing, and the
// largest margin.
func ranked(trials []*trial, at end) []*trial {
	cheapest, margin := math.Inf(1), map[*trial]float64{}
	for _, t := range trials {
		if margin[t] = t.margin(at); margin[t] >= 0 {
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
			cmp.Compare(p.Overcommit, q.Overcommit), cmp.Compare(ttlOf(a.scenario), ttlOf(b.scenario)),
			cmp.Compare(p.TTL, q.TTL), cmp.Compare(margin[b], margin[a]))
	})
}

// promising is the n best of trials, and as many at even distances of the others that meet the
// targets in the mean, by calls: they are left where the cheap ones turn out to have been lucky, or
// fail under stress, and the dearest is among them.
func promising(trials []*trial, at end, n int) []*trial {
	best := ranked(trials, at)
	n = min(n, len(best))
	others := slices.DeleteFunc(slices.Clone(best[n:]), func(t *trial) bool { return !t.meets(expected) })
	slices.SortStableFunc(others, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	return slices.Concat(best[:n], spaced(others, n))
}

// nearMisses are the trials that make fewer calls than the best and hardly miss the targets in the mean: on
// other seeds they may meet them.
func nearMisses(trials []*trial) (near []*trial) {
	best := ranked(trials, pessimistic)[0]
	for _, t := range trials {
		if m := t.margin(expected); m < 0 && m > -nearly && t.calls() < best.calls() {
			near = append(near, t)
		}
	}
	slices.SortStableFunc(near, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	return near
}

// nearly is the part of what a target tolerates by which a trial hardly misses it.
const nearly = 0.1

// front is the trials that keep the promise and that no other such one beats in calls and in what
// the targets ask for, by calls. Of equal ones the first, which is the simplest, stands for all.
func front(trials []*trial) (best []*trial) {
	if len(trials) == 0 {
		return nil
	}
	goals := append(TradedFor(trials[0].targets), Objective{Figure: "calls_per_s"})
	rows, seen := make([]*sim.Figures, len(trials)), [][]float64{}
	for i, t := range trials {
		row := scores(goals, &t.report.Figures)
		twin := slices.ContainsFunc(seen, func(r []float64) bool { return slices.Equal(r, row) })
		broken := slices.Contains(t.targets, promise) && breaks(&t.report.Figures)
		if !twin && !broken {
			rows[i], seen = &t.report.Figures, append(seen, row)
		}
	}
	for i, on := range paretoFront(goals, rows, trials[0].report.Confidence) {
		if on {
			best = append(best, trials[i])
		}
	}
	slices.SortStableFunc(best, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	return best
}

// spaced is n of list at even distances, the first and the last among them.
func spaced(list []*trial, n int) []*trial {
	if len(list) <= n {
		return list
	}
	some := make([]*trial, n)
	for i := range some {
		some[i] = list[i*(len(list)-1)/max(n-1, 1)]
	}
	return some
}

// spacedWith is spaced with one of the list among them, in place of the one before it.
func spacedWith(list []*trial, n int, one *trial) []*trial {
	some, at := slices.Clone(spaced(list, n)), slices.Index(list, one)
	if at < 0 || slices.Contains(some, one) {
		return some
	}
	after := slices.IndexFunc(some, func(t *trial) bool { return slices.Index(list, t) > at })
	some[max(after-1, 1)] = one
	return some
}

// BoundFigure is held to zero by every plan whose policy promises it.
const BoundFigure = "bound_exceeded_by"

// promise is the target that a policy meets whatever happens to Redis.
var promise = Threshold{Figure: BoundFigure, Part: "worst", Op: "<="}

// targetsOf is what a plan must meet.
func targetsOf(q Question) []Threshold {
	targets := q.Targets
	if len(targets) == 0 {
		targets = []Threshold{AtMost("false_reject_ratio", 0.005)}
	}
	if q.Scenario.Policy.Fallback == lease.FallbackDeny {
		targets = append(slices.Clip(targets), promise)
	}
	return targets
}

// validateTargets reports every target that no plan can be made for.
func validateTargets(targets []Threshold) error {
	var errs []error
	for i, t := range targets {
		_, err := ParseThreshold(t.String())
		twin := func(o Threshold) bool { return o.name() == t.name() && o.Op == t.Op }
		switch {
		case err != nil:
		case t.Rival != "" || t.Op != "<=" && t.Op != ">=":
			err = fmt.Errorf("%w: no plan can be made for %s", ErrThreshold, t)
		case slices.ContainsFunc(targets[:i], twin):
			err = fmt.Errorf("%w: %s is bounded twice", ErrThreshold, t.name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// end is a place in a figure's interval, from the target's point of view.
type end int

const (
	pessimistic end = iota
	expected        // the mean
)

// value is what the report shows at one end.
func (t Threshold) value(report *sim.Report, at end) float64 {
	if at == expected {
		t.Part = cmp.Or(t.Part, "mean")
	}
	low, high := t.interval(report)
	if t.Op == ">=" {
		return low
	}
	return high
}

// margin is how far the report is inside the target, as a part of what the target tolerates: 0 is
// on the bound, 0.5 half-way to perfect, -1 twice as bad as tolerated. A ceiling tolerates its
// bound, a floor what lacks to 1. Where that is nothing, a miss counts as it is, and what is no
// miss is infinitely far inside. What is not a number is infinitely far outside.
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

// graded is how the trial did, for people.
func (t *trial) graded() Grade {
	g := Grade{Meets: t.meets(pessimistic), Figures: t.report.Figures}
	for _, x := range t.targets {
		m := Margin{Threshold: x, Value: x.value(t.report, pessimistic), Margin: x.margin(t.report, pessimistic)}
		if m.Meets = m.Margin >= 0; math.IsInf(m.Margin, 1) {
			m.Margin = 0 // JSON has no infinity
		}
		g.Margins = append(g.Margins, m)
	}
	return g
}

// repsNeeded is how many replications would narrow the trial's intervals enough, if their means
// stay: an interval's width goes with the root of their number, that of a range does not. It is 0
// where that does not help.
func (t *trial) repsNeeded() int {
	if !t.meets(expected) || t.meets(pessimistic) {
		return 0
	}
	most := 0.0
	for _, x := range t.targets {
		if f := figureIn(t.report.Figures.All(), x.Figure); f != nil && f.Range && x.margin(t.report, pessimistic) < 0 {
			return 0
		}
		mean, edge := x.value(t.report, expected), x.value(t.report, pessimistic)
		if ratio := (edge - mean) / (x.Bound - mean); ratio > 1 { // not so where nothing varies
			most = max(most, float64(ratio*ratio))
		}
	}
	n := math.Ceil(float64(most * float64(t.report.Reps)))
	if !(n <= 10_000) { // as many as a scenario may have
		return 0
	}
	return int(n)
}

// TradedFor is what a plan trades against lease calls: whatever else the targets bound.
func TradedFor(targets []Threshold) []Objective {
	var all []Objective
	for _, t := range targets {
		if !slices.Contains([]string{"calls_per_s", "redis_cpu", BoundFigure}, t.Figure) {
			all = append(all, Objective{Figure: t.Figure, Max: t.Op == ">="})
		}
	}
	if len(all) == 0 {
		all = append(all, Objective{Figure: "false_reject_ratio"})
	}
	return all
}

// noticeable is the part by which a trade-off must differ to be worth a line.
const noticeable = 0.1

// worthwhile are those of a front, which is in the order of calls, that somebody would care for:
// beside the chosen one, or where there is none the first, each saves a noticeable part of the
// calls of the last one, or is noticeably better for them.
func worthwhile(front []*trial, chosen *trial) (all []*trial) {
	if len(front) == 0 {
		return nil
	}
	if chosen == nil {
		chosen = front[0]
	}
	last := chosen
	for _, t := range slices.Backward(front) {
		if t.calls() <= last.calls()*(1-noticeable) {
			all, last = append(all, t), t
		}
	}
	slices.Reverse(all)
	all, last = append(all, chosen), chosen
	for _, t := range front {
		if t.calls() >= last.calls()*(1+noticeable) && t.better(last) {
			all, last = append(all, t), t
		}
	}
	return all
}

// better reports whether t lacks a noticeable part less than o of something that the targets ask
// for.
func (t *trial) better(o *trial) bool {
	lack := func(t *trial, goal Objective) float64 {
		x := FigureOf(&t.report.Figures, goal.Figure).Mean
		if goal.Max {
			return 1 - x
		}
		return x
	}
	return slices.ContainsFunc(TradedFor(t.targets), func(goal Objective) bool {
		return lack(t, goal) < lack(o, goal)*(1-noticeable)
	})
}
