package render

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

const boundText = "burst + overcommit + rate × window"

// verdicts are what a report says, in plain words: first whether the bound holds, then how good and how dear it was.
func (r Result) verdicts() []Verdict {
	rep := &r.Report
	var all []Verdict
	if r.interrupted() {
		all = append(all, Verdict{Neutral, fmt.Sprintf("Interrupted after %d of %d replications; all figures are of these.", rep.Reps, rep.RepsAsked)})
	}
	all = append(all, r.boundVerdict(), Verdict{Neutral, fmt.Sprintf(
		"The fleet admitted %s of what one central bucket would have, and rejected %s of it wrongly, with %s Redis calls per second, which keep a core %s busy.",
		Percent(rep.AdmittedVsCentral.Mean), Percent(rep.FalseRejectRatio.Mean), Number(rep.CallsPerS.Mean), Percent(rep.RedisCPU.Mean))})
	for _, rule := range r.Rules {
		if rule.Failure == "" {
			all = append(all, Verdict{Good, "Holds: " + rule.Text})
		} else {
			all = append(all, Verdict{Bad, "Does not hold: " + rule.Text + " (" + rule.Failure + ")"})
		}
	}
	return all
}

func (r Result) interrupted() bool { return r.Report.Reps < r.Report.RepsAsked }

func (r Result) boundVerdict() Verdict {
	worst := r.Report.BoundExceededBy
	if worst.Worst == 0 {
		of := "any of the " + Count(r.Report.Reps, "replication")
		if r.Report.Reps == 1 {
			of = "the one replication"
		}
		return Verdict{Good, "The bound holds: in no window of " + of + " did the fleet admit more than " + boundText + "."}
	}
	text := fmt.Sprintf("The bound is exceeded: in the worst window the fleet admitted %s tokens more than %s (seed %d).",
		Number(worst.Worst), boundText, worst.WorstSeed)
	if reasons := excuses(r.Scenario); len(reasons) > 0 {
		text += " The scenario allows that: " + strings.Join(reasons, "; ") + "."
	}
	return Verdict{Bad, text}
}

// excuses are what of a scenario may let a fleet exceed the bound without an error of the leases.
func excuses(s sim.Scenario) (reasons []string) {
	if s.Policy.Fallback != lease.FallbackDeny {
		reasons = append(reasons, "the policy's fallback admits without a lease while Redis does not answer")
	}
	if s.Policy.ColdStart == lease.ColdStartAllow {
		reasons = append(reasons, "the policy admits before the first reply")
	}
	if s.Redis.ClientTime {
		reasons = append(reasons, "the bucket counts time by the callers' clocks")
	}
	for _, f := range s.Redis.Faults {
		switch {
		case f.Kind == sim.FaultClockStep && f.By > 0:
			reasons = append(reasons, fmt.Sprintf("the clock of Redis steps forward by %v", f.By))
		case f.Kind == sim.FaultFailover && f.Lost > 0:
			reasons = append(reasons, fmt.Sprintf("a failover loses %v of writes", f.Lost))
		case f.Kind == sim.FaultRestartEmpty && !s.Policy.StartEmpty:
			reasons = append(reasons, "Redis restarts empty, and new buckets start full")
		}
	}
	for _, g := range s.Groups {
		if g.Pauses.Every > 0 && !s.Policy.StrictExpiry {
			reasons = append(reasons, "processes are paused past their leases, without strict_expiry")
			break
		}
	}
	return reasons
}

// subtitle says in a line or two what was simulated.
func (r Result) subtitle() string {
	rep, s := &r.Report, r.Scenario
	line := fmt.Sprintf("%s, %s, load %s, %s of %s", limitsText(s.Limits), Count(rep.Processes, "process"),
		workloadText(s.Workload), Count(rep.Reps, "replication"), seconds(rep.DurationS))
	if rep.WarmupS > 0 {
		line += fmt.Sprintf(", of which the first %s do not count", seconds(rep.WarmupS))
	}
	return line
}

// identity are the facts that tell this report from another.
func (r Result) identity() []Fact {
	rep := &r.Report
	reps := Number(float64(rep.Reps))
	if r.interrupted() {
		reps += fmt.Sprintf(" of %d", rep.RepsAsked)
	}
	return []Fact{
		{"scenario", Heading(rep.Scenario)},
		{"hash", rep.ScenarioHash},
		{"seed", fmt.Sprint(rep.Seed)},
		{"replications", reps},
		{"confidence", Percent(rep.Confidence)},
		{"schema", fmt.Sprint(rep.SchemaVersion)},
	}
}

// Machine are the facts of a report that depend on the machine.
func Machine(m sim.Machine) []Fact {
	return []Fact{
		{"took", m.Elapsed.Round(time.Millisecond).String()},
		{"simulated requests", Number(float64(m.Requests))},
		{"per second", Number(math.Round(m.RequestsPerS))},
		{"replications at one time", fmt.Sprint(m.Parallel)},
		{"Go", m.GoVersion},
		{"platform", m.Platform},
	}
}

func limitsText(limits []lease.Limit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.String()
	}
	return strings.Join(parts, " and ")
}

func workloadText(w sim.Workload) string {
	if w.Kind == sim.Replay {
		return "replayed from " + w.File
	}
	if w.Rate > 0 {
		return fmt.Sprintf("%s at %s/s", w.Kind, Number(float64(w.Rate)))
	}
	return fmt.Sprintf("%s at %s × the limit", w.Kind, Number(w.Load))
}

func seconds(s float64) string { return Number(s) + " s" }

// Count is a number of things: "1 replication", "3 processes".
func Count(n int, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "s"):
		thing += "es"
	default:
		thing += "s"
	}
	return Number(float64(n)) + " " + thing
}
