// Package search answers a question with many simulations.
//
//   - Threshold: does a report meet FIGURE OP NUMBER?
//   - Lab.Sweep: how do the figures change over a grid of parameters? An Axis is one parameter.
//   - Lab.Plan: which lease policy makes the fewest calls to Redis and meets a user's targets?
//
// All simulations for one question use the same seeds, so two scenarios differ by their parameters and not by
// chance. Limits on simulated requests bound the work, so answers are the same on every machine. Package view
// shows the answers.
package search

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/report"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// ErrAxis is wrapped by every error about an axis's text or values.
var ErrAxis = errors.New("search: invalid axis")

// Axis is one parameter that varies: the path of its field, as in --set, and its values as texts.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

var parentheses = regexp.MustCompile(`\([^()]*\)`)

// ParseAxis parses "path=value,value,...". A comma inside parentheses is part of a value: "normal(0s,10ms)".
func ParseAxis(text string) (Axis, error) {
	wrong := wrongText(ErrAxis, text)
	path, list, ok := strings.Cut(text, "=")
	if !ok || path == "" || strings.TrimSpace(path) != path {
		return Axis{}, wrong("must be PATH=VALUES, as in policy.target=10ms,50ms,1s")
	}
	a := Axis{Path: path}
	const inner = "\x00" // stands for a comma inside parentheses
	list = parentheses.ReplaceAllStringFunc(list, func(s string) string { return strings.ReplaceAll(s, ",", inner) })
	for value := range strings.SplitSeq(list, ",") {
		value = strings.ReplaceAll(strings.TrimSpace(value), inner, ",")
		if value == "" {
			return Axis{}, wrong("a value is missing")
		}
		a.Values = append(a.Values, value)
	}
	return a, nil
}

// SweepReport is the answer of a sweep. Its JSON keys are part of the command's interface. The same scenario,
// axes and seed give the same SweepReport on every machine, except for Machine.
type SweepReport struct {
	SchemaVersion int `json:"schema_version"`
	Asked
	Axes []Axis `json:"axes"`
	// Points has every combination of values. The first axis varies slowest. The first point is the base of
	// all differences.
	Points  []Point     `json:"points"`
	Machine sim.Machine `json:"machine"`
}

// Point is the scenario with one value for each axis, and its figures.
type Point struct {
	Values []string `json:"values"` // values in the order of the axes
	// TargetInForce is the intended length of leases. The burst shortens policy.target, and the call budget
	// of a large fleet lengthens it.
	TargetInForce string                    `json:"target_in_force"`
	Figures       sim.Figures               `json:"figures"`
	Differences   map[string]sim.Difference `json:"differences"` // differences from the base, by JSON key
}

// Label names a point by its values, as in "policy.target=10ms clock.offset=0".
func (r *SweepReport) Label(p *Point) string { return strings.Join(r.assignments(p), " ") }

func (r *SweepReport) assignments(p *Point) []string {
	all := make([]string, len(p.Values))
	for k, v := range p.Values {
		all[k] = r.Axes[k].Path + "=" + v
	}
	return all
}

// Sweep simulates s with every combination of the axes' values. Sweep returns an error before any simulation
// if a combination makes no valid scenario. When ctx ends, the error wraps sim.ErrInterrupted.
func (l Lab) Sweep(ctx context.Context, s sim.Scenario, axes []Axis) (SweepReport, error) {
	r := SweepReport{SchemaVersion: report.SchemaVersion, Asked: askedOf(s), Axes: axes}
	trials, err := r.grid(s)
	if err != nil {
		return SweepReport{}, err
	}
	w := l.begin()
	if err := w.simulate(ctx, "sweep", trials); err != nil {
		return SweepReport{}, err
	}
	r.Confidence, r.Machine = w.confidence, w.machine
	base := trials[0].report.All()
	for i, t := range trials {
		p := &r.Points[i]
		p.Figures, p.Differences = t.report.Figures, make(map[string]sim.Difference)
		for k, named := range p.Figures.All() {
			p.Differences[named.Name] = named.Minus(*base[k].Figure, r.Confidence)
		}
	}
	return r, nil
}

// grid adds a point for every combination of the axes' values, and returns the points' trials.
func (r *SweepReport) grid(s sim.Scenario) (trials []*trial, err error) {
	if len(r.Axes) == 0 {
		return nil, fmt.Errorf("%w: none is given", ErrAxis)
	}
	size := 1
	for i, a := range r.Axes {
		if slices.ContainsFunc(r.Axes[:i], func(other Axis) bool { return other.Path == a.Path }) {
			return nil, fmt.Errorf("%w: %s varies twice", ErrAxis, a.Path)
		}
		size *= len(a.Values)
	}
	for i := range size {
		p, t, rest := Point{Values: make([]string, len(r.Axes))}, &trial{scenario: s}, i
		for k, a := range slices.Backward(r.Axes) {
			p.Values[k] = a.Values[rest%len(a.Values)]
			rest /= len(a.Values)
		}
		t.name = r.Label(&p)
		err := scenfile.Set(&t.scenario, r.assignments(&p)...)
		if err == nil {
			err = t.scenario.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrAxis, t.name, err)
		}
		p.TargetInForce = t.scenario.Defaults().TargetInForce().String()
		r.Points, trials = append(r.Points, p), append(trials, t)
	}
	return trials, nil
}
