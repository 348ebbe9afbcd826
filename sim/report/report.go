// Package report holds the results of a simulation: figures over its replications, each with its mean,
// its interval and its worst seed.
//
// The engine hands over one Outcome for each replication, and Of makes a Report of them. The JSON keys of a
// Report are part of the command's interface. Nothing here simulates, and nothing here writes text.
package report

import "time"

// SchemaVersion is that of Report's JSON; it rises when a key changes its meaning or goes.
const SchemaVersion = 1

// Report holds the results of a run. Its JSON keys are part of the command's interface. For one
// scenario and seed, everything but Machine is the same on every machine.
type Report struct {
	SchemaVersion int     `json:"schema_version"`
	Scenario      string  `json:"scenario"`
	ScenarioHash  string  `json:"scenario_hash"`
	Seed          uint64  `json:"seed"`
	Reps          int     `json:"reps"`       // that ended
	RepsAsked     int     `json:"reps_asked"` // the same unless the run was interrupted
	DurationS     float64 `json:"duration_s"`
	WarmupS       float64 `json:"warmup_s"`
	Confidence    float64 `json:"confidence"` // of the intervals: 0.95
	Processes     int     `json:"processes"`  // the most that ran at one time
	// Unsettled is in how many replications the fleet rejected more at its start than it can hold: the
	// ratios are of those whole runs.
	Unsettled int `json:"unsettled,omitempty"`
	Figures
	Rivals []RivalReport `json:"rivals,omitempty"`
	// Classes are the groups by their headroom, those that leave least first; none where all groups
	// have the same.
	Classes []ClassReport `json:"classes,omitempty"`
	// Series is how the first replication went, in equal steps.
	Series Series `json:"series"`
	// Members is each process's part in the first replication.
	Members []Member `json:"members"`
	Machine Machine  `json:"machine"`
}

// Figures are over the replications. The warm-up counts in BoundExceededBy only.
type Figures struct {
	Offered         Figure `json:"offered"`          // tokens asked for
	Admitted        Figure `json:"admitted"`         // tokens
	CentralAdmitted Figure `json:"central_admitted"` // tokens that one central bucket would have admitted
	// AdmittedVsCentral is their quotient in the steady state (see Accuracy); 1 where the central
	// bucket admitted nothing.
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	// BoundExceededBy is by how many tokens promise (1) is exceeded in the worst window of any
	// limit and key; 0 if it holds.
	BoundExceededBy Figure `json:"bound_exceeded_by"`
	// A request that is denied although one central bucket would have admitted it is a false reject, unless
	// another one was admitted in its place before, which the central bucket would have denied: then the two
	// are swapped. Both ratios are in tokens, of what the central bucket admitted: that of false rejects in
	// the steady state. The stocks are the tokens that were falsely rejected beyond that ratio, once at the
	// start and where the fleet grew, and in the mean of the scenario's faults.
	FalseRejectRatio Figure `json:"false_reject_ratio"`
	StartStock       Figure `json:"start_stock"`
	FaultStock       Figure `json:"fault_stock"`
	SwappedRatio     Figure `json:"swapped_ratio"`
	CallsPerS        Figure `json:"calls_per_s"`       // lease calls of the whole fleet
	RoundTripsPerS   Figure `json:"round_trips_per_s"` // pipelines
	RedisCPU         Figure `json:"redis_cpu"`         // part of one core that the busiest shard is busy
	// Jain is Jain's index of admitted/max-min share. A share counts while its process runs and asks:
	// what was admitted in a part of the run (see Spans) is divided between those that did so then.
	Jain       Figure `json:"jain"`
	WorstShare Figure `json:"worst_share"`       // the least admitted/max-min share
	Stranded   Figure `json:"stranded"`          // tokens in the pools, mean over time
	Burnt      Figure `json:"burnt"`             // tokens that were leased and lost
	Degraded   Figure `json:"degraded"`          // tokens admitted by Policy.Fallback or ColdStart
	Shadowed   Figure `json:"shadowed,omitzero"` // tokens denied, and admitted by Policy.Shadow
	Charged    Figure `json:"charged,omitzero"`  // tokens that requests cost beyond what they had reserved
	Refunded   Figure `json:"refunded,omitzero"` // tokens that they had reserved and gave back
	WaitMsP50  Figure `json:"wait_ms_p50"`       // of admitted requests: from asking to the answer
	WaitMsP99  Figure `json:"wait_ms_p99"`
	WaitMsMax  Figure `json:"wait_ms_max"`
}

// Figure is one quantity over the replications.
type Figure struct {
	Mean      float64 `json:"mean"`
	Low       float64 `json:"low"` // confidence interval (Student's t), unless Range
	High      float64 `json:"high"`
	Worst     float64 `json:"worst"` // of all replications, in the direction in which the figure is bad
	WorstSeed uint64  `json:"worst_seed"`
	// Range: Low and High are the least and the greatest of the replications, because an interval
	// would not hold the mean as often as it says. See Of.
	Range bool `json:"range,omitempty"`
	// Values are those of the replications, in order; paired differences are taken from them.
	Values []float64 `json:"values,omitempty"`
}

// IsZero reports whether nothing of this quantity was ever seen: then a Report's JSON may leave it out.
func (f Figure) IsZero() bool { return f.Mean == 0 && f.Low == 0 && f.High == 0 && f.Worst == 0 }

// ClassReport sums up the requests of one class: of the groups with one headroom.
type ClassReport struct {
	Headroom      float64  `json:"headroom"`
	Groups        []string `json:"groups"`
	Offered       Figure   `json:"offered"`        // tokens, as all figures but the ratio
	Admitted      Figure   `json:"admitted"`       // of them
	AdmittedRatio Figure   `json:"admitted_ratio"` // their quotient; 1 where nothing was offered
	Shadowed      Figure   `json:"shadowed,omitzero"`
}

// RivalReport holds the results of another algorithm on the same requests. One that asks Redis for each
// of them does so over the scenario's network, and a Redis with the scenario's faults; what the others
// ask for is there at once.
type RivalReport struct {
	Name              string `json:"name"`
	Remote            bool   `json:"remote,omitempty"` // it asks Redis for each request
	Admitted          Figure `json:"admitted"`
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	BoundExceededBy   Figure `json:"bound_exceeded_by"`
	FalseRejectRatio  Figure `json:"false_reject_ratio"`
	StartStock        Figure `json:"start_stock"`
	FaultStock        Figure `json:"fault_stock"`
	SwappedRatio      Figure `json:"swapped_ratio"`
	RoundTripsPerS    Figure `json:"round_trips_per_s"`
	// 0 of one that does not ask Redis for each request, like its waits
	RedisCPU   Figure `json:"redis_cpu"`
	Jain       Figure `json:"jain"`
	WorstShare Figure `json:"worst_share"`
	WaitMsP50  Figure `json:"wait_ms_p50"`
	WaitMsP99  Figure `json:"wait_ms_p99"`
}

// Series is one point per step. The counts are of the step before the point.
type Series struct {
	StepS      float64   `json:"step_s"`
	Offered    []float64 `json:"offered_per_s"`
	Admitted   []float64 `json:"admitted_per_s"`
	Central    []float64 `json:"central_per_s"`
	RoundTrips []float64 `json:"round_trips_per_s"`
	Level      []float64 `json:"level"`  // tokens in the most popular key's bucket
	Ledger     []float64 `json:"ledger"` // tokens leased from it
	Held       []float64 `json:"held"`   // tokens in all pools
	Running    []float64 `json:"running"`
}

// Member is one process's part of a replication.
type Member struct {
	Group    string `json:"group"`
	Offered  int64  `json:"offered"`
	Admitted int64  `json:"admitted"`
	// Share is the process's max-min share of what was admitted.
	Share float64 `json:"share"`
	Calls int64   `json:"calls"`
}

// Machine holds the figures that depend on the machine that ran the simulation.
type Machine struct {
	Elapsed      time.Duration `json:"elapsed_ns"`
	Requests     int64         `json:"requests"`       // simulated, of all replications
	RequestsPerS float64       `json:"requests_per_s"` // simulated, per second of this machine
	Parallel     int           `json:"parallel"`
	GoVersion    string        `json:"go_version"`
	Platform     string        `json:"platform"`
}
