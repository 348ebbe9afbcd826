package search

import (
	"cmp"
	"slices"
)

// alike is how near the calls of two policies are when a user would not care: then the simpler one
// is chosen.
const alike = 0.01

// grade fills in the margins.
func (t *trial) grade(targets []Target) {
	t.means = least(targets, &t.report.Figures, expected)
	t.surely = least(targets, &t.report.Figures, pessimistic)
	t.hopes = least(targets, &t.report.Figures, optimistic)
}

// simplestFirst sorts trials by calls, but those that make as many as the cheapest by how simple
// they are: the least overcommit, the shortest TTL, then the largest margin.
func simplestFirst(trials []*trial) {
	slices.SortStableFunc(trials, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	same := 0
	for same < len(trials) && trials[same].calls() <= trials[0].calls()*(1+alike) {
		same++
	}
	slices.SortStableFunc(trials[:same], func(a, b *trial) int {
		return cmp.Or(cmp.Compare(a.overcommit, b.overcommit), cmp.Compare(a.ttl, b.ttl), cmp.Compare(b.surely, a.surely))
	})
}

// ranked is trials, the most promising first: those that meet the targets in the mean, by calls;
// those that miss them there but not at the optimistic end, by what they lack; those that meet
// them, but certainly with more calls than another that surely does; and the others.
func ranked(trials []*trial) []*trial {
	var cheapest *trial
	for _, t := range trials {
		if t.surely >= 0 && (cheapest == nil || t.calls() < cheapest.calls()) {
			cheapest = t
		}
	}
	var meet, may, dear, miss []*trial
	for _, t := range trials {
		switch {
		case t.means < 0 && t.hopes >= 0:
			may = append(may, t)
		case t.means < 0:
			miss = append(miss, t)
		case cheapest != nil && t.calls() > cheapest.calls()*(1+alike) &&
			t.report.CallsPerS.Minus(cheapest.report.CallsPerS, t.report.Confidence).Low > 0:
			dear = append(dear, t)
		default:
			meet = append(meet, t)
		}
	}
	simplestFirst(meet)
	simplestFirst(dear)
	for _, all := range [][]*trial{may, miss} {
		slices.SortStableFunc(all, func(a, b *trial) int { return cmp.Compare(b.means, a.means) })
	}
	return slices.Concat(meet, may, dear, miss)
}

// keep is the best n of trials, and among them the one with the largest margin: it is left where
// the cheap ones turn out to have been lucky.
func keep(trials []*trial, n int) []*trial {
	all := ranked(trials)
	if len(all) <= n {
		return all
	}
	best := all[:n:n]
	if safe := safest(trials); !slices.Contains(best, safe) {
		best[n-1] = safe
	}
	return best
}

// safest has the largest margin.
func safest(trials []*trial) *trial {
	return slices.MaxFunc(trials, func(a, b *trial) int { return cmp.Compare(a.surely, b.surely) })
}

// candidates are those to confirm, in their order: those that surely meet the targets, by calls;
// then those that meet them in the mean, by their margin; if there are none, the one that misses
// them least. Of many, the first ones and the one with the largest margin have a turn.
func candidates(trials []*trial) []*trial {
	var sure, likely []*trial
	for _, t := range trials {
		switch {
		case t.surely >= 0:
			sure = append(sure, t)
		case t.means >= 0:
			likely = append(likely, t)
		}
	}
	if len(sure)+len(likely) == 0 {
		return []*trial{slices.MaxFunc(trials, func(a, b *trial) int { return cmp.Compare(a.means, b.means) })}
	}
	simplestFirst(sure)
	slices.SortStableFunc(likely, func(a, b *trial) int { return cmp.Compare(b.surely, a.surely) })
	all := append(sure, likely...)
	const most = 2 * finalists
	if len(all) <= most {
		return all
	}
	others := slices.DeleteFunc(all[finalists:], func(t *trial) bool { return t == safest(trials) })
	first := append(all[:finalists:finalists], spaced(others, most-finalists-1)...)
	if safe := safest(trials); !slices.Contains(first, safe) {
		first = append(first, safe)
	}
	return first
}

// front is the trials that keep the promise and that no other such one beats in calls and in what
// the targets ask for, by calls. Of equal ones the first, which is the simplest, stands for all.
func front(trials []*trial, targets []Target) (best []*trial) {
	goals := append([]Objective{{Figure: "calls_per_s"}}, TradedFor(targets)...)
	rows := make([][]float64, len(trials))
	for i, t := range trials {
		broken := slices.ContainsFunc(targets, func(x Target) bool {
			return x.Figure == BoundFigure && x.margin(&t.report.Figures, pessimistic) < 0
		})
		row := scores(goals, &t.report.Figures)
		twin := slices.ContainsFunc(rows[:i], func(r []float64) bool { return slices.Equal(r, row) })
		if !broken && !twin {
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
