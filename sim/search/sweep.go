package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// ErrGrid is wrapped by every error about axes that do not make a grid.
var ErrGrid = errors.New("search: invalid grid")

// SweepVersion is that of SweepReport's JSON; it rises when a key changes its meaning or goes.
const SweepVersion = 2

// Sweep runs a scenario at every point of a grid. Run is required; every other zero field is a
// good default.
type Sweep struct {
	Run        Run
	Parallel   int         // points at one time; 0 means GOMAXPROCS. It changes no figure
	Objectives []Objective // of the front; nil means DefaultObjectives
	// Progress is told how many of the points that run have ended, one call at a time; nil for
	// nobody.
	Progress func(done, of int)
}

// SweepReport is what a sweep showed. Its JSON keys are part of the command's interface. Everything
// but Machine is the same on every machine for the same scenario, axes and seed.
type SweepReport struct {
	SchemaVersion int         `json:"schema_version"`
	Scenario      string      `json:"scenario"`
	ScenarioHash  string      `json:"scenario_hash"` // of the scenario as it was given
	Seed          uint64      `json:"seed"`
	Reps          int         `json:"reps"`
	DurationS     float64     `json:"duration_s"`
	Confidence    float64     `json:"confidence"` // of the intervals; 0 if no point finished
	Axes          []Axis      `json:"axes"`
	Objectives    []Objective `json:"objectives"`
	// Points are the whole grid; the first axis varies slowest. The first one, with the first value
	// of every axis, is the base that the others are compared with.
	Points []Point `json:"points"`
	// Finished points have figures, Invalid ones cannot have any. With the points that an
	// interruption left out they add up to all.
	Finished int         `json:"finished"`
	Invalid  int         `json:"invalid"`
	Machine  sim.Machine `json:"machine"`
}

// Point is the scenario with one value of each axis.
type Point struct {
	Values       []string `json:"values"` // in the order of the axes
	ScenarioHash string   `json:"scenario_hash"`
	// Invalid says why the scenario cannot run with these values.
	Invalid string `json:"invalid,omitempty"`
	// Front: no other point is at least as good in every objective and better in one.
	Front   bool         `json:"front"`
	Figures *sim.Figures `json:"figures,omitempty"` // nil if it did not run
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

// Do runs s with every combination of the axes' values. A value that its field does not take and a
// grid that is too large are errors before anything runs; a point at which the scenario is not
// valid is a point that says so. When ctx ends, the points that have finished are kept, and the
// error wraps sim.ErrInterrupted and says how many they are.
func (w Sweep) Do(ctx context.Context, s sim.Scenario, axes []Axis) (SweepReport, error) {
	count, err := gridSize(axes)
	if err == nil {
		err = checkValues(s, axes)
	}
	if err != nil {
		return SweepReport{}, err
	}
	full := s.Defaults()
	r := SweepReport{
		SchemaVersion: SweepVersion,
		Scenario:      s.Name,
		ScenarioHash:  s.Hash(),
		Seed:          full.Seed,
		Reps:          full.Reps,
		DurationS:     full.Duration.Seconds(),
		Axes:          axes,
		Objectives:    w.Objectives,
		Points:        make([]Point, count),
	}
	if len(r.Objectives) == 0 {
		r.Objectives = DefaultObjectives()
	}
	scenarios := make([]sim.Scenario, count)
	for i := range r.Points {
		p := &r.Points[i]
		p.Values = gridPoint(axes, i)
		one := s
		for k, v := range p.Values {
			if err := scenfile.Set(&one, axes[k].Path+"="+v); err != nil && p.Invalid == "" {
				p.Invalid = err.Error()
			}
		}
		scenarios[i], p.ScenarioHash = one, one.Hash()
		if p.Invalid == "" {
			p.Invalid = whyInvalid(one)
		}
	}
	err = w.run(ctx, &r, scenarios)
	r.compare()
	if errors.Is(err, sim.ErrInterrupted) {
		err = fmt.Errorf("search: %w: %d of %d points are finished",
			sim.ErrInterrupted, r.Finished, len(r.Points)-r.Invalid)
	}
	return r, err
}

// run fills in the figures of the points that are valid.
func (w Sweep) run(ctx context.Context, r *SweepReport, scenarios []sim.Scenario) error {
	var points []*Point
	var asked []sim.Scenario
	for i := range r.Points {
		if r.Points[i].Invalid == "" {
			points, asked = append(points, &r.Points[i]), append(asked, scenarios[i])
		}
	}
	l := newLab(w.Run, w.Parallel)
	reports, err := l.all(ctx, asked, func(i int) string { return r.Label(points[i]) }, w.Progress)
	for i, got := range reports {
		if got != nil {
			points[i].Figures, r.Confidence = &got.Figures, got.Confidence
		}
	}
	r.Machine = l.machine()
	return err
}

// compare fills in what follows from the figures of several points.
func (r *SweepReport) compare() {
	base := &r.Points[0]
	rows := make([][]float64, len(r.Points))
	for i := range r.Points {
		p := &r.Points[i]
		switch {
		case p.Figures != nil:
			r.Finished++
			rows[i] = scores(r.Objectives, p.Figures)
		case p.Invalid != "":
			r.Invalid++
		}
		if p.Figures == nil || base.Figures == nil {
			continue
		}
		p.Differences = make(map[string]sim.Difference)
		of := base.Figures.All()
		for k, named := range p.Figures.All() {
			p.Differences[named.Name] = named.Minus(*of[k].Figure, r.Confidence)
		}
	}
	for i, on := range paretoFront(rows) {
		r.Points[i].Front = on
	}
}

// whyInvalid says why s cannot run; it is empty if s can.
func whyInvalid(s sim.Scenario) string {
	err := s.Validate()
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), sim.ErrInvalidScenario.Error()+": ", "")
	return strings.ReplaceAll(text, "\n", "; ")
}

// gridSize is how many points the grid of axes has.
func gridSize(axes []Axis) (int, error) {
	if len(axes) == 0 {
		return 0, fmt.Errorf("%w: nothing varies", ErrGrid)
	}
	size := 1
	counts := make([]string, len(axes))
	for i, a := range axes {
		if slices.ContainsFunc(axes[:i], func(other Axis) bool { return other.Path == a.Path }) {
			return 0, fmt.Errorf("%w: %s varies twice", ErrGrid, a.Path)
		}
		counts[i] = fmt.Sprint(len(a.Values))
		size = min(size*len(a.Values), PointsMax+1) // it must not wrap around
	}
	if size > PointsMax {
		return 0, fmt.Errorf("%w: %s points are too many, must be at most %d",
			ErrGrid, strings.Join(counts, " x "), PointsMax)
	}
	return size, nil
}

// gridPoint is the values at point i, one of each axis.
func gridPoint(axes []Axis, i int) []string {
	values := make([]string, len(axes))
	for k, a := range slices.Backward(axes) {
		values[k] = a.Values[i%len(a.Values)]
		i /= len(a.Values)
	}
	return values
}

// checkValues tries every value by itself, so that a mistyped one is told before anything runs.
func checkValues(s sim.Scenario, axes []Axis) error {
	for _, a := range axes {
		for _, v := range a.Values {
			one := s
			if err := scenfile.Set(&one, a.Path+"="+v); err != nil {
				return fmt.Errorf("%w %s=%s: %w", ErrAxis, a.Path, v, err)
			}
		}
	}
	return nil
}
