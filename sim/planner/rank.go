package planner

import (
	"cmp"
	"slices"
)

// alike is how near the calls of two policies are when a user would not care: then the simpler one is chosen.
const alike = 0.01

// grade fills in the margins.
func (t *trial) grade(targets []Target) {
	t.means, _ = least(targets, &t.report.Figures, expected)
	t.surely, _ = least(targets, &t.report.Figures, pessimistic)
	t.hopes, _ = least(targets, &t.report.Figures, optimistic)
}

// class orders trials before anything else does.
func class(t *trial, cheapest *trial) int {
	switch {
	case t.means >= 0 && !dearer(t, cheapest):
		return 0 // meets the targets in the mean
	case t.means < 0 && t.hopes >= 0:
		return 1 // may turn out to
	case t.means >= 0:
		return 2 // does, but makes certainly more calls than another that does for certain
	}
	return 3
}

// dearer: other surely meets the targets, and t makes more calls, by the paired difference.
func dearer(t, other *trial) bool {
	if other == nil || t == other || t.calls() <= other.calls()*(1+alike) {
		return false
	}
	return t.report.CallsPerS.Minus(other.report.CallsPerS, t.report.Confidence).Low > 0
}

// simplestFirst sorts trials by calls, but those that make as many as the cheapest by how simple they are: the least
// overcommit, the smallest burst, the shortest TTL, and then the largest margin.
func simplestFirst(trials []*trial) {
	slices.SortStableFunc(trials, func(a, b *trial) int { return cmp.Compare(a.calls(), b.calls()) })
	same := 0
	for same < len(trials) && trials[same].calls() <= trials[0].calls()*(1+alike) {
		same++
	}
	slices.SortStableFunc(trials[:same], func(a, b *trial) int {
		return cmp.Or(cmp.Compare(a.overcommit, b.overcommit), cmp.Compare(a.burst, b.burst), cmp.Compare(a.ttl, b.ttl), cmp.Compare(b.surely, a.surely))
	})
}

// ranked is trials, the most promising first. Those that meet the targets go by calls, the others by what they lack.
func ranked(trials []*trial) []*trial {
	var cheapest *trial
	for _, t := range trials {
		if t.surely >= 0 && (cheapest == nil || t.calls() < cheapest.calls()) {
			cheapest = t
		}
	}
	var classes [4][]*trial
	for _, t := range trials {
		k := class(t, cheapest)
		classes[k] = append(classes[k], t)
	}
	for k, all := range classes {
		if k == 0 || k == 2 {
			simplestFirst(all)
		} else {
			slices.SortStableFunc(all, func(a, b *trial) int { return cmp.Compare(b.means, a.means) })
		}
	}
	return slices.Concat(classes[:]...)
}

// keep is the best n of trials, and among them, if any has a chance at all, the one with the most room: where the
// cheap ones turn out to have been lucky, it is left.
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

// candidates is the order in which to confirm: those that meet the targets for certain, by calls; then those that meet
// them in the mean, by their margin; if there are none, the one that misses them least.
func candidates(trials []*trial) []*trial {
	var sure, likely, rest []*trial
	for _, t := range trials {
		switch {
		case t.surely >= 0:
			sure = append(sure, t)
		case t.means >= 0:
			likely = append(likely, t)
		default:
			rest = append(rest, t)
		}
	}
	simplestFirst(sure)
	slices.SortStableFunc(likely, func(a, b *trial) int { return cmp.Compare(b.surely, a.surely) })
	if len(sure)+len(likely) == 0 && len(rest) > 0 {
		return []*trial{slices.MaxFunc(rest, func(a, b *trial) int { return cmp.Compare(a.means, b.means) })}
	}
	return append(sure, likely...)
}
