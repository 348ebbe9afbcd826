package search

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// These constants are the verdicts of a plan.
const (
	Found      = "found"
	Infeasible = "infeasible"
	Undecided  = "undecided" // the longest runs leave open whether a policy meets the targets
)

// Plan is the answer to a Question. Its JSON keys are part of the command's interface. The same question and
// seed give the same Plan on every machine, except for Machine.
type Plan struct {
	SchemaVersion int         `json:"schema_version"`
	Asked                     // seed of the search, and replications of the confirmation
	ConfirmSeed   uint64      `json:"confirm_seed"` // seed of the confirmation, which the search does not use
	Targets       []Threshold `json:"targets"`
	Verdict       string      `json:"verdict"` // found, infeasible or undecided
	// Chosen is the advised policy, and Given the scenario's own policy. Chosen and Given are nil unless the
	// verdict is Found. All figures of a plan come from the confirmation's seeds.
	Chosen *Candidate `json:"chosen,omitempty"`
	Given  *Candidate `json:"given,omitempty"`
	Stress []Stress   `json:"stress,omitempty"` // grades of Chosen under each stress
	// TradeOffs has Chosen, and policies that no other policy beats in both calls and accuracy. The calls of
	// two trade-offs differ by a tenth or more.
	TradeOffs []Candidate `json:"trade_offs,omitempty"`
	// BurstWanted is the burst that the call budget of Chosen needs, or 0 if every limit has enough. A
	// limiter with a smaller burst logs a warning.
	BurstWanted int64 `json:"burst_wanted,omitempty"`
	// RequestsPerS is the number of requests per second, and of calls of a limiter that asks Redis each time.
	RequestsPerS float64 `json:"requests_per_s,omitempty"`
	// Load is the demand for the most popular key as a multiple of its limit, outside of a flash crowd. Load
	// is 0 without a Chosen, for a trace and for an adversary.
	Load float64 `json:"load,omitempty"`
	Miss *Miss   `json:"miss,omitempty"` // only if the verdict is infeasible or undecided
	// SettlesS is the settling time in seconds of the fleet with the closest policy, if too long to simulate.
	SettlesS float64     `json:"settles_s,omitempty"`
	Code     string      `json:"code,omitempty"` // a Go expression for the chosen configuration
	Machine  sim.Machine `json:"machine"`
}

// Policy has the fields of lease.Policy that a plan chooses. Durations are texts ("80ms").
type Policy struct {
	Target         string `json:"target"`
	DefaultTarget  bool   `json:"default_target,omitempty"` // Policy.Target is 0
	TTL            string `json:"ttl"`
	DefaultTTL     bool   `json:"default_ttl,omitempty"` // Policy.TTL is 0
	Overcommit     int64  `json:"overcommit"`
	CallsPerSecond int64  `json:"calls_per_second,omitempty"`
	TargetInForce  string `json:"target_in_force,omitempty"` // intended length of leases, if not Target
}

// PolicyOf returns the planned fields of the policy of s.
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

// Grade compares the figures of a policy with the targets.
type Grade struct {
	Meets     bool        `json:"meets"`               // all targets hold at the pessimistic ends
	Undecided bool        `json:"undecided,omitempty"` // a longer run may show that all targets hold
	Margins   []Margin    `json:"margins"`
	Figures   sim.Figures `json:"figures"`
}

// Candidate is a policy with the length and the figures of its longest run.
type Candidate struct {
	Policy    Policy  `json:"policy"`
	Seed      uint64  `json:"seed"`
	Reps      int     `json:"reps"`
	DurationS float64 `json:"duration_s"` // length of the run, including WarmupS, in which the fleet settles
	WarmupS   float64 `json:"warmup_s"`
	Grade
}

// Margin tells how far a figure is from the bound of a target.
type Margin struct {
	Threshold
	Value float64 `json:"value"` // the pessimistic end of the figure's interval
	Meets bool    `json:"meets"`
	// Margin is the distance to the bound as a fraction of the target's tolerance: 0 on the bound, and -1 at
	// twice the tolerance. Margin is also 0 for a figure that must be 0 and is 0.
	Margin float64 `json:"margin"`
}

// Stress has the grade of the chosen policy under one stress.
type Stress struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Must        bool    `json:"must"`           // the targets must also hold under this stress
	Load        float64 `json:"load,omitempty"` // Plan.Load in an overload
	// Adds is the ratio of false rejects that a recurring fault adds. Margins and Figures contain Adds:
	// false_reject_ratio is higher by Adds, and admitted_vs_central lower.
	Adds float64 `json:"adds,omitempty"`
	Grade
}

// Miss has the policy that came closest to the targets.
type Miss struct {
	Closest Candidate `json:"closest"`
	Stress  string    `json:"stress,omitempty"` // the stress that Closest fails; "" if none
}

// GoCode returns a Go expression for the limits, the fallback and the planned settings of s.
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
	field(p.Overcommit != 0, "Overcommit", p.Overcommit)
	field(true, "Fallback", map[lease.Fallback]string{
		lease.FallbackLocalShare: "hybrid.FallbackLocalShare", lease.FallbackDeny: "hybrid.FallbackDeny",
		lease.FallbackAllowAll: "hybrid.FallbackAllowAll",
	}[p.Fallback])
	field(p.CallsPerSecond != 0, "CallsPerSecond", p.CallsPerSecond)
	p.Target, p.TTL, p.Overcommit, p.Fallback, p.CallsPerSecond = 0, 0, 0, 0, 0
	if p != (lease.Policy{}) {
		b.WriteString("\t\t// the scenario's other policy settings stay\n")
	}
	return b.String() + "\t},\n}\n"
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
