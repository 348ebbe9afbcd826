package planner

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/yuzhi-go/yuzhi/sim/sweep"
)

// tradeOffsMax bounds the list of what else could be had.
const tradeOffsMax = 8

// objectives are what a trade-off is between: calls, and whatever else the targets bound.
func objectives(targets []Target) []sweep.Objective {
	all := []sweep.Objective{{Figure: "calls_per_s"}}
	for _, t := range targets {
		if !t.cost() && t.Figure != boundFigure {
			all = append(all, sweep.Objective{Figure: t.Figure, Max: t.Floor})
		}
	}
	if len(all) == 1 {
		all = append(all, sweep.Objective{Figure: "false_reject_ratio"})
	}
	return all
}

// front is the trials that keep the promise and that no other such one beats, by calls. Of equal ones the first, which
// is the simplest, stands for all.
func front(trials []*trial, targets []Target) (best []*trial) {
	goals := objectives(targets)
	rows := make([][]float64, len(trials))
	for i, t := range trials {
		kept := !slices.ContainsFunc(targets, func(x Target) bool {
			return x.Figure == boundFigure && x.margin(&t.report.Figures, pessimistic) < 0
		})
		row := sweep.Scores(goals, &t.report.Figures)
		if kept && !slices.ContainsFunc(rows[:i], func(r []float64) bool { return slices.Equal(r, row) }) {
			rows[i] = row
		}
	}
	for i, on := range sweep.Front(rows) {
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

// tradeOffs are what else could be had, as the search saw it last, and how that differs from the chosen policy.
func (s *search) tradeOffs() (all []Candidate) {
	for _, t := range spaced(front(s.seen, s.targets), tradeOffsMax) {
		c := s.candidate(t)
		if s.plan.Chosen != nil {
			if i := slices.IndexFunc(s.seen, func(o *trial) bool { return s.policy(o.choice) == s.plan.Chosen.Policy }); i >= 0 {
				if o := s.seen[i]; o.report.DurationS == t.report.DurationS && o.report.Reps == t.report.Reps {
					c.Differences = differences(t, o)
				}
			}
		}
		all = append(all, c)
	}
	return all
}

// meetsAllBut reports whether t surely meets every target but the k-th.
func (s *search) meetsAllBut(t *trial, k int) bool {
	for i, x := range s.targets {
		if i != k && x.margin(&t.report.Figures, pessimistic) < 0 {
			return false
		}
	}
	return true
}

// phaseAdvice runs what a plan advises on the seeds that would confirm it: advice from the search alone would fail those
// who follow it.
const phaseAdvice = "advice"

// relaxed is the k-th target, moved so far that t meets it in the search, on the fresh seeds, and under every stress that
// must hold. It is nil where t misses another target there.
func (s *search) relaxed(ctx context.Context, t *trial, k int) (*Relaxed, error) {
	trials, err := s.fresh(ctx, phaseAdvice, []choice{t.choice})
	if err != nil {
		return nil, err
	}
	again := trials[0]
	if !s.meetsAllBut(again, k) {
		return nil, nil
	}
	x := s.targets[k]
	worse := func(a, b float64) float64 {
		if x.Floor {
			return min(a, b)
		}
		return max(a, b)
	}
	bound := worse(x.value(&t.report.Figures, pessimistic), x.value(&again.report.Figures, pessimistic))
	if len(s.q.MustHold) > 0 {
		stresses, _, err := s.stress(ctx, phaseAdvice, t.choice)
		if err != nil {
			return nil, err
		}
		for _, one := range stresses {
			for i, m := range one.Margins {
				switch {
				case !one.Must:
				case i == k: // what the stress forgives stays forgiven
					bound = worse(bound, m.Value-(m.Bound-x.Bound))
				case !m.Meets:
					return nil, nil
				}
			}
		}
	}
	x.Bound = outward(bound, x.Floor)
	return &Relaxed{x, s.policy(t.choice), again.report.CallsPerS, again.report.FalseRejectRatio}, nil
}

// binding is the target that t, the chosen one, is nearest to, and what moving it would buy: calls, or, where the target
// is one of cost, accuracy. It prefers the least move that saves a tenth, and names none whose saving the fresh seeds do
// not show.
func (s *search) binding(ctx context.Context, t *trial) (*Binding, error) {
	margin, k := least(s.targets, &t.report.Figures, pessimistic)
	if math.IsInf(margin, 1) {
		return nil, nil // nothing is asked for but the promise
	}
	b := &Binding{Margin: margins(s.targets, &t.report.Figures)[k]}
	gain := func(o *trial) float64 { return 1 - o.calls()/t.calls() }
	if s.targets[k].cost() {
		gain = func(o *trial) float64 { return 1 - o.report.FalseRejectRatio.Mean/t.report.FalseRejectRatio.Mean }
	}
	for _, least := range []float64{0.1, alike} {
		var best *trial
		for _, o := range s.seen {
			if !(gain(o) >= least) || !s.meetsAllBut(o, k) || s.targets[k].margin(&o.report.Figures, pessimistic) >= 0 {
				continue
			}
			if best == nil || s.targets[k].margin(&o.report.Figures, pessimistic) > s.targets[k].margin(&best.report.Figures, pessimistic) {
				best = o
			}
		}
		if best != nil {
			r, err := s.relaxed(ctx, best, k)
			if err != nil {
				return nil, err
			}
			if r != nil && s.keeps(r, t, k, least) {
				b.Relaxed = r
				break
			}
		}
	}
	return b, nil
}

// keeps reports whether r gains at least that part over t, both on the fresh seeds.
func (s *search) keeps(r *Relaxed, t *trial, k int, least float64) bool {
	gain := 1 - r.CallsPerS.Mean/t.calls()
	if s.targets[k].cost() {
		gain = 1 - r.FalseRejectRatio.Mean/t.report.FalseRejectRatio.Mean
	}
	return gain >= least
}

// miss describes the closest of the candidates that failed, and what would make the question feasible.
func (s *search) miss(ctx context.Context, closest *trial, stress string) (*Miss, error) {
	m := &Miss{Closest: s.candidate(closest), Stress: stress}
	for _, x := range m.Closest.Margins {
		if !x.Meets {
			m.Missed = append(m.Missed, x)
		}
	}
	slices.SortStableFunc(m.Missed, func(a, b Margin) int { return cmp.Compare(a.Margin, b.Margin) })
	m.RepsNeeded = s.repsNeeded(closest)
	for k, x := range s.targets {
		var best *trial
		for _, t := range s.seen {
			if x.Figure != boundFigure && s.meetsAllBut(t, k) && (best == nil ||
				x.margin(&t.report.Figures, pessimistic) > x.margin(&best.report.Figures, pessimistic)) {
				best = t
			}
		}
		if best != nil && best.surely < 0 {
			r, err := s.relaxed(ctx, best, k)
			if err != nil {
				return nil, err
			}
			if r != nil {
				m.Relaxed = append(m.Relaxed, *r)
			}
		}
	}
	var err error
	m.Levers, err = s.levers(ctx, closest.choice)
	return m, err
}

// repsNeeded is how many replications would narrow t's intervals enough, if their means stay: widths go with the root.
func (s *search) repsNeeded(t *trial) int {
	if t.means < 0 || t.surely >= 0 {
		return 0
	}
	most := 0.0
	for _, x := range s.targets {
		mean, edge := x.value(&t.report.Figures, expected), x.value(&t.report.Figures, pessimistic)
		if ratio := (edge - mean) / (x.Bound - mean); ratio > 1 {
			most = max(most, float64(ratio*ratio))
		}
	}
	n := math.Ceil(float64(most * float64(t.report.Reps)))
	if !(n <= 10_000) { // as many as a scenario may have
		return 0
	}
	return int(n)
}

// outward rounds a bound to three digits, to the side on which it is kept.
func outward(x float64, floor bool) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 2, 64), 64)
	if err != nil || floor && r <= x || !floor && r >= x {
		return r
	}
	// The rounding went the other way: one unit of the third digit sets it right.
	unit := 1e-2
	for y := math.Abs(x); y >= 10; y /= 10 {
		unit *= 10
	}
	for y := math.Abs(x); y < 1 && y > 0; y *= 10 {
		unit /= 10
	}
	if floor {
		unit = -unit
	}
	r, _ = strconv.ParseFloat(strconv.FormatFloat(r+unit, 'e', 2, 64), 64)
	return r
}

// bound is the target's bound as words.
func (t Target) bound() string {
	if t.Floor {
		return fmt.Sprintf("at least %.4g", t.Bound)
	}
	return fmt.Sprintf("at most %.4g", t.Bound)
}
