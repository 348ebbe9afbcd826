package search

import (
	"cmp"
	"math"
	"slices"
)

// alike is how near the calls of two policies are when a user would not care: then the simpler one
// is chosen.
const alike = 0.01

func (t *trial) calls() float64 { return t.report.CallsPerS.Mean }

func (t *trial) meets(at end) bool { return t.margins[at] >= 0 }

// ranked is trials, the best first. Those that meet the targets at an end come before the others,
// which stand by what they lack. Fewer calls are better, in steps of what nobody would notice; then
// the scenario's own policy, the least overcommit, the shortest TTL, and the largest margin.
func ranked(trials []*trial, at end) []*trial {
	cheapest := math.Inf(1)
	for _, t := range trials {
		if t.meets(at) {
			cheapest = min(cheapest, t.calls())
		}
	}
	step := func(t *trial) float64 { return math.Floor((t.calls() - cheapest) / (alike * cheapest)) }
	return slices.SortedStableFunc(slices.Values(trials), func(a, b *trial) int {
		if !a.meets(at) || !b.meets(at) {
			return cmp.Compare(min(b.margins[at], 0), min(a.margins[at], 0))
		}
		p, q := a.scenario.Policy, b.scenario.Policy
		return cmp.Or(cmp.Compare(step(a), step(b)), cmp.Compare(a.changes, b.changes),
			cmp.Compare(p.Overcommit, q.Overcommit), cmp.Compare(p.TTL, q.TTL), cmp.Compare(b.margins[at], a.margins[at]))
	})
}

// likely is those of trials that meet the targets in the mean, the most certain first and then by
// calls; or the nearest, where none does.
func likely(trials []*trial) []*trial {
	all := ranked(trials, pessimistic)
	meet := slices.DeleteFunc(slices.Clone(all), func(t *trial) bool { return !t.meets(expected) })
	if len(meet) == 0 {
		return all[:1]
	}
	return meet
}

// front is the trials that keep the promise and that no other such one beats in calls and in what
// the targets ask for, by calls. Of equal ones the first, which is the simplest, stands for all.
func front(trials []*trial) (best []*trial) {
	rows := make([][]float64, len(trials))
	for i, t := range trials {
		goals := append(TradedFor(t.targets), Objective{Figure: "calls_per_s"})
		row := scores(goals, &t.report.Figures)
		twin := slices.ContainsFunc(rows[:i], func(r []float64) bool { return slices.Equal(r, row) })
		broken := slices.Contains(t.targets, promise) && t.report.BoundExceededBy.Worst > 0
		if !twin && !broken {
			rows[i] = row
		}
	}
	for i, on := range paretoFront(rows) {
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
		some[i] = list[i*(len(list)-1)/(n-1)]
	}
	return some
}
