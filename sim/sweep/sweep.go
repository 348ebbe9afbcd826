package sweep

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Run simulates one scenario; the method of a sim.Runner with Parallel 1 is one. It is called by several goroutines.
type Run func(ctx context.Context, s sim.Scenario) (sim.Report, error)

// Sweep runs a scenario at every point of a grid. Run and Set are required; every other zero field means a good
// default.
type Sweep struct {
	Run        Run
	Set        Set
	Parallel   int         // points at one time; 0 means GOMAXPROCS. It does not change the Report
	Objectives []Objective // of the front; nil means DefaultObjectives
	// Own compares with the scenario's own values; otherwise the first value of every axis is the base.
	Own bool
	// Progress is told how many of the points have ended, one call at a time; nil for nobody.
	Progress func(done, of int)
}

// Do runs s with every combination of the axes' values, on the same seeds. A value that Set refuses and a grid that
// is too large are errors before anything runs; a point at which the scenario is not valid is a point that says so.
// When ctx ends, the points that have finished are kept, and the error wraps sim.ErrInterrupted and says how many.
func (w Sweep) Do(ctx context.Context, s sim.Scenario, axes []Axis) (Report, error) {
	g, err := newGrid(axes)
	if err != nil {
		return Report{}, err
	}
	if err := g.check(s, w.Set); err != nil {
		return Report{}, err
	}
	full := s.Defaults()
	r := Report{
		SchemaVersion: SchemaVersion,
		Scenario:      s.Name,
		ScenarioHash:  s.Hash(),
		Seed:          full.Seed,
		Reps:          full.Reps,
		DurationS:     full.Duration.Seconds(),
		Axes:          axes,
		Objectives:    w.Objectives,
		Points:        make([]Point, g.count),
	}
	if len(r.Objectives) == 0 {
		r.Objectives = DefaultObjectives()
	}
	if w.Own {
		r.Base = OwnBase
		r.Own = &Point{ScenarioHash: r.ScenarioHash, Invalid: reason(s)}
	}
	scenarios := make([]sim.Scenario, g.count)
	for i := range r.Points {
		p := &r.Points[i]
		p.Values = g.point(i)
		if scenarios[i], err = g.at(i, s, w.Set); err != nil {
			p.Invalid = err.Error()
			continue
		}
		p.ScenarioHash, p.Invalid = scenarios[i].Hash(), reason(scenarios[i])
		if r.Base == OwnBase && p.ScenarioHash == r.ScenarioHash {
			r.Base, r.Own = i, nil
		}
	}
	points := make([]*Point, g.count)
	for i := range r.Points {
		points[i] = &r.Points[i]
	}
	if r.Own != nil { // first, so that an interrupted sweep has its base
		points = append([]*Point{r.Own}, points...)
		scenarios = append([]sim.Scenario{s}, scenarios...)
	}
	err = w.runAll(ctx, &r, points, scenarios)
	r.compare()
	if err == nil && ctx.Err() != nil && r.Finished+r.Invalid < len(r.Points) {
		err = fmt.Errorf("sweep: %w: %d of %d points are finished", sim.ErrInterrupted, r.Finished, len(r.Points)-r.Invalid)
	}
	return r, err
}

// reason says why s cannot be run; it is empty if s can.
func reason(s sim.Scenario) string {
	err := s.Validate()
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(strings.ReplaceAll(err.Error(), sim.ErrInvalidScenario.Error()+": ", ""), "\n", "; ")
}

// runAll fills in the points' figures.
func (w Sweep) runAll(ctx context.Context, r *Report, points []*Point, scenarios []sim.Scenario) error {
	var mu sync.Mutex
	ended, start := 0, time.Now()
	err := Each(ctx, w.Parallel, len(points), func(i int) error {
		var got sim.Report
		var err error
		if points[i].Invalid == "" {
			got, err = w.Run(ctx, scenarios[i])
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, sim.ErrInterrupted):
			return nil
		case err != nil:
			return fmt.Errorf("sweep: %s: %w", r.Label(points[i]), err)
		case points[i].Invalid == "":
			points[i].Figures = &got.Figures
			r.Confidence = got.Confidence
			r.Machine.Requests += got.Machine.Requests
		}
		ended++
		if w.Progress != nil {
			w.Progress(ended, len(points))
		}
		return nil
	})
	r.Machine.Elapsed = time.Since(start)
	r.Machine.RequestsPerS = float64(r.Machine.Requests) / max(r.Machine.Elapsed.Seconds(), 1e-9)
	r.Machine.Parallel = w.Parallel
	r.Machine.GoVersion = runtime.Version()
	r.Machine.Platform = runtime.GOOS + "/" + runtime.GOARCH
	return err
}
