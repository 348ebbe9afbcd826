package view

import (
	"fmt"
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// Result is the report of one run with what a reader needs beside it.
type Result struct {
	Scenario   sim.Scenario // that was run
	Text       string       // of the scenario's file
	Report     sim.Report
	Command    string // the command line that repeats it
	Thresholds []search.Threshold
	// Describe is a line about an algorithm; nil where there is none.
	Describe func(algorithm string) string
}

const boundText = "burst + overcommit + rate × window"

// Run shows the report of a run. JSON is the report itself; CSV has a line per figure, of the fleet
// and of each rival.
func Run(r Result) Document {
	figures := r.figures()
	sections := append(r.charts(), Section{
		Title: "Figures",
		Table: &figures,
		Text:  []string{"A worst value comes again with its seed and --reps 1. " + Bases},
	})
	if len(r.Report.Rivals) > 0 {
		sections = append(sections, r.rivals()...)
	}
	return r.document(nameOf(r.Report.Scenario), sections)
}

// document is what a run and a comparison have in common.
func (r Result) document(title string, sections []Section) Document {
	rep, s := &r.Report, r.Scenario.Defaults()
	reps := Number(float64(rep.Reps))
	if r.interrupted() {
		reps += fmt.Sprintf(" of %d", rep.RepsAsked)
	}
	rows := append([][]string{figureHead}, figureRows(Own, rep.Figures.All())...)
	for i := range rep.Rivals {
		rows = append(rows, figureRows(rep.Rivals[i].Name, rep.Rivals[i].All())...)
	}
	policy := s.Policy.ConfigFor(s.Limits, 0, s.CallTimeout)
	return Document{
		Title:    title,
		Subtitle: strings.TrimSpace(s.Description + "\n" + r.subtitle(s)),
		Facts: []Fact{
			{"hash", rep.ScenarioHash},
			{"seed", fmt.Sprint(rep.Seed)},
			{"replications", reps},
			{"confidence", Percent(rep.Confidence)},
			{"target", policy.Target.String()},
			{"ttl", policy.TTL.String()},
		},
		Verdicts: r.verdicts(s),
		Sections: append(sections, Closing(r.Text, r.Command)...),
		Machine:  rep.Machine,
		Data:     rep,
		Rows:     rows,
	}
}

// subtitle says in a line what was simulated.
func (r Result) subtitle(s sim.Scenario) string {
	limits := make([]string, len(s.Limits))
	for i, l := range s.Limits {
		limits[i] = l.String()
	}
	load := fmt.Sprintf("%s at %s × the limit", s.Workload.Kind, Number(s.Workload.Load))
	switch {
	case s.Workload.Kind == sim.Replay:
		load = "replayed from " + s.Workload.File
	case s.Workload.Rate > 0:
		load = fmt.Sprintf("%s at %s/s", s.Workload.Kind, Number(float64(s.Workload.Rate)))
	}
	line := fmt.Sprintf("%s, %s, load %s, %s of %s s", strings.Join(limits, " and "), count(r.Report.Processes, "process"),
		load, count(r.Report.Reps, "replication"), Number(r.Report.DurationS))
	if r.Report.WarmupS > 0 {
		line += fmt.Sprintf(", of which the first %s s do not count", Number(r.Report.WarmupS))
	}
	return line
}

func (r Result) interrupted() bool { return r.Report.Reps < r.Report.RepsAsked }

// verdicts are what the report says, in plain words: first whether the bound holds, then how good
// and how dear it was.
func (r Result) verdicts(s sim.Scenario) (all []Verdict) {
	rep := &r.Report
	if r.interrupted() {
		all = append(all, Verdict{Neutral,
			fmt.Sprintf("Interrupted after %d of %d replications; all figures are of these.", rep.Reps, rep.RepsAsked)})
	}
	if worst := rep.BoundExceededBy; worst.Worst == 0 {
		all = append(all, Verdict{Good, fmt.Sprintf("The bound holds: in no window of %s did the fleet admit more than %s.",
			count(rep.Reps, "replication"), boundText)})
	} else {
		text := fmt.Sprintf("The bound is exceeded: in the worst window the fleet admitted %s tokens more than %s (seed %d).",
			Number(worst.Worst), boundText, worst.WorstSeed)
		if reasons := excuses(s); len(reasons) > 0 {
			text += " The scenario allows that: " + strings.Join(reasons, "; ") + "."
		}
		all = append(all, Verdict{Bad, text})
	}
	all = append(all, Verdict{Neutral, fmt.Sprintf("The fleet admitted %s of what one central bucket would have, and "+
		"rejected %s of it wrongly, with %s Redis calls per second, which keep a core %s busy.", Percent(rep.AdmittedVsCentral.Mean),
		Percent(rep.FalseRejectRatio.Mean), Number(rep.CallsPerS.Mean), Percent(rep.RedisCPU.Mean))})
	for _, t := range r.Thresholds {
		if failure := t.Failure(rep); failure == "" {
			all = append(all, Verdict{Good, "Holds: " + t.String()})
		} else {
			all = append(all, Verdict{Bad, fmt.Sprintf("Does not hold: %s (%s)", t, failure)})
		}
	}
	return all
}

// excuses are the settings of a scenario with which a fleet may exceed the bound although its
// leases work as they should.
func excuses(s sim.Scenario) (reasons []string) {
	excuse := func(allows bool, reason string) {
		if allows {
			reasons = append(reasons, reason)
		}
	}
	excuse(s.Policy.Fallback != lease.FallbackDeny, "the policy's fallback admits without a lease while Redis does not answer")
	excuse(s.Policy.ColdStart == lease.ColdStartAllow, "the policy admits before the first reply")
	excuse(s.Redis.ClientTime, "the bucket counts time by the callers' clocks")
	for _, f := range s.Redis.Faults {
		excuse(f.Kind == sim.FaultClockStep && f.By > 0, fmt.Sprintf("the clock of Redis steps forward by %v", f.By))
		excuse(f.Kind == sim.FaultFailover && f.Lost > 0, fmt.Sprintf("a failover loses %v of writes", f.Lost))
		excuse(f.Kind == sim.FaultRestartEmpty && !s.Policy.StartEmpty, "Redis restarts empty, and new buckets start full")
	}
	for _, g := range s.Groups {
		excuse(g.Pauses.Every > 0 && !s.Policy.StrictExpiry, "processes are paused past their leases, without strict_expiry")
	}
	return reasons
}

// figures is the table of all figures.
func (r Result) figures() Table {
	mean := ">mean ± " + Percent(r.Report.Confidence)
	if r.Report.Reps < 2 {
		mean = ">value"
	}
	t := Table{Columns: []string{"figure", mean, ">worst", ">of seed", "what it is"}}
	for _, f := range r.Report.Figures.All() {
		t.Add(f.Name, Figure(f.Name, *f.Figure), Value(f.Name, f.Worst), fmt.Sprint(f.WorstSeed), About(f.Name))
	}
	return t
}
