// Package scenario is the question that a simulation answers: a fleet of processes, their load,
// their network, their Redis, and what goes wrong with them.
//
// Make a Scenario, set what matters, and leave the rest zero: Defaults fills it in, and Validate
// reports every violation at once, each with its path, its value and its bound. A Scenario is a
// value. Nothing here runs anything or reads a file.
package scenario

import (
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Scenario is one question to the simulator: a fleet, its load, its network and its Redis, and what
// goes wrong with them. It is data: the same Scenario with the same Seed gives the same Report, to
// the bit, on any machine.
//
// In a YAML file (package file) every field has its Go name in snake case: Workload.Rate is workload.rate. A
// zero field means its default, as Defaults says; Validate reports every violation.
type Scenario struct {
	Name        string
	Description string

	Duration time.Duration // simulated; 0 means 30 s, 25 sliding windows, or twice until the last event
	Warmup   time.Duration // figures count from here on; the audit and the conservation check see everything
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

	// Rivals are the other algorithms that see the same arrivals, by their names in package rival.
	// None by default.
	Rivals []string

	// Zeros are the paths of what a file or an assignment gave as zero: package file sees that no
	// later assignment makes a default of it.
	Zeros []string `json:"-"`
}

// Keys says how many keys there are and how popular each is: the k-th has a part of the load
// proportional to 1/k^Zipf.
type Keys struct {
	Count int     // 0 means 1
	Zipf  float64 // 0 means all alike
}

// Clock says how wrong the clocks of processes are: each draws its own. Leases do not depend on the
// offset, which is there for the rivals.
type Clock struct {
	Offset DurationDist // a plain duration d means uniform in [-d, d]
	Drift  DriftDist    // a plain d ppm likewise
}

// Group is some processes that are alike.
type Group struct {
	Name  string
	Count int // processes at the start; 0 means 1
	// Weight is Policy.Weight of its processes; 0 means Policy's.
	Weight int64
	// Share is the group's part of Workload.Rate, relative to the other groups'; 0 means Count.
	Share float64
	// Headroom is Policy.Headroom of its processes, which makes the group a class of requests; 0 means
	// Policy's.
	Headroom float64 `json:",omitzero"`
	// Shadow has its processes admit what they would deny, as Policy.Shadow does for all.
	Shadow bool `json:",omitzero"`
	// Skew divides the group's load unevenly: its k-th process has a part proportional to 1/k^Skew.
	Skew  float64
	Clock *Clock
	// RoundTrip is Network.RoundTrip of its processes, such as those of another region; 0 means Network's.
	RoundTrip DurationDist `json:",omitzero"`
	Workload  *Workload    // its own, with its own rate; then Share means nothing

	Pauses   Stops  // stopped and resumed: long collections, SIGSTOP, a virtual machine that is moved
	Restarts Stops  // killed, and started anew under another instance id
	Scale    []Step // autoscaling, in order of time
}

// Stops happen to each process by itself, at random; or with At to the first one of the group, once.
type Stops struct {
	Every time.Duration // mean time between two; 0 for never
	At    time.Duration `json:",omitzero"` // in its place; 0 for never
	For   DurationDist
}

// Step sets the number of running processes of a group. Those that leave give back first (Shutdown)
// unless Kill.
type Step struct {
	At    time.Duration
	Count int
	Kill  bool
}

// The kinds of workload.
const (
	Constant  = "constant"  // evenly, each process at a phase of its own
	Poisson   = "poisson"   // independent requests
	OnOff     = "onoff"     // MMPP: Poisson while on, nothing while off, both of exponential length
	Pareto    = "pareto"    // bursts of Pareto(Alpha) many requests, at Poisson moments
	Diurnal   = "diurnal"   // Poisson, the rate a sine over Period
	Flash     = "flash"     // Poisson, times Factor from At for For
	Sync      = "sync"      // all processes at the same moments, once in Every
	Boundary  = "boundary"  // as sync, half of a burst before the moment: what fixed windows fear
	Adversary = "adversary" // asks for all it can, and spends it just before each report or the lease's end
	Closed    = "closed"    // Clients that think, ask, and come again when they are denied
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

// Workload says when requests come. Fields that its Kind does not name mean nothing.
type Workload struct {
	Kind string // "" means poisson
	Verb string // "" means allow
	// Rate is requests per second of all processes together, in the mean. Load says the same as a multiple of
	// what the tightest limit gives all keys' requests; one of them is 0. Both 0 mean Load 0.9.
	Rate Rate
	Load float64
	Cost Cost // tokens per request; the zero value means 1

	// A request reserves Cost where Actual or Cancelled is set, and settles later. With Actual, Load
	// is of what requests cost in the end.
	Actual    TokenDist    `json:",omitzero"` // what a request turns out to cost; the zero value means Cost
	Hold      DurationDist `json:",omitzero"` // from being admitted until that is known
	Cancelled Ratio        `json:",omitzero"` // of those that are admitted: cancelled instead, when Hold is over

	Deadline time.Duration // wait: of each request; 0 means 1 s
	Patience DurationDist  `json:",omitzero"` // wait: then it is cancelled, unforeseen; 0 for never

	On, Off  time.Duration // onoff: mean lengths; 0 mean 100 ms and 900 ms. Rate is the mean over both.
	Alpha    float64       // pareto: shape, above 1; 0 means 1.5
	Burst    float64       // pareto: mean requests in a burst; 0 means 20
	Period   time.Duration // diurnal; 0 means Duration
	Swing    Ratio         // diurnal: how far the rate goes up and down around the mean; 0 means 80 %
	At, For  time.Duration // flash; 0 mean Duration/3 and Duration/6
	Factor   float64       // flash; 0 means 10
	Every    time.Duration // sync; 0 means 500 ms. boundary; 0 means twice the first window. At least Within
	Within   time.Duration // sync, boundary: the burst is spread over this long; 0 means 0, and 10 ms or Every
	Clients  int           // closed: of each process; 0 means 10
	Think    DurationDist  // closed: between an answer and the next request; 0 means exp(100ms)
	Retries  int           // closed: how often a denied request is asked again
	Backoff  time.Duration // closed: before the first retry, doubled each time, with full jitter; 0 means 10 ms
	Repeated bool          // replay: start again at the end of the trace
	File     string        // replay: a CSV file or an access log, see package trace
	Columns  string        `json:",omitzero"` // replay: what File calls them, as in time_ms=ts,key=user
	Trace    *Trace        `json:"-"`         // replay: what File holds
	TraceSum string        // replay: a digest of Trace, which makes it part of Hash
}

// Trace is a recorded sequence of requests, in order of time.
type Trace struct {
	Requests  []TraceRequest
	Processes int      // that it names; 0 if it names none
	Keys      int      // that it names
	Notes     []string // what a reader of the file should know: what was left out, or changed
}

// TraceRequest is one line of a trace. Process and Key are numbered from 0 and taken modulo what there is.
type TraceRequest struct {
	At      time.Duration
	Process int
	Key     int
	Cost    int64
}

// Network describes the link between the processes and Redis.
type Network struct {
	// RoundTrip is there and back without Redis's own time, half of it each way. 0 means a median of 800 us
	// and a 99th percentile of 3.5 ms, as between two hosts of a data centre: what arrives in step does not
	// stay so.
	RoundTrip   DurationDist
	Loss        Ratio // of requests, on the way there
	LostReplies Ratio // on the way back: the call was executed
	Duplicates  Ratio // of requests that arrive twice
	Partitions  []Partition
}

// Partition cuts processes off: requests and replies are lost.
type Partition struct {
	At    time.Duration
	For   time.Duration
	Group string // "" means all groups
	Part  Ratio  // of its processes, the first ones; 0 means all
}

// Redis is the store.
type Redis struct {
	// A server's time for an exchange, which occupies it: ServiceTime for the script of each lease call, and
	// ExchangeTime to read the exchange and to answer it. One that finds the server idle costs WakeTime more.
	// 0 means 16, 3 and 39 us: as measured, a lease call takes 58 us with one connection and 19 us with
	// fifty.
	ServiceTime, ExchangeTime, WakeTime DurationDist
	Shards                              int // 0 means 1; keys are spread over them
	Faults                              []RedisFault
}

// The kinds of Redis faults.
const (
	FaultOutage       = "outage"        // connections are refused
	FaultHang         = "hang"          // stopped (SIGSTOP): what comes meanwhile is executed after it
	FaultSlow         = "slow"          // every call takes By longer
	FaultRestartEmpty = "restart_empty" // refused during For, then everything is forgotten
	FaultFailover     = "failover"      // refused during For, then a replica serves that lacks the last Lost
	FaultClockStep    = "clock_step"    // the server's clock jumps by By
)

// FaultKinds are the valid values of RedisFault.Kind.
var FaultKinds = []string{FaultOutage, FaultHang, FaultSlow, FaultRestartEmpty, FaultFailover, FaultClockStep}

// RedisFault is something that happens to Redis.
type RedisFault struct {
	Kind  string
	At    time.Duration
	For   time.Duration
	By    time.Duration // slow, clock_step
	Lost  time.Duration // failover: the replica's lag
	Shard int           // numbered from 1; 0 means all
}
