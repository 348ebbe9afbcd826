package search

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// PlanVersion is that of Plan's JSON; it rises when a key changes its meaning or goes.
const PlanVersion = 1

// The verdicts of a plan.
const (
	Found       = "found"
	Infeasible  = "infeasible"
	Undecided   = "undecided" // the fleet does not settle in the time that a run may last
	Interrupted = "interrupted"
)

// Plan is the answer to a Question. Its JSON keys are part of the command's interface. Everything
// but Machine is the same on every machine for the same question and seed.
type Plan struct {
	SchemaVersion int         `json:"schema_version"`
	Asked                     // the search's seed, and the replications of the confirmation
	ConfirmSeed   uint64      `json:"confirm_seed"` // of the confirmation; the search has not seen it
	Targets       []Threshold `json:"targets"`
	Verdict       string      `json:"verdict"` // found, infeasible, undecided or interrupted
	// Chosen is the policy that was found, on the fresh seeds; nil unless the verdict is Found.
	Chosen *Candidate `json:"chosen,omitempty"`
	// Given is the scenario's own policy, on the same seeds; nil unless the verdict is Found.
	Given  *Candidate `json:"given,omitempty"`
	Stress []Stress   `json:"stress,omitempty"` // of Chosen
	// TradeOffs are policies that no other one beats in calls and in the figures of the targets, the
	// chosen one among them, a tenth or more apart. They are on the fresh seeds too, unless the verdict
	// is Interrupted: then they are from the search.
	TradeOffs []Candidate `json:"trade_offs,omitempty"`
	// RequestsPerS counts the scenario's requests: a limiter that asks Redis for each makes as many calls.
	RequestsPerS float64 `json:"requests_per_s,omitempty"`
	// Load is how many times its limit the most popular key is asked for; 0 for a plan that chose nothing.
	Load float64 `json:"load,omitempty"`
	Miss *Miss   `json:"miss,omitempty"` // if infeasible or undecided
	// SettlesS is how many seconds the fleet of Miss takes to settle, where that is too long to be simulated.
	SettlesS float64     `json:"settles_s,omitempty"`
	Code     string      `json:"code,omitempty"` // a Go expression for the chosen configuration
	Machine  sim.Machine `json:"machine"`
}

// Policy has the fields of lease.Policy that a plan chooses, with lengths as texts ("80ms").
type Policy struct {
	Target         string `json:"target"`
	DefaultTarget  bool   `json:"default_target,omitempty"` // Target is not set: leases of a fleet are longer
	TTL            string `json:"ttl"`
	DefaultTTL     bool   `json:"default_ttl,omitempty"` // TTL is not set: leases of a large fleet are longer
	Overcommit     int64  `json:"overcommit"`
	CallsPerSecond int64  `json:"calls_per_second,omitempty"`
	// TargetInForce is how long leases last if that is not Target: in a large fleet.
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
		target.String(), p.Target == 0, ttlOf(s).String(), p.TTL == 0, p.Overcommit, p.CallsPerSecond, inForce,
	}
}

// Grade tells how a policy did.
type Grade struct {
	Meets bool `json:"meets"` // every target, at the pessimistic end
	// Undecided: a longer run may show that it meets the targets.
	Undecided bool        `json:"undecided,omitempty"`
	Margins   []Margin    `json:"margins"`
	Figures   sim.Figures `json:"figures"`
}

// Candidate is a policy and its figures.
type Candidate struct {
	Policy       Policy  `json:"policy"`
	ScenarioHash string  `json:"scenario_hash"` // of the scenario with this policy
	Seed         uint64  `json:"seed"`
	Reps         int     `json:"reps"`
	DurationS    float64 `json:"duration_s"` // with WarmupS, in which the fleet settles
	WarmupS      float64 `json:"warmup_s"`
	Grade
}

// Margin tells how far a candidate is inside a target.
type Margin struct {
	Threshold
	Value float64 `json:"value"` // the pessimistic end
	Meets bool    `json:"meets"`
	// Margin is a part of what the target tolerates: 0 is on the bound, -1 twice what is tolerated.
	// It is 0 for what must be 0 and is.
	Margin float64 `json:"margin"`
}

// Stress tells how the chosen policy did in a harder world.
type Stress struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Must        bool   `json:"must"` // the choice depended on it
	// Load is the demand for the most popular key in an overload, as a multiple of its limit.
	Load float64 `json:"load,omitempty"`
	// Adds is the part that such faults, as often as Description says, add to false_reject_ratio, and take
	// from admitted_vs_central, in Margins and in Figures.
	Adds float64 `json:"adds,omitempty"`
	Grade
}

// Miss tells how near a question without an answer came to one.
type Miss struct {
	Closest Candidate `json:"closest"`
	Stress  string    `json:"stress,omitempty"` // that Closest fails, if it meets the targets otherwise
}

// GoCode returns a Go expression for the limits of s, what a plan chooses of its policy, and the fallback.
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

// durationCode returns an expression for d in the largest unit that holds it whole.
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
