package search

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// PlanVersion is the version of Plan's JSON. It rises when a key changes its meaning or is removed.
const PlanVersion = 1

// The verdicts of a plan.
const (
	Found       = "found"
	Infeasible  = "infeasible"
	Undecided   = "undecided" // the longest runs leave open whether the targets hold
	Interrupted = "interrupted"
)

// Plan is the answer to a Question. Its JSON keys are part of the command's interface. Except for Machine,
// the same question and seed give the same plan on every machine.
type Plan struct {
	SchemaVersion int         `json:"schema_version"`
	Asked                     // the search's seed, and the replications of the confirmation
	ConfirmSeed   uint64      `json:"confirm_seed"` // of the confirmation; the search does not use it
	Targets       []Threshold `json:"targets"`
	Verdict       string      `json:"verdict"` // found, infeasible, undecided or interrupted
	// Chosen is the chosen policy with its figures on the confirmation's seeds. It is nil unless the verdict
	// is Found, and so is Given.
	Chosen *Candidate `json:"chosen,omitempty"`
	// Given is the scenario's own policy with its figures on the same seeds.
	Given  *Candidate `json:"given,omitempty"`
	Stress []Stress   `json:"stress,omitempty"` // of Chosen
	// TradeOffs has policies that no other policy beats in both calls and accuracy, the chosen one among
	// them. Their calls differ by a tenth or more. The figures are on the confirmation's seeds, but after an
	// interrupt on the search's.
	TradeOffs []Candidate `json:"trade_offs,omitempty"`
	// RequestsPerS is the number of requests per second. A limiter that asks Redis for each makes as many
	// calls.
	RequestsPerS float64 `json:"requests_per_s,omitempty"`
	// Load is the demand for the most popular key as a multiple of its limit. It is 0 without a Chosen.
	Load float64 `json:"load,omitempty"`
	Miss *Miss   `json:"miss,omitempty"` // if infeasible or undecided
	// SettlesS is the number of seconds in which the fleet of Miss settles, if that is too long to simulate.
	SettlesS float64     `json:"settles_s,omitempty"`
	Code     string      `json:"code,omitempty"` // a Go expression for the chosen configuration
	Machine  sim.Machine `json:"machine"`
}

// Policy has the fields of lease.Policy that a plan chooses. Durations are texts ("80ms").
type Policy struct {
	Target         string `json:"target"`
	DefaultTarget  bool   `json:"default_target,omitempty"` // Target is not set: leases of a fleet are longer
	TTL            string `json:"ttl"`
	DefaultTTL     bool   `json:"default_ttl,omitempty"` // TTL is not set: leases of a large fleet are longer
	Overcommit     int64  `json:"overcommit"`
	CallsPerSecond int64  `json:"calls_per_second,omitempty"`
	// TargetInForce is the length of leases where it is not Target: in a large fleet.
	TargetInForce string `json:"target_in_force,omitempty"`
}

// PolicyOf returns the policy of s.
func PolicyOf(s sim.Scenario) Policy {
	p := s.Policy
	target, inForce := cmp.Or(p.Target, p.TargetFor(s.Limits)), ""
	if t := s.TargetInForce(); t != target {
		inForce = t.String()
	}
	return Policy{
		target.String(), p.Target == 0, s.TTLInForce().String(), p.TTL == 0, p.Overcommit, p.CallsPerSecond, inForce,
	}
}

// Grade has the figures of a policy and compares them with the targets.
type Grade struct {
	Meets bool `json:"meets"` // every target, at the pessimistic end
	// Undecided reports that a longer run may show that the policy meets the targets.
	Undecided bool        `json:"undecided,omitempty"`
	Margins   []Margin    `json:"margins"`
	Figures   sim.Figures `json:"figures"`
}

// Candidate is a policy with its figures and the run that gave them.
type Candidate struct {
	Policy       Policy  `json:"policy"`
	ScenarioHash string  `json:"scenario_hash"` // of the scenario with this policy
	Seed         uint64  `json:"seed"`
	Reps         int     `json:"reps"`
	DurationS    float64 `json:"duration_s"` // with WarmupS, in which the fleet settles
	WarmupS      float64 `json:"warmup_s"`
	Grade
}

// Margin tells how far a figure is inside a target.
type Margin struct {
	Threshold
	Value float64 `json:"value"` // the pessimistic end
	Meets bool    `json:"meets"`
	// Margin is the distance to the bound as a part of what the target tolerates. On the bound it is 0, at
	// twice what the target tolerates -1. It is 0 too for a figure that must be 0 and is 0.
	Margin float64 `json:"margin"`
}

// Stress has the grade of the chosen policy in a harder world.
type Stress struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Must        bool   `json:"must"` // the policy was chosen to meet the targets here too
	// Load is the demand for the most popular key in an overload, as a multiple of its limit.
	Load float64 `json:"load,omitempty"`
	// Adds is the effect of recurring faults, as often as Description says. Margins and Figures include it:
	// it is added to false_reject_ratio and taken from admitted_vs_central.
	Adds float64 `json:"adds,omitempty"`
	Grade
}

// Miss has the policy that came closest to the targets, and the reason why it is not chosen.
type Miss struct {
	Closest Candidate `json:"closest"`
	Stress  string    `json:"stress,omitempty"` // the stress that Closest fails, if it meets the targets without
}

// GoCode returns a Go expression for the limits of s, its fallback, and the settings that a plan chooses.
func GoCode(s sim.Scenario) string {
	var b strings.Builder
	b.WriteString("hybrid.Config{\n\tLimits: []hybrid.Limit{\n")
	for _, l := range s.Limits {
		fmt.Fprintf(&b, "\t\t%s,\n", limitCode(l))
	}
	b.WriteString("\t},\n\tPolicy: hybrid.Policy{\n")
	field := func(isSet bool, name string, value any) {
		if isSet {
			fmt.Fprintf(&b, "\t\t%-15s %v,\n", name+":", value)
		}
	}
	p := s.Policy
	field(p.Target != 0, "Target", durationCode(p.Target))
	field(p.TTL != 0, "TTL", durationCode(p.TTL))
	field(true, "Overcommit", p.Overcommit)
	field(true, "Fallback", map[lease.Fallback]string{
		lease.FallbackLocalShare: "hybrid.FallbackLocalShare", lease.FallbackDeny: "hybrid.FallbackDeny",
		lease.FallbackAllowAll: "hybrid.FallbackAllowAll",
	}[p.Fallback])
	field(p.CallsPerSecond != 0, "CallsPerSecond", p.CallsPerSecond)
	return b.String() + "\t\t// other policy settings of the scenario stay\n\t},\n}\n"
}

func limitCode(l lease.Limit) string {
	switch l.Kind {
	case lease.KindSliding:
		return fmt.Sprintf("hybrid.Sliding(%d, %s)", l.Tokens, durationCode(l.Per))
	case lease.KindCalendar:
		return fmt.Sprintf("hybrid.Calendar(%d, %s, %s)", l.Tokens, durationCode(l.Per), durationCode(l.Offset))
	}
	return fmt.Sprintf("{Tokens: %d, Per: %s, Burst: %d}", l.Tokens, durationCode(l.Per), l.Capacity())
}

// durationCode returns a Go expression for d in the largest unit of which d is a multiple.
func durationCode(d time.Duration) string {
	unit, name := time.Nanosecond, "Nanosecond"
	for _, larger := range []string{"Microsecond", "Millisecond", "Second"} {
		if d%(1000*unit) == 0 {
			unit, name = 1000*unit, larger
		}
	}
	if d == unit {
		return "time." + name
	}
	return fmt.Sprintf("%d * time.%s", d/unit, name)
}
