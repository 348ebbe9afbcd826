package search

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// ErrTarget is wrapped by every error about targets that nothing can be measured against.
var ErrTarget = errors.New("search: invalid target")

// Target bounds a figure, by its JSON key: from above, or from below if Floor. The pessimistic end
// of the figure's interval must keep it.
type Target struct {
	Figure string  `json:"figure"`
	Floor  bool    `json:"floor"`
	Bound  float64 `json:"bound"`
}

// AtMost is a target from above.
func AtMost(figure string, bound float64) Target { return Target{figure, false, bound} }

// AtLeast is a target from below.
func AtLeast(figure string, bound float64) Target { return Target{figure, true, bound} }

// DefaultTargets are those of a question without any: one request in two hundred may be wrongly
// rejected.
func DefaultTargets() []Target { return []Target{AtMost("false_reject_ratio", 0.005)} }

// BoundFigure is held to zero by every plan whose policy promises it.
const BoundFigure = "bound_exceeded_by"

// validateTargets reports every target that has no figure or no bound, and every second one of a
// figure in the same direction.
func validateTargets(targets []Target) error {
	var errs []error
	for i, t := range targets {
		same := func(o Target) bool { return o.Figure == t.Figure && o.Floor == t.Floor }
		switch {
		case !slices.Contains(FigureNames(), t.Figure):
			errs = append(errs, fmt.Errorf("%w: there is no figure %q", ErrTarget, t.Figure))
		case math.IsNaN(t.Bound) || math.IsInf(t.Bound, 0):
			errs = append(errs, fmt.Errorf("%w: the bound of %s is %v, must be a number", ErrTarget, t.Figure, t.Bound))
		case slices.ContainsFunc(targets[:i], same):
			errs = append(errs, fmt.Errorf("%w: %s is bounded twice", ErrTarget, t.Figure))
		}
	}
	return errors.Join(errs...)
}

// withPromise adds the promise to the targets of a policy that keeps it whatever happens to Redis.
func withPromise(targets []Target, p lease.Policy) []Target {
	if p.Fallback != lease.FallbackDeny {
		return targets
	}
	return append(slices.Clip(targets), AtMost(BoundFigure, 0))
}

// end is a place in a figure's interval, from the target's point of view.
type end int

const (
	pessimistic end = iota
	expected
	optimistic
)

// value is what f says at one end of its interval. A broken promise is never a matter of the mean.
func (t Target) value(f *sim.Figures, at end) float64 {
	figure := FigureOf(f, t.Figure)
	switch {
	case t.Figure == BoundFigure:
		return figure.Worst
	case at == expected:
		return figure.Mean
	case (at == pessimistic) == t.Floor:
		return figure.Low
	}
	return figure.High
}

// margin is how far f is inside the target, as a part of what the target tolerates: 0 is on the
// bound, 0.5 half-way to perfect, -1 twice as bad as tolerated. A ceiling tolerates its bound (1
// where that is 0), a floor what lacks to 1 (the bound where that is nothing). What is not a number
// is infinitely far outside; a promise that is kept is infinitely far inside.
func (t Target) margin(f *sim.Figures, at end) float64 {
	x := t.value(f, at)
	if math.IsNaN(x) {
		return math.Inf(-1)
	}
	if t == AtMost(BoundFigure, 0) {
		if x <= 0 {
			return math.Inf(1)
		}
		return -x
	}
	room, tolerated := t.Bound-x, t.Bound
	if t.Floor {
		room, tolerated = x-t.Bound, 1-t.Bound
		if tolerated <= 0 {
			tolerated = t.Bound
		}
	}
	if tolerated <= 0 {
		tolerated = 1
	}
	return room / tolerated
}

// least is the smallest margin of all targets.
func least(targets []Target, f *sim.Figures, at end) float64 {
	margin := math.Inf(1)
	for _, t := range targets {
		margin = min(margin, t.margin(f, at))
	}
	return margin
}

// margins are those of all targets, at the pessimistic end.
func margins(targets []Target, f *sim.Figures) []Margin {
	all := make([]Margin, len(targets))
	for i, t := range targets {
		m := t.margin(f, pessimistic)
		all[i] = Margin{Target: t, Value: t.value(f, pessimistic), Meets: m >= 0, Margin: m}
		if math.IsInf(m, 1) {
			all[i].Margin = 0 // JSON has no infinity
		}
	}
	return all
}

// cost reports whether the target bounds what leases cost rather than what they do.
func (t Target) cost() bool { return t.Figure == "calls_per_s" || t.Figure == "redis_cpu" }

// TradedFor is what a plan trades against lease calls: whatever else the targets bound.
func TradedFor(targets []Target) []Objective {
	var all []Objective
	for _, t := range targets {
		if !t.cost() && t.Figure != BoundFigure {
			all = append(all, Objective{Figure: t.Figure, Max: t.Floor})
		}
	}
	if len(all) == 0 {
		all = append(all, Objective{Figure: "false_reject_ratio"})
	}
	return all
}
