package search

import "github.com/yuzhi-go/yuzhi/sim"

// PlanVersion is that of Plan's JSON; it rises when a key changes its meaning or goes.
const PlanVersion = 2

// What a plan came to.
const (
	Found       = "found"
	Infeasible  = "infeasible"
	Interrupted = "interrupted"
)

// Plan is the answer to a Question. Its JSON keys are part of the command's interface. Everything
// but Machine is the same on every machine for the same question and seed.
type Plan struct {
	SchemaVersion int      `json:"schema_version"`
	Scenario      string   `json:"scenario"`
	ScenarioHash  string   `json:"scenario_hash"`
	Seed          uint64   `json:"seed"`         // of the search
	ConfirmSeed   uint64   `json:"confirm_seed"` // of the confirmation, which shares no replication with the search
	Reps          int      `json:"reps"`         // of the confirmation
	DurationS     float64  `json:"duration_s"`   // of each
	Confidence    float64  `json:"confidence"`   // of the intervals
	Targets       []Target `json:"targets"`
	Verdict       string   `json:"verdict"` // found, infeasible or interrupted
	// Chosen is the policy that was found, on the fresh seeds; nil otherwise.
	Chosen *Candidate `json:"chosen,omitempty"`
	// Given is the scenario's own policy, on the same seeds.
	Given  *Candidate `json:"given,omitempty"`
	Stress []Stress   `json:"stress,omitempty"` // of Chosen
	// TradeOffs are policies that none other beats in calls and in what the targets ask for, as
	// the search saw them.
	TradeOffs []Candidate `json:"trade_offs,omitempty"`
	Miss      *Miss       `json:"miss,omitempty"` // if infeasible
	Code      string      `json:"code,omitempty"` // a Go expression for the chosen configuration
	Machine   sim.Machine `json:"machine"`
}

// Policy is what a plan chooses, with lengths as texts ("80ms").
type Policy struct {
	Target     string `json:"target"`
	TTL        string `json:"ttl"`
	Overcommit int64  `json:"overcommit"`
}

// Candidate is a policy and how it did.
type Candidate struct {
	Policy       Policy      `json:"policy"`
	ScenarioHash string      `json:"scenario_hash"` // of the scenario with this policy
	Seed         uint64      `json:"seed"`
	Reps         int         `json:"reps"`
	DurationS    float64     `json:"duration_s"`
	Meets        bool        `json:"meets"` // every target, at the pessimistic end
	Margins      []Margin    `json:"margins"`
	Figures      sim.Figures `json:"figures"`
}

// Margin is how far a candidate is inside a target.
type Margin struct {
	Target
	Value float64 `json:"value"` // the pessimistic end; of bound_exceeded_by the worst replication
	Meets bool    `json:"meets"`
	// Margin is a part of what the target tolerates: 0 is on the bound, -1 twice what is tolerated.
	// It is 0 for a promise that is kept.
	Margin float64 `json:"margin"`
}

// Stress is how the chosen policy did in a harder world.
type Stress struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Must        bool   `json:"must"` // the choice depended on it
	Meets       bool   `json:"meets"`
	// Forgiven is the part of the counted time that Redis is away, where the policy denies
	// meanwhile: false_reject_ratio and admitted_vs_central have that much more room in Margins.
	Forgiven float64     `json:"forgiven,omitempty"`
	Margins  []Margin    `json:"margins"`
	Figures  sim.Figures `json:"figures"`
}

// Miss says how near an infeasible question came to an answer.
type Miss struct {
	Closest Candidate `json:"closest"`
	Stress  string    `json:"stress,omitempty"` // the one that Closest fails, if it meets the targets otherwise
	// RepsNeeded is about how many replications would show that the mean, which does meet the
	// targets, does so for certain; 0 if the mean does not.
	RepsNeeded int `json:"reps_needed,omitempty"`
}
