// Package scenario describes the fleet that a simulation runs: processes, load, network, Redis, and faults.
//
// Set the fields of a Scenario that matter. Defaults fills in the others, and Validate reports all violations
// at once, each with path, value and bound. A Scenario is a value. This package runs nothing and reads no
// file.
package scenario

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Scenario describes a fleet with its load, network, Redis and faults. The same Scenario and Seed give the
// same Report on any machine, to the bit.
//
// In a YAML file (package file) every field has its Go name in snake case: Workload.Rate is workload.rate. A
// zero field means its default: see Defaults.
type Scenario struct {
	Name        string
	Description string

	Duration time.Duration // simulated; 0 means 30 s, 25 sliding windows, or twice until the last event
	Warmup   time.Duration // figures count from then on; the audits cover the whole run
	Seed     uint64        // below 2^53, so that every JSON reader keeps it; 0 means 1
	Reps     int           // replications, each with random streams of its own; 0 means 10

	Limits      []lease.Limit // of every key; 1 to 4
	Policy      lease.Policy
	CallTimeout time.Duration // 0 means 100 ms

	Keys     Keys
	Clock    Clock // of the processes; a group may have its own
	Groups   []Group
	Workload Workload // shared by the groups that have none of their own
	Network  Network
	Redis    Redis

	// Rivals names other algorithms, of package rival, that get the same requests. None by default.
	Rivals []string

	// Zeros has the paths of fields that a file or an assignment set to zero explicitly. Package file refuses
	// them where zero means a default.
	Zeros []string `json:"-"`
}

// Keys is the number of keys and their popularity: the k-th key's part of the load is proportional to
// 1/k^Zipf.
type Keys struct {
	Count int     // 0 means 1
	Zipf  float64 // 0 means equally popular
}

// Clock has the distributions of the errors of the processes' clocks. Leases do not depend on the offset.
// Some rivals do.
type Clock struct {
	Offset DurationDist // a plain duration d means uniform in [-d, d]
	Drift  DriftDist    // a plain d ppm likewise
}

// Group is a number of processes with the same settings.
type Group struct {
	Name  string
	Count int // processes at the start; 0 means 1
	// Weight replaces Policy.Weight for this group; 0 means Policy's.
	Weight int64
	// Share is the group's part of Workload.Rate, relative to the other groups'; 0 means Count.
	Share float64
	// Headroom replaces Policy.Headroom for this group, which makes the group a class of requests; 0 means
	// Policy's.
	Headroom float64 `json:",omitzero"`
	// Shadow makes this group admit what it would deny, as Policy.Shadow does for all groups.
	Shadow bool `json:",omitzero"`
	// Skew divides the group's load unevenly: the part of the k-th process is proportional to 1/k^Skew.
	Skew  float64
	Clock *Clock
	// RoundTrip replaces Network.RoundTrip for this group, for example in another region; 0 means Network's.
	RoundTrip DurationDist `json:",omitzero"`
	Workload  *Workload    // own workload with its own rate; Share is then ignored

	Pauses   Stops  // stopped and resumed: garbage collection, SIGSTOP, a moved virtual machine
	Restarts Stops  // killed, and restarted with another instance id
	Scale    []Step // autoscaling, in order of time
}

// Stops happen to each process at random times, or with At once, to the first process of the group.
type Stops struct {
	Every time.Duration // mean time between two stops; 0 for never
	At    time.Duration `json:",omitzero"` // time of the one stop, instead of Every; 0 for never
	For   DurationDist
}

// Step sets the number of running processes of a group. Processes that leave call Shutdown first, unless Kill
// is set.
type Step struct {
	At    time.Duration
	Count int
	Kill  bool
}

// The kinds of workload.
const (
	Constant  = "constant"  // evenly spaced, each process at its own phase
	Poisson   = "poisson"   // independent requests
	OnOff     = "onoff"     // MMPP: Poisson while on, nothing while off, both of exponential length
	Pareto    = "pareto"    // bursts at Poisson times; burst sizes follow a Pareto distribution with shape Alpha
	Diurnal   = "diurnal"   // Poisson, the rate a sine over Period
	Flash     = "flash"     // Poisson, times Factor from At for For
	Sync      = "sync"      // all processes at the same moments, once in Every
	Boundary  = "boundary"  // as sync, with half of a burst before the moment: the worst case of fixed windows
	Adversary = "adversary" // leases all it can, and spends it just before each report or the lease's end
	Closed    = "closed"    // Clients that think, ask, and retry after a denial
	Replay    = "replay"    // a recorded trace
)

// WorkloadKinds are the valid values of Workload.Kind.
var WorkloadKinds = []string{
	Constant, Poisson, OnOff, Pareto, Diurnal, Flash, Sync, Boundary, Adversary, Closed, Replay,
}

// The verbs of hybrid that a request may use.
const (
	VerbAllow = "allow" // waits for one lease call where nothing is held
	VerbTry   = "try"   // never waits
	VerbWait  = "wait"  // waits in line, until Deadline
)

// Verbs are the valid values of Workload.Verb.
var Verbs = []string{VerbAllow, VerbTry, VerbWait}

// Workload describes the arrivals of requests. Fields of other kinds than Kind are ignored.
type Workload struct {
	Kind string // "" means poisson
	Verb string // "" means allow
	// Rate is the mean number of requests per second of all processes together. Load gives it as a multiple
	// of the tightest limit's rate over all keys. Set one of them; neither means Load 0.9.
	Rate Rate
	Load float64
	Cost Cost // tokens per request; the zero value means 1

	// With Actual or Cancelled a request reserves Cost and settles later. With Actual, Load counts the actual
	// costs.
	Actual    TokenDist    `json:",omitzero"` // actual cost of a request; the zero value means Cost
	Hold      DurationDist `json:",omitzero"` // from admission until the actual cost is known
	Cancelled Ratio        `json:",omitzero"` // part of the admitted requests that is cancelled after Hold

	Deadline time.Duration // wait: of each request; 0 means 1 s
	Patience DurationDist  `json:",omitzero"` // wait: time until the caller cancels unforeseen; 0 for never

	On, Off  time.Duration // onoff: mean lengths; 0 mean 100 ms and 900 ms. Rate is the mean over both.
	Alpha    float64       // pareto: shape, above 1; 0 means 1.5
	Burst    float64       // pareto: mean requests in a burst; 0 means 20
	Period   time.Duration // diurnal; 0 means Duration
	Swing    Ratio         // diurnal: amplitude of the rate, as a part of the mean; 0 means 80 %
	At, For  time.Duration // flash; 0 mean Duration/3 and Duration/6
	Factor   float64       // flash; 0 means 10
	Every    time.Duration // sync; 0 means 500 ms. boundary; 0 means twice the first window. At least Within
	Within   time.Duration // sync, boundary: length of the burst; 0 means 0 for sync, 10 ms or Every for boundary
	Clients  int           // closed: of each process; 0 means 10
	Think    DurationDist  // closed: between an answer and the next request; 0 means exp(100ms)
	Retries  int           // closed: how often a denied request is asked again
	Backoff  time.Duration // closed: before the first retry, doubled each time, with full jitter; 0 means 10 ms
	Repeated bool          // replay: start again at the end of the trace
	File     string        // replay: a CSV file or an access log, see package trace
	Columns  string        `json:",omitzero"` // replay: names of the columns in File, as in time_ms=ts,key=user
	Trace    *Trace        `json:"-"`         // replay: the requests in File
	TraceSum string        // replay: a digest of Trace, for Hash
}

// Trace is a recorded sequence of requests, in order of time.
type Trace struct {
	Requests  []TraceRequest
	Processes int      // number of named processes; 0 for a trace without names
	Keys      int      // number of named keys
	Notes     []string // notes about left-out and changed lines
}

// TraceRequest is one line of a trace. Process and Key are numbered from 0, and taken modulo the fleet's
// numbers.
type TraceRequest struct {
	At      time.Duration
	Process int
	Key     int
	Cost    int64
}

// Network describes the link between the processes and Redis.
type Network struct {
	// RoundTrip is the time of both ways together, without Redis's own time. 0 means a median of 800 us and a
	// 99th percentile of 3.5 ms, as between two hosts of a data centre.
	RoundTrip   DurationDist
	Loss        Ratio // part of the requests that get lost
	LostReplies Ratio // part of the replies that get lost, after the call was executed
	Duplicates  Ratio // part of the requests that arrive twice
	Partitions  []Partition
}

// Partition cuts processes off. Requests and replies are lost.
type Partition struct {
	At    time.Duration
	For   time.Duration
	Group string // "" means all groups
	Part  Ratio  // part of the group's processes, the first ones; 0 means all
}

// Redis describes the store.
type Redis struct {
	// An exchange occupies a server for ServiceTime per lease call and ExchangeTime to read and answer, and
	// for WakeTime more if the server was idle. 0 means 16, 3 and 39 us. Measured: a lease call takes 58 us
	// with one connection and 19 us with fifty.
	ServiceTime, ExchangeTime, WakeTime DurationDist
	Shards                              int // 0 means 1; keys are spread over them
	Faults                              []RedisFault
}

// The kinds of Redis faults.
const (
	FaultOutage       = "outage"        // connections are refused
	FaultHang         = "hang"          // stopped (SIGSTOP): calls that arrive meanwhile run afterwards
	FaultSlow         = "slow"          // every call takes By longer
	FaultRestartEmpty = "restart_empty" // refuses connections during For, then has lost all data
	FaultFailover     = "failover"      // refuses connections during For, then a replica without the last Lost serves
	FaultClockStep    = "clock_step"    // the server's clock jumps by By
)

// FaultKinds are the valid values of RedisFault.Kind.
var FaultKinds = []string{FaultOutage, FaultHang, FaultSlow, FaultRestartEmpty, FaultFailover, FaultClockStep}

// RedisFault is a fault of Redis.
type RedisFault struct {
	Kind  string
	At    time.Duration
	For   time.Duration
	By    time.Duration // slow, clock_step
	Lost  time.Duration // failover: the replica's lag
	Shard int           // numbered from 1; 0 means all
}
