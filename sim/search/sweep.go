// Package search answers a question with many simulations.
//
//   - Threshold: does a report meet FIGURE OP NUMBER?
//   - Lab.Sweep: how do the figures change over a grid of parameters? An Axis is one parameter.
//   - Lab.Plan: which lease policy makes the fewest calls to Redis and meets a user's targets?
//
// All simulations for one question use the same seeds, so that two scenarios differ by their parameters and
// not by luck. The answers are the same on every machine, because limits on requests, and not on time, bound
// the work. Package view shows the answers.
//
// plan.go makes a plan. policy.go lists the policies to try, rank.go compares policies, and stress.go makes
// harder worlds.
package search

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// SweepVersion is the version of a SweepReport's JSON, and rises when a key changes its meaning or is
// removed.
const SweepVersion = 1

// SweepReport is the answer of a sweep. The JSON keys of a SweepReport are part of the command's interface.
// Except for Machine, the same scenario, axes and seed give the same SweepReport on every machine.
type SweepReport struct {
	SchemaVersion int `json:"schema_version"`
	Asked
	Axes []Axis `json:"axes"`
	// Points has every combination of values. The first axis varies slowest. Differences compare each point
	// with the first point, the base.
	Points []Point `json:"points"`
	// Finished counts points with figures, and Invalid points that cannot run. Other points were interrupted.
	Finished int         `json:"finished"`
	Invalid  int         `json:"invalid"`
	Machine  sim.Machine `json:"machine"`
}

// Point is the scenario with one value for each axis, and its figures.
type Point struct {
	Values       []string `json:"values"` // values in the order of the axes
	ScenarioHash string   `json:"scenario_hash"`
	// TargetInForce is the length of leases: the limits or the budget of calls may change policy.target.
	TargetInForce string `json:"target_in_force,omitempty"`
	// Invalid is the reason why the scenario cannot run with these values.
	Invalid string       `json:"invalid,omitempty"`
	Figures *sim.Figures `json:"figures,omitempty"` // nil if the point did not run
	// Saturated marks a point at which Redis was overloaded, whose figures show little about the policy.
	Saturated bool `json:"saturated,omitempty"`
	// Differences has the differences from the base by the figure's JSON key. Differences is nil if this
	// point or the base has no figures.
	Differences map[string]sim.Difference `json:"differences,omitempty"`
}

// Label names a point by its values, as in "policy.target=10ms clock.offset=0".
func (r *SweepReport) Label(p *Point) string {
	parts := make([]string, len(p.Values))
	for k, v := range p.Values {
		parts[k] = r.Axes[k].Path + "=" + v
	}
	return strings.Join(parts, " ")
}

// Sweep runs s with every combination of the axes' values. Before any run, Sweep returns an error for a value
// that a field does not accept. When ctx ends, the report has the finished
// points, and the error wraps sim.ErrInterrupted.
func (l Lab) Sweep(ctx context.Context, s sim.Scenario, axes []Axis) (SweepReport, error) {
	trials, err := grid(s, axes)
	if err != nil {
		return SweepReport{}, err
	}
	r := SweepReport{SchemaVersion: SweepVersion, Asked: askedOf(s), Axes: axes}
	var valid []*trial
	for _, t := range trials {
		p := Point{Values: t.values, ScenarioHash: t.scenario.Hash(), Invalid: violation.Line(t.scenario.Validate())}
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
			r.Points[i].Figures = &t.report.Figures
			r.Points[i].Saturated = Saturated(t.report.RedisCPU)
		}
	}
	r.compare()
	return r, err
}

// compare computes the differences from the base.
func (r *SweepReport) compare() {
	base := r.Points[0].Figures
	for i := range r.Points {
		p := &r.Points[i]
		if p.Figures == nil || base == nil {
			continue
		}
		p.Differences = make(map[string]sim.Difference)
		of := base.All()
		for k, named := range p.Figures.All() {
			p.Differences[named.Name] = named.Over(*of[k].Figure, r.Confidence)
		}
	}
}

// grid returns s with every combination of the axes' values.
func grid(s sim.Scenario, axes []Axis) ([]*trial, error) {
	if len(axes) == 0 {
		return nil, fmt.Errorf("%w: no --vary is given", ErrAxis)
	}
	size := 1
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(other Axis) bool { return other.Path == a.Path }) {
			return nil, fmt.Errorf("%w: %s varies twice", ErrAxis, a.Path)
		}
		size *= len(a.Values)
	}
	points := make([]*trial, size)
	for i := range points {
		p, assignments := &trial{scenario: s, values: make([]string, len(axes))}, make([]string, len(axes))
		rest := i
		for k, a := range slices.Backward(axes) {
			p.values[k] = a.Values[rest%len(a.Values)]
			assignments[k] = a.Path + "=" + p.values[k]
			rest /= len(a.Values)
		}
		if err := scenfile.Set(&p.scenario, assignments...); err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrAxis, strings.Join(assignments, " "), err)
		}
		points[i] = p
	}
	return points, nil
}
