// Package scenario describes the fleet that a simulation runs: processes, load, network, Redis, and faults.
//
// A caller sets the relevant fields of a Scenario. Defaults fills in the other fields, and Validate reports
// violations with path, value and bound. Package scenario runs no simulation and reads no file.
package scenario

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Scenario describes a fleet with its load, network, Redis and faults. The same Scenario and Seed give the
// same Report on every machine, to the bit.
//
// In a YAML file (package file), every field has its Go name in snake case: Workload.Rate is workload.rate.
// Defaults fills in zero fields.
type Scenario struct {
	Name        string
	Description string

	Duration time.Duration // default: 30 s, 25 sliding windows, or the length of a trace
	Warmup   time.Duration // figures count from the end of the warm-up; audits cover the whole run
	Seed     uint64        // below 2^53, so that every JSON reader keeps the digits; 0 means 1
	Reps     int           // number of replications, each with random streams of its own; 0 means 10

	Limits      []lease.Limit // limits of every key; 1 to 4
	Policy      lease.Policy
	CallTimeout time.Duration // 0 means 100 ms

	Keys     Keys
	Clock    Clock // clocks of the processes
	Groups   []Group
	Workload Workload // workload of the groups that have no workload of their own
	Network  Network
	Redis    Redis

	// Rivals names algorithms of package rival that decide the fleet's requests, too.
	Rivals []string
}

// DurationMax bounds a run and every other duration in a scenario.
const DurationMax = 30 * 24 * time.Hour

// The bounds of fields refuse typing errors that would make a run endless or too large for memory.
const (
	processesMax = 100_000
	meanMin      = time.Microsecond // shortest mean of recurring times, so that simulated time advances
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm: at 1e6, a clock stands still or runs twice as fast
)

// Keys has the number of keys, and their popularity: the k-th key's load is proportional to 1/k^Zipf.
type Keys struct {
	Count int     // 0 means 1
	Zipf  float64 // 0 means that all keys are equally popular
}

// Clock has the errors of the processes' clocks. Leases do not depend on the offset, but some rivals do.
type Clock struct {
	Offset DurationDist // a plain duration d means uniform in [-d, d]
	Drift  DriftDist    // a plain drift of d ppm means uniform in [-d, d] ppm
}

// Group is a number of processes with the same settings.
type Group struct {
	Name  string
	Count int // processes at the start; 0 means 1
	// Weight replaces Policy.Weight for this group; 0 means the weight of Policy.
	Weight int64
	// Share is the group's share of Workload.Rate, relative to the shares of other groups; 0 means Count.
	Share float64
	// Headroom replaces Policy.Headroom for this group; 0 means the headroom of Policy.
	Headroom float64 `json:",omitzero"`
	// Shadow makes this group admit requests that it would deny, as Policy.Shadow does for all groups.
	Shadow bool `json:",omitzero"`
	// Skew divides the group's load unevenly: the fraction of the k-th process is proportional to 1/k^Skew.
	Skew float64
	// RoundTrip replaces Network.RoundTrip for this group, for example in another region, unless it is 0.
	RoundTrip DurationDist `json:",omitzero"`
	Workload  *Workload    // the group's own workload with its own rate, without regard to Share

	Pauses   Stops  // pauses of processes: garbage collection, SIGSTOP, a moved virtual machine
	Restarts Stops  // crashes of processes, with a restart under another instance id
	Scale    []Step // steps of autoscaling, in order of time
}

// Stops happen to each process at random times, or, with At, once to the first process of the group.
type Stops struct {
	Every time.Duration // mean time between two stops; 0 means no stops
	At    time.Duration `json:",omitzero"` // time of a single stop, instead of Every; 0 means none
	For   DurationDist
}

// Step sets the number of running processes of a group. Processes that leave call Shutdown before they end,
// unless Kill is set.
type Step struct {
	At    time.Duration
	Count int
	Kill  bool
}

// These constants are the kinds of workload.
const (
	Constant  = "constant"  // evenly spaced requests; each process has a phase of its own
	Poisson   = "poisson"   // independent requests
	OnOff     = "onoff"     // Poisson requests while on, none while off; both last exponential times
	Flash     = "flash"     // Poisson requests at a rate that is Factor times higher from At for For
	Sync      = "sync"      // all processes send requests at the same moments, once in Every
	Boundary  = "boundary"  // as sync, but centred on the moment: the worst case of fixed windows
	Adversary = "adversary" // leases the most tokens, and spends them just before each report
	Replay    = "replay"    // the requests of a recorded trace
)

// WorkloadKinds lists the valid values of Workload.Kind.
var WorkloadKinds = []string{
	Constant, Poisson, OnOff, Flash, Sync, Boundary, Adversary, Replay,
}

// These constants name the methods of hybrid that a request may call.
const (
	VerbAllow = "allow" // waits for one lease call if the process holds no tokens
	VerbTry   = "try"   // never waits for a call
	VerbWait  = "wait"  // waits in line until Deadline
)

// Verbs lists the valid values of Workload.Verb.
var Verbs = []string{VerbAllow, VerbTry, VerbWait}

// Workload describes the arrivals of requests. Validate refuses a field that Kind or Verb does not read.
type Workload struct {
	Kind string // "" means poisson
	Verb string // "" means allow
	// Rate is the mean number of requests per second of all processes together. Load gives the same rate as a
	// multiple of the tightest limit's rate over all keys. The default is a Load of 0.9.
	Rate Rate
	Load float64
	Cost Cost // tokens per request; the zero value means 1

	// With Actual, a request reserves Cost and settles later, and Load counts Actual.
	Actual TokenDist    `json:",omitzero"` // actual cost of a request; the zero value means Cost
	Hold   DurationDist `json:",omitzero"` // time from admission until the actual cost is known

	Deadline time.Duration // for wait: the deadline of each request; 0 means 1 s

	On, Off time.Duration // onoff: mean lengths; 0 means 100 ms and 900 ms; Rate is the mean over both
	At, For time.Duration // flash: start and length of the crowd; 0 means Duration/3 and Duration/6
	Factor  float64       // flash; 0 means 10
	Every   time.Duration // sync, boundary: 0 means 500 ms; at least Within
	Within  time.Duration // sync, boundary: length of the burst; boundary defaults to 10 ms at most
	File    string        // replay: a CSV file or an access log, see package trace
	Trace   *Trace        `json:"-"` // replay: the requests in File
}

// Trace is a recorded sequence of requests, in order of time.
type Trace struct {
	Requests  []TraceRequest
	Processes int      // number of named processes; 0 for a trace without names
	Keys      int      // number of named keys
	Notes     []string // notes about left-out and changed lines
	Sum       string   // a digest of Requests, for Hash
}

// TraceRequest is a line of a trace. Process and Key are numbered from 0, and taken modulo the fleet's
// numbers of processes and keys.
type TraceRequest struct {
	At      time.Duration
	Process int
	Key     int
	Cost    int64
}

// Network describes the link between the processes and Redis.
type Network struct {
	// RoundTrip is the time of both directions together, without Redis's own time. A RoundTrip of 0 means a
	// median of 800 us and a 99th percentile of 3.5 ms, as between two hosts of a data centre.
	RoundTrip   DurationDist
	Loss        Ratio // fraction of requests that get lost
	LostReplies Ratio // fraction of replies that get lost, after Redis has executed the call
	Partitions  []Partition
}

// Partition cuts processes off from Redis. Requests and replies of the cut processes are lost.
type Partition struct {
	At    time.Duration
	For   time.Duration
	Group string // "" means all groups
	Part  Ratio  // fraction of the group's processes, from the first one; 0 means all
}

// Redis describes the store.
type Redis struct {
	// A batch occupies a server for ServiceTime per lease call and ExchangeTime to read and answer, and for
	// WakeTime more if the server was idle. The defaults are 16, 3 and 39 us: one lease call was measured to
	// take 58 us with one connection, and 19 us with fifty.
	ServiceTime, ExchangeTime, WakeTime DurationDist
	Shards                              int // 0 means 1; the keys are spread over the shards
	Faults                              []RedisFault
}

// These constants are the kinds of Redis faults.
const (
	FaultOutage       = "outage"        // the server refuses connections
	FaultHang         = "hang"          // server stopped (SIGSTOP): calls that arrive in For run afterwards
	FaultRestartEmpty = "restart_empty" // the server refuses connections during For, then has lost all data
	FaultFailover     = "failover"      // an outage during For, then a replica that lacks the writes of the last Lost
)

// FaultKinds lists the valid values of RedisFault.Kind.
var FaultKinds = []string{FaultOutage, FaultHang, FaultRestartEmpty, FaultFailover}

// RedisFault is one fault of Redis.
type RedisFault struct {
	Kind  string
	At    time.Duration
	For   time.Duration
	Lost  time.Duration // failover: the replica's lag
	Shard int           // shard with the fault, from 1; 0 means all
}
