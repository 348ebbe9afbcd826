// Package search asks many simulations one question.
//
//   - Threshold: does a report show what it must? FIGURE OP NUMBER.
//   - Lab.Sweep: how do the figures change over a grid of parameters? Each Axis is one parameter.
//   - Lab.Plan: which lease policy asks Redis the least and still meets what a user demands?
//
// Everything that one question compares runs on the same seeds, so that two scenarios differ by
// their parameters and not by their luck. The answers are the same on every machine: effort is
// bounded in simulated requests, never in seconds. Package view shows them.
//
// Files: objective.go the names of figures, and which points none beats; threshold.go what a report
// must show; lab.go many simulations at once; axis.go and sweep.go the grid; saturation.go what a
// busy Redis needs. A plan is asked for and searched for in plan.go, and confirmed in
// plan_confirm.go: policy.go has the policies there are, rank.go by how much they meet the targets
// and who is better, stress.go worse conditions, plan_report.go the answer.
package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// ErrGrid is wrapped by every error about axes that do not make a grid.
var ErrGrid = errors.New("search: invalid grid")

// SweepVersion is that of SweepReport's JSON; it rises when a key changes its meaning or goes.
const SweepVersion = 2

// SweepReport is what a sweep showed. Its JSON keys are part of the command's interface. Everything
// but Machine is the same on every machine for the same scenario, axes and seed.
type SweepReport struct {
	SchemaVersion int `json:"schema_version"`
	Asked
	Axes       []Axis      `json:"axes"`
	Objectives []Objective `json:"objectives"`
	// Points are the whole grid; the first axis varies slowest. The first one, with the first value of
	// every axis, is the base that the others are compared with.
	Points []Point `json:"points"`
	// Finished points have figures, Invalid ones cannot have any. With the points that an interruption
	// left out they add up to all.
	Finished int `json:"finished"`
	Invalid  int `json:"invalid"`
	// Relief is what would help Redis at the busiest point, if it is saturated there.
	Relief  *sim.Relief `json:"relief,omitempty"`
	Machine sim.Machine `json:"machine"`
}

// Point is the scenario with one value of each axis.
type Point struct {
	Values       []string `json:"values"` // in the order of the axes
	ScenarioHash string   `json:"scenario_hash"`
	// TargetInForce is how long leases last, which the limits or the budget of calls may have made
	// another length than the scenario's policy.target.
	TargetInForce string `json:"target_in_force,omitempty"`
	// Invalid says why the scenario cannot run with these values.
	Invalid string `json:"invalid,omitempty"`
	// Front: the bound holds, and no other point of the front is certainly better in one objective and
	// certainly worse in none, seed by seed.
	Front   bool         `json:"front"`
	Figures *sim.Figures `json:"figures,omitempty"` // nil if it did not run
	// Rivals are the other algorithms that the scenario names, in its order.
	Rivals []sim.RivalReport `json:"rivals,omitempty"`
	// Saturated: Redis could not keep up, so the figures say more about it than about the policy.
	Saturated bool `json:"saturated,omitempty"`
	// Differences from the base, by the figure's JSON key; nil if one of the two has no figures.
	Differences map[string]sim.Difference `json:"differences,omitempty"`
}

// Label names a point by its values: "policy.target=10ms clock.offset=0".
func (r *SweepReport) Label(p *Point) string {
	parts := make([]string, len(p.Values))
	for k, v := range p.Values {
		parts[k] = r.Axes[k].Path + "=" + v
	}
	return strings.Join(parts, " ")
}

// Sweep runs s with every combination of the axes' values. The goals are those of the front; nil
// means DefaultObjectives. A value that its field does not take and a grid that is too large are
// errors before anything runs; a point at which the scenario is not valid is a point that says so.
// When ctx ends, the points that have finished are kept, and the error wraps sim.ErrInterrupted.
func (l Lab) Sweep(ctx context.Context, s sim.Scenario, axes []Axis, goals []Objective) (SweepReport, error) {
	trials, err := grid(s, axes)
	if err != nil {
		return SweepReport{}, err
	}
	if goals == nil {
		goals = DefaultObjectives()
	}
	r := SweepReport{SchemaVersion: SweepVersion, Asked: askedOf(s), Axes: axes, Objectives: goals}
	var valid []*trial
	for _, t := range trials {
		p := Point{Values: t.values, ScenarioHash: t.scenario.Hash(), Invalid: whyInvalid(t.scenario)}
		if t.name = r.Label(&p); p.Invalid == "" {
			p.TargetInForce = t.scenario.Defaults().TargetInForce().String()
			valid = append(valid, t)
		}
		r.Points = append(r.Points, p)
	}
	w := l.begin()
	finished, err := w.simulate(ctx, "sweep", valid)
	r.Finished, r.Invalid = len(finished), len(trials)-len(valid)
	r.Confidence, r.Machine = w.confidence, w.machine
	for i, t := range trials {
		if t.report != nil {
			r.Points[i].Figures, r.Points[i].Rivals = &t.report.Figures, t.report.Rivals
			r.Points[i].Saturated = Saturated(&t.report.Figures)
		}
	}
	r.compare()
	if busiest := r.Busiest(); busiest >= 0 && err == nil {
		r.Relief, err = l.Relieve(ctx, trials[busiest].scenario)
	}
	return r, err
}

// Busiest is the saturated point at which Redis is busiest, or -1 where there is none.
func (r *SweepReport) Busiest() int {
	busiest := -1
	for i, p := range r.Points {
		if p.Saturated && (busiest < 0 || p.Figures.RedisCPU.Worst > r.Points[busiest].Figures.RedisCPU.Worst) {
			busiest = i
		}
	}
	return busiest
}

// compare fills in what follows from the figures of several points.
func (r *SweepReport) compare() {
	base := r.Points[0].Figures
	rows := make([]*sim.Figures, len(r.Points))
	for i := range r.Points {
		p := &r.Points[i]
		if p.Figures == nil {
			continue
		}
		if !breaks(p.Figures) {
			rows[i] = p.Figures
		}
		if base == nil {
			continue
		}
		p.Differences = make(map[string]sim.Difference)
		of := base.All()
		for k, named := range p.Figures.All() {
			p.Differences[named.Name] = named.Over(*of[k].Figure, r.Confidence)
		}
	}
	if !r.Certain() {
		return
	}
	for i, on := range paretoFront(r.Objectives, rows, r.Confidence) {
		r.Points[i].Front = on
	}
}

// Certain reports whether the sweep has a front, and its differences have intervals: one
// replication does not tell luck from merit.
func (r *SweepReport) Certain() bool { return r.Reps > 1 }

// grid is s with every combination of the axes' values.
func grid(s sim.Scenario, axes []Axis) ([]*trial, error) {
	size, counts := 1, make([]string, len(axes))
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(other Axis) bool { return other.Path == a.Path }) {
			return nil, fmt.Errorf("%w: %s varies twice", ErrGrid, a.Path)
		}
		counts[i] = strconv.Itoa(len(a.Values))
		size = min(size*len(a.Values), PointsMax+1) // it must not wrap around
	}
	switch {
	case len(axes) == 0:
		return nil, fmt.Errorf("%w: nothing varies", ErrGrid)
	case size > PointsMax:
		return nil, fmt.Errorf("%w: %s points are too many, must be at most %d",
			ErrGrid, strings.Join(counts, " x "), PointsMax)
	}
	points := []*trial{{}}
	for _, a := range axes {
		var finer []*trial
		for _, p := range points {
			for _, v := range a.Values {
				finer = append(finer, &trial{values: append(slices.Clip(p.values), v)})
			}
		}
		points = finer
	}
	for _, p := range points {
		p.scenario = s
		assignments := make([]string, len(axes))
		for k, a := range axes {
			assignments[k] = a.Path + "=" + p.values[k]
		}
		if err := scenfile.Set(&p.scenario, assignments...); err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrAxis, strings.Join(assignments, " "), err)
		}
	}
	return points, nil
}

// whyInvalid says in a line why s cannot run; it is empty if s can.
func whyInvalid(s sim.Scenario) string {
	err := s.Validate()
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), sim.ErrInvalidScenario.Error()+": ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}
