package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
	"github.com/yuzhi-go/yuzhi/sim/view"
)

// reading is a report that was read from a file: of one run, of the points of a sweep, or of the
// policies of a plan.
type reading struct {
	kind       string // the commands that write it
	scenario   string
	hash       string
	seed       uint64
	reps       int
	durationS  float64
	confidence float64
	about      string // of a plan: what it found
	parts      []piece
}

// piece is what has figures, by its name: "" of a run, the values of a point, the role of a policy.
type piece struct {
	name   string
	report sim.Report // as far as it has figures, and the seed that they are of
}

const (
	kindRun   = "run, compare or replay"
	kindSweep = "sweep"
	kindPlan  = "plan"
)

// readReport reads what run, compare, replay, sweep or plan wrote as JSON.
func readReport(path string) (r reading, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("%w: %w", errUsage, err)
	}
	if syntax := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(text, new(any)), &syntax) {
		return r, fmt.Errorf("%w: %s is not JSON, as --out json writes it: %w", errUsage, path, syntax)
	}
	var asked struct {
		SchemaVersion int `json:"schema_version"`
		search.Asked
		Points  json.RawMessage `json:"points"`
		Targets json.RawMessage `json:"targets"`
	}
	if err := json.Unmarshal(text, &asked); err != nil || asked.ScenarioHash == "" || asked.Reps < 1 {
		return r, fmt.Errorf("%w: %s is not a report of run, compare, replay, sweep or plan, as --out json writes it", errUsage, path)
	}
	version := sim.SchemaVersion
	switch r.kind = kindRun; {
	case asked.Points != nil:
		r.kind, version = kindSweep, search.SweepVersion
	case asked.Targets != nil:
		r.kind, version = kindPlan, search.PlanVersion
	}
	if asked.SchemaVersion != version {
		return r, fmt.Errorf("%w: %s, of %s, has schema_version %d, this leasesim %d: write it again", errUsage, path, r.kind,
			asked.SchemaVersion, version)
	}
	r.scenario, r.hash, r.seed, r.reps = asked.Scenario, asked.ScenarioHash, asked.Seed, asked.Reps
	r.durationS, r.confidence = asked.DurationS, asked.Confidence
	if err := r.read(text); err != nil {
		return r, fmt.Errorf("%w: %s is not a whole report of %s: %w", errUsage, path, r.kind, err)
	}
	return r, nil
}

// read reads the parts.
func (r *reading) read(text []byte) error {
	into := json.NewDecoder(bytes.NewReader(text)).Decode
	switch r.kind {
	case kindSweep:
		var s search.SweepReport
		if err := into(&s); err != nil {
			return err
		}
		for i := range s.Points {
			if p := &s.Points[i]; p.Figures != nil && len(p.Values) == len(s.Axes) {
				r.parts = append(r.parts, piece{s.Label(p), sim.Report{Seed: s.Seed, Figures: *p.Figures, Rivals: p.Rivals}})
			}
		}
	case kindPlan:
		var p search.Plan
		if err := into(&p); err != nil {
			return err
		}
		r.about = ", " + p.Verdict
		for i, c := range []*search.Candidate{p.Chosen, p.Given} {
			if c != nil {
				r.parts = append(r.parts, piece{[]string{"chosen policy", "given policy"}[i], sim.Report{Seed: c.Seed, Figures: c.Figures}})
			}
		}
		if p.Chosen != nil {
			r.about += fmt.Sprintf(" target %s, ttl %s, overcommit %d", p.Chosen.Policy.Target, p.Chosen.Policy.TTL, p.Chosen.Policy.Overcommit)
		}
	default:
		one := piece{}
		if err := into(&one.report); err != nil {
			return err
		}
		r.parts = []piece{one}
	}
	return nil
}

// line says what was read.
func (r *reading) line(name string) string {
	reps := "replications"
	if r.reps == 1 {
		reps = "replication"
	}
	return fmt.Sprintf("%-7s %s, hash %s, seed %d, %d %s of %s s%s", name, r.scenario, r.hash, r.seed, r.reps, reps,
		view.Number(r.durationS), r.about)
}
