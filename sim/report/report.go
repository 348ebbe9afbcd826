// Package report has the results of a simulation: figures over its replications, each with its mean, its
// interval and its worst seed.
//
// The engine makes one Outcome for each replication, and Of combines them to a Report.
package report

import "time"

// SchemaVersion is the version of the JSON of a report, a sweep or a plan. The version rises if a key is
// removed or changes its meaning.
const SchemaVersion = 1

// Report has the results of a run. The JSON keys of a Report are part of the command's interface. Except for
// Machine, one scenario and seed give the same Report on every machine.
type Report struct {
	SchemaVersion int     `json:"schema_version"`
	Scenario      string  `json:"scenario"`
	ScenarioHash  string  `json:"scenario_hash"`
	Seed          uint64  `json:"seed"`
	Reps          int     `json:"reps"`       // number of finished replications
	RepsAsked     int     `json:"reps_asked"` // requested replications; more than Reps if interrupted
	DurationS     float64 `json:"duration_s"`
	WarmupS       float64 `json:"warmup_s"`
	Confidence    float64 `json:"confidence"` // confidence level of the intervals: 0.95
	Processes     int     `json:"processes"`  // largest number of processes at one time
	// Unsettled counts the replications in which the fleet falsely rejected more at its start than buckets
	// and leases can hold. The ratios cover an unsettled replication as a whole.
	Unsettled int `json:"unsettled,omitempty"`
	Figures
	Rivals []RivalReport `json:"rivals,omitempty"`
	// Classes has the groups by headroom, the smallest first, or nil if all groups have the same headroom.
	Classes []ClassReport `json:"classes,omitempty"`
	Series  Series        `json:"series"`  // the first replication over time
	Members []Member      `json:"members"` // the processes of the first replication
	Machine Machine       `json:"machine"`
}

// Figures has the figures of a run over all its replications. Only BoundExceededBy covers the warm-up.
type Figures struct {
	Offered         Figure `json:"offered"`          // requested tokens
	Admitted        Figure `json:"admitted"`         // admitted tokens
	CentralAdmitted Figure `json:"central_admitted"` // tokens that one central bucket would have admitted
	// AdmittedVsCentral is Admitted/CentralAdmitted in the steady state (see Accuracy), or 1 if the central
	// bucket admitted no token.
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	// BoundExceededBy is the number of tokens above bound (1) in the worst window of any limit and key, or 0
	// if every window keeps its bound.
	BoundExceededBy Figure `json:"bound_exceeded_by"`
	// A false reject is a denied request that one central bucket would have admitted. If an earlier request
	// was admitted that the central bucket would have denied, the two requests are swapped instead.
	// FalseRejectRatio and SwappedRatio are such tokens divided by the central bucket's admissions.
	// FalseRejectRatio covers the steady state. StartStock and FaultStock count falsely rejected tokens
	// beyond FalseRejectRatio: when the fleet started or grew, and per fault on average.
	FalseRejectRatio Figure `json:"false_reject_ratio"`
	StartStock       Figure `json:"start_stock"`
	FaultStock       Figure `json:"fault_stock"`
	SwappedRatio     Figure `json:"swapped_ratio"`
	CallsPerS        Figure `json:"calls_per_s"`       // lease calls per second of the whole fleet
	RoundTripsPerS   Figure `json:"round_trips_per_s"` // batches of calls per second
	RedisCPU         Figure `json:"redis_cpu"`         // busy fraction of one core, on the busiest shard
	// Jain is Jain's index of admissions divided by max-min shares. In each span of the run (see Spans), the
	// processes that run and request tokens share the admissions.
	Jain            Figure `json:"jain"`
	WorstShare      Figure `json:"worst_share"`       // the smallest ratio of admissions to max-min share
	Stranded        Figure `json:"stranded"`          // tokens in all pools, mean over time
	Burnt           Figure `json:"burnt"`             // tokens that were leased and lost
	Degraded        Figure `json:"degraded"`          // tokens admitted by Policy.Fallback or ColdStart
	Shadowed        Figure `json:"shadowed,omitzero"` // tokens that the limit denied and Policy.Shadow admitted
	Charged         Figure `json:"charged,omitzero"`  // tokens that requests used beyond their reservations
	Refunded        Figure `json:"refunded,omitzero"` // reserved tokens that requests gave back
	WaitMsP50       Figure `json:"wait_ms_p50"`       // waits of admitted requests, until the answer
	WaitMsP99       Figure `json:"wait_ms_p99"`
	WaitMsMax       Figure `json:"wait_ms_max"`
	DeniedWaitMsP99 Figure `json:"denied_wait_ms_p99"` // waits of denied requests, until the denial
}

// Figure is one quantity with its values in all replications.
type Figure struct {
	Mean      float64 `json:"mean"`
	Low       float64 `json:"low"` // Low and High are the confidence interval (Student's t), unless Range
	High      float64 `json:"high"`
	Worst     float64 `json:"worst"` // the worst value: the highest, or the lowest if more is better
	WorstSeed uint64  `json:"worst_seed"`
	// Range reports whether Low and High are the extremes over the replications. Where true, an interval
	// would contain the mean less often than its confidence level says. See Of.
	Range  bool      `json:"range,omitempty"`
	Values []float64 `json:"values,omitempty"` // the values of the replications, in order
}

// IsZero reports whether the figure was 0 in every replication. A Report's JSON may then omit the figure.
func (f Figure) IsZero() bool { return f.Mean == 0 && f.Low == 0 && f.High == 0 && f.Worst == 0 }

// ClassReport has the figures of one class, which consists of all groups with the same headroom.
type ClassReport struct {
	Headroom      float64  `json:"headroom"`
	Groups        []string `json:"groups"`
	Offered       Figure   `json:"offered"`        // tokens
	Admitted      Figure   `json:"admitted"`       // tokens
	AdmittedRatio Figure   `json:"admitted_ratio"` // Admitted/Offered, or 1 if Offered is 0
	Shadowed      Figure   `json:"shadowed,omitzero"`
}

// RivalReport has the results of another algorithm on the same requests. A Remote algorithm calls Redis for
// each request, over the scenario's network and with its faults. Calls of other algorithms take no time.
type RivalReport struct {
	Name              string `json:"name"`
	Remote            bool   `json:"remote,omitempty"` // the algorithm calls Redis for each request
	Admitted          Figure `json:"admitted"`
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	BoundExceededBy   Figure `json:"bound_exceeded_by"`
	FalseRejectRatio  Figure `json:"false_reject_ratio"`
	StartStock        Figure `json:"start_stock"`
	FaultStock        Figure `json:"fault_stock"`
	SwappedRatio      Figure `json:"swapped_ratio"`
	RoundTripsPerS    Figure `json:"round_trips_per_s"`
	RedisCPU          Figure `json:"redis_cpu"` // RedisCPU and the waits are 0 unless Remote
	Jain              Figure `json:"jain"`
	WorstShare        Figure `json:"worst_share"`
	WaitMsP50         Figure `json:"wait_ms_p50"`
	WaitMsP99         Figure `json:"wait_ms_p99"`
}

// Series has one point per step. A count covers the step that ends at its point.
type Series struct {
	StepS      float64   `json:"step_s"`
	Offered    []float64 `json:"offered_per_s"`
	Admitted   []float64 `json:"admitted_per_s"`
	Central    []float64 `json:"central_per_s"`
	RoundTrips []float64 `json:"round_trips_per_s"`
	Level      []float64 `json:"level"`  // tokens in the most popular key's bucket
	Ledger     []float64 `json:"ledger"` // tokens leased from the most popular key's bucket
	Held       []float64 `json:"held"`   // tokens in all pools
	Running    []float64 `json:"running"`
}

// Member has the figures of one process in one replication.
type Member struct {
	Group    string  `json:"group"`
	Offered  int64   `json:"offered"`
	Admitted int64   `json:"admitted"`
	Share    float64 `json:"share"` // the process's max-min share of the admitted tokens
	Calls    int64   `json:"calls"`
}

// Machine has the figures that depend on the machine that ran the simulation.
type Machine struct {
	Elapsed      time.Duration `json:"elapsed_ns"`
	Requests     int64         `json:"requests"`       // simulated requests of all replications
	RequestsPerS float64       `json:"requests_per_s"` // simulated requests per second of real time
	Parallel     int           `json:"parallel"`
	GoVersion    string        `json:"go_version"`
	Platform     string        `json:"platform"`
}
