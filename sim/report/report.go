// Package report holds the results of a simulation: figures over its replications, each with its mean,
// its interval and its worst seed.
//
// The engine hands over one Outcome for each replication, and Of makes a Report of them. The JSON keys of a
// Report are part of the command's interface. Nothing here simulates, and nothing here writes text.
package report

import "time"

// SchemaVersion is the version of Report's JSON. It rises when a key changes its meaning or is removed.
const SchemaVersion = 1

// Report holds the results of a run. Its JSON keys are part of the command's interface. Except for Machine,
// one scenario and seed give the same report on every machine.
type Report struct {
	SchemaVersion int     `json:"schema_version"`
	Scenario      string  `json:"scenario"`
	ScenarioHash  string  `json:"scenario_hash"`
	Seed          uint64  `json:"seed"`
	Reps          int     `json:"reps"`       // finished replications
	RepsAsked     int     `json:"reps_asked"` // more than Reps after an interrupt
	DurationS     float64 `json:"duration_s"`
	WarmupS       float64 `json:"warmup_s"`
	Confidence    float64 `json:"confidence"` // of the intervals: 0.95
	Processes     int     `json:"processes"`  // largest number at a time
	// Unsettled counts the replications in which the fleet rejected more at its start than it can hold. The
	// ratios then cover these runs as a whole.
	Unsettled int `json:"unsettled,omitempty"`
	Figures
	Rivals []RivalReport `json:"rivals,omitempty"`
	// Classes has the groups by headroom, the smallest first. It is empty if all groups have the same
	// headroom.
	Classes []ClassReport `json:"classes,omitempty"`
	// Series is the first replication over time, in equal steps.
	Series Series `json:"series"`
	// Members has the figures of each process in the first replication.
	Members []Member `json:"members"`
	Machine Machine  `json:"machine"`
}

// Figures are the figures over all replications. Only BoundExceededBy covers the warm-up.
type Figures struct {
	Offered         Figure `json:"offered"`          // tokens asked for
	Admitted        Figure `json:"admitted"`         // tokens
	CentralAdmitted Figure `json:"central_admitted"` // tokens that one central bucket would have admitted
	// AdmittedVsCentral is Admitted/CentralAdmitted in the steady state (see Accuracy). It is 1 if the
	// central bucket admitted nothing.
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	// BoundExceededBy is the number of tokens above bound (1) in the worst window of any limit and key. It is
	// 0 if the bound holds.
	BoundExceededBy Figure `json:"bound_exceeded_by"`
	// A false reject is a denied request that one central bucket would have admitted. If an earlier request
	// was admitted that the central bucket would have denied, the two are swapped instead. Both ratios relate
	// tokens to the central bucket's admissions. FalseRejectRatio covers the steady state. The stocks count
	// falsely rejected tokens beyond that ratio: at the start and where the fleet grew, and for a fault on
	// average.
	FalseRejectRatio Figure `json:"false_reject_ratio"`
	StartStock       Figure `json:"start_stock"`
	FaultStock       Figure `json:"fault_stock"`
	SwappedRatio     Figure `json:"swapped_ratio"`
	CallsPerS        Figure `json:"calls_per_s"`       // lease calls per second of the whole fleet
	RoundTripsPerS   Figure `json:"round_trips_per_s"` // batches of calls per second
	RedisCPU         Figure `json:"redis_cpu"`         // busy part of one core, on the busiest shard
	// Jain is Jain's index of admissions divided by max-min shares. In each part of the run (see Spans) the
	// processes that run and ask share the admissions.
	Jain            Figure `json:"jain"`
	WorstShare      Figure `json:"worst_share"`       // the least admitted/max-min share
	Stranded        Figure `json:"stranded"`          // tokens in the pools, mean over time
	Burnt           Figure `json:"burnt"`             // tokens that were leased and lost
	Degraded        Figure `json:"degraded"`          // tokens admitted by Policy.Fallback or ColdStart
	Shadowed        Figure `json:"shadowed,omitzero"` // denied tokens that Policy.Shadow admitted
	Charged         Figure `json:"charged,omitzero"`  // tokens that requests used beyond their reservations
	Refunded        Figure `json:"refunded,omitzero"` // reserved tokens that requests gave back
	WaitMsP50       Figure `json:"wait_ms_p50"`       // waits of admitted requests, from request to answer
	WaitMsP99       Figure `json:"wait_ms_p99"`
	WaitMsMax       Figure `json:"wait_ms_max"`
	DeniedWaitMsP99 Figure `json:"denied_wait_ms_p99"` // wait of denied requests, from request to denial
}

// Figure is one quantity over the replications.
type Figure struct {
	Mean      float64 `json:"mean"`
	Low       float64 `json:"low"` // confidence interval (Student's t), unless Range
	High      float64 `json:"high"`
	Worst     float64 `json:"worst"` // the worst of all replications: the highest, or the lowest if more is better
	WorstSeed uint64  `json:"worst_seed"`
	// Range reports that Low and High are the extremes over the replications, because an interval would
	// contain the mean less often than its confidence. See Of.
	Range bool `json:"range,omitempty"`
	// Values has the value of each replication, in order, for paired differences.
	Values []float64 `json:"values,omitempty"`
}

// IsZero reports whether the quantity was 0 in every replication. A Report's JSON may then omit it.
func (f Figure) IsZero() bool { return f.Mean == 0 && f.Low == 0 && f.High == 0 && f.Worst == 0 }

// ClassReport has the figures of one class, which is all groups with one headroom.
type ClassReport struct {
	Headroom      float64  `json:"headroom"`
	Groups        []string `json:"groups"`
	Offered       Figure   `json:"offered"`        // tokens
	Admitted      Figure   `json:"admitted"`       // tokens
	AdmittedRatio Figure   `json:"admitted_ratio"` // Admitted/Offered, or 1 if nothing was offered
	Shadowed      Figure   `json:"shadowed,omitzero"`
}

// RivalReport holds the results of another algorithm on the same requests. A Remote one calls Redis for each
// request, over the scenario's network and with the scenario's faults. The calls of others take no time.
type RivalReport struct {
	Name              string `json:"name"`
	Remote            bool   `json:"remote,omitempty"` // it calls Redis for each request
	Admitted          Figure `json:"admitted"`
	AdmittedVsCentral Figure `json:"admitted_vs_central"`
	BoundExceededBy   Figure `json:"bound_exceeded_by"`
	FalseRejectRatio  Figure `json:"false_reject_ratio"`
	StartStock        Figure `json:"start_stock"`
	FaultStock        Figure `json:"fault_stock"`
	SwappedRatio      Figure `json:"swapped_ratio"`
	RoundTripsPerS    Figure `json:"round_trips_per_s"`
	// 0 unless Remote, like the waits
	RedisCPU   Figure `json:"redis_cpu"`
	Jain       Figure `json:"jain"`
	WorstShare Figure `json:"worst_share"`
	WaitMsP50  Figure `json:"wait_ms_p50"`
	WaitMsP99  Figure `json:"wait_ms_p99"`
}

// Series has one point per step. A count covers the step before its point.
type Series struct {
	StepS      float64   `json:"step_s"`
	Offered    []float64 `json:"offered_per_s"`
	Admitted   []float64 `json:"admitted_per_s"`
	Central    []float64 `json:"central_per_s"`
	RoundTrips []float64 `json:"round_trips_per_s"`
	Level      []float64 `json:"level"`  // tokens in the most popular key's bucket
	Ledger     []float64 `json:"ledger"` // tokens leased from that bucket
	Held       []float64 `json:"held"`   // tokens in all pools
	Running    []float64 `json:"running"`
}

// Member has the figures of one process in a replication.
type Member struct {
	Group    string `json:"group"`
	Offered  int64  `json:"offered"`
	Admitted int64  `json:"admitted"`
	// Share is the process's max-min share of the admitted tokens.
	Share float64 `json:"share"`
	Calls int64   `json:"calls"`
}

// Machine has the figures that depend on the machine of the simulation.
type Machine struct {
	Elapsed      time.Duration `json:"elapsed_ns"`
	Requests     int64         `json:"requests"`       // simulated requests of all replications
	RequestsPerS float64       `json:"requests_per_s"` // simulated requests per second of real time
	Parallel     int           `json:"parallel"`
	GoVersion    string        `json:"go_version"`
	Platform     string        `json:"platform"`
}
