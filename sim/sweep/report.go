package sweep

import (
	"strings"

	"github.com/yuzhi-go/yuzhi/sim"
)

// SchemaVersion is that of Report's JSON; it rises when a key changes its meaning or goes.
const SchemaVersion = 1

// OwnBase is Report.Base where the scenario's own values are the base and no point of the grid has all of them.
const OwnBase = -1

// Report is what a sweep showed. Its JSON keys are part of the command's interface. Everything but Machine is the same
// on every machine for the same scenario, axes and seed.
type Report struct {
	SchemaVersion int         `json:"schema_version"`
	Scenario      string      `json:"scenario"`
	ScenarioHash  string      `json:"scenario_hash"` // of the scenario as it was given
	Seed          uint64      `json:"seed"`
	Reps          int         `json:"reps"`
	DurationS     float64     `json:"duration_s"`
	Confidence    float64     `json:"confidence"` // of the intervals; 0 if no point finished
	Axes          []Axis      `json:"axes"`
	Objectives    []Objective `json:"objectives"`
	// Base is the number of the point that the others are compared with, or OwnBase.
	Base   int     `json:"base"`
	Own    *Point  `json:"own,omitempty"` // the scenario's own values, with OwnBase
	Points []Point `json:"points"`        // all of the grid; the first axis varies slowest
	// Finished is how many points have figures, Invalid how many cannot have any. With the points that an
	// interruption left out they add up to all.
	Finished int         `json:"finished"`
	Invalid  int         `json:"invalid"`
	Machine  sim.Machine `json:"machine"`
}

// Point is the scenario with one value of each axis.
type Point struct {
	Values       []string `json:"values"` // of the axes, in their order
	ScenarioHash string   `json:"scenario_hash"`
	// Invalid says why the scenario cannot be run with these values.
	Invalid string `json:"invalid,omitempty"`
	// Front: no other point is at least as good in every objective and better in one.
	Front   bool         `json:"front"`
	Figures *sim.Figures `json:"figures,omitempty"` // nil if it did not run
	// Differences from the base, by the figure's JSON key; nil if one of the two has no figures.
	Differences map[string]sim.Difference `json:"differences,omitempty"`
}

// Label names a point by its values: "policy.target=10ms clock.offset=0".
func (r *Report) Label(p *Point) string {
	if p == r.Own {
		return "as given"
	}
	parts := make([]string, len(p.Values))
	for k, v := range p.Values {
		parts[k] = r.Axes[k].Path + "=" + v
	}
	return strings.Join(parts, " ")
}

// BasePoint is the point that the others are compared with.
func (r *Report) BasePoint() *Point {
	if r.Base == OwnBase {
		return r.Own
	}
	return &r.Points[r.Base]
}

// compare fills in what follows from the figures of several points.
func (r *Report) compare() {
	base := r.BasePoint()
	rows := make([][]float64, len(r.Points))
	for i := range r.Points {
		p := &r.Points[i]
		switch {
		case p.Figures != nil:
			r.Finished++
			rows[i] = Scores(r.Objectives, p.Figures)
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
	for i, on := range Front(rows) {
		r.Points[i].Front = on
	}
}
