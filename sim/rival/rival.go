// Package rival implements other rate limiters than this library's, for a simulation of leases and of other
// limiters on the same requests. [New] makes an algorithm by its name.
//
// Every algorithm gets the same limit: Burst tokens at once, and R = Tokens/Per tokens in the long run. An
// algorithm with a quota per window takes Burst as the quota, and Burst/R, the time in which a bucket fills,
// as the window. A sliding window keeps admitted(t, t+w] <= Burst + R*w by the store's time. A fixed window
// admits up to Burst more across the boundary of two windows.
//
// A limit of kind sliding window or calendar has a quota and a window of its own. The central limiter counts
// both kinds exactly. The other algorithms use the length of the limit's window. A fixed window begins with
// the calendar's period. settle_afterwards supports only token buckets.
//
// All algorithms count tokens and microseconds in whole numbers, without rounding. New rejects the few valid
// limits that an algorithm cannot hold exactly.
//
// An algorithm that calls a store for each request exists twice: by the store's time and, with the suffix
// _client, by the time of the calling process, which sends its time along. Algorithms by the caller's time
// exceed the limit: a clock that is d ahead creates R*d tokens of central_client, at most a burst, once after
// each pause of the load. A fast clock ends the windows of the others early, and a clock that is off by a
// window gets a whole quota.
package rival

import (
	"errors"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	// ErrUnknown is wrapped by the error of New for an unknown name.
	ErrUnknown = errors.New("rival: unknown algorithm")
	// ErrLimit is wrapped by the error of New for limits that are invalid, or not exact in the algorithm.
	ErrLimit = errors.New("rival: invalid limit")
)

// Fleet describes a fleet to the algorithm that limits it. New checks only the limits; the other numbers must
// come from a valid scenario.
type Fleet struct {
	// Processes is the number of processes at the start, at least 1. static_split divides the limits, and
	// local_batches its batch, by Processes. Processes that join later have higher numbers.
	Processes int
	// Weights are the processes' weights for static_split, at least 1; missing weights are 1.
	Weights []int64
	Limits  []lease.Limit // every key's limits, 1 to 4; a request must fit into all limits
	Keys    int           // number of keys, at least 1; keys are numbered from 0
	// Local returns the clock of process p at the true time now, both in microseconds since the start. The
	// clock may be negative and may step. Algorithms by the caller's time use Local; nil means correct
	// clocks.
	Local func(p int, now int64) int64
}

// Algorithm decides requests in order of time. Only one goroutine may use an Algorithm at a time. A process
// that restarts with the same number finds its earlier state.
type Algorithm interface {
	// Decide reports whether a request of process p, numbered from 0, for n tokens of a key is admitted at
	// the true time now, in microseconds. Decide takes no token for a refused request. The caller passes a
	// now of at least 0 that never falls. Decide admits an n of 0 and refuses a negative n. Decide panics for
	// a key that the Fleet does not have.
	Decide(now int64, p, key int, n int64) bool
	// RoundTrips returns the number of round trips to the store up to the last Decide.
	RoundTrips() int64
}

// Remote is an Algorithm that calls the store for each request, and keeps state only in the store.
type Remote interface {
	Algorithm
	// Clone returns an independent copy, which serves as the state of a replica of the store.
	Clone() Remote
}

type calls struct{ made int64 }

func (c *calls) RoundTrips() int64 { return c.made }

type entry struct {
	name, text string
	client     bool // the algorithm uses the caller's time
	remote     bool // the algorithm is a Remote
	build      func(f Fleet) (Algorithm, error)
}

// entries lists all algorithms in the order of the table in docs/simulator.md.
var entries = slices.Concat(
	both("central", "one exact limiter, one call per request; GCRA decides as its token bucket does", newCentral),
	both("fixed_window", "a counter per window of Burst/R, with a quota of Burst", newFixedWindow),
	both("sliding_log", "a log of the admissions of the last Burst/R, at most Burst", newSlidingLog),
	both("sliding_cells", "a sliding window of Burst/R over 10 counters, the oldest one weighted", newSlidingCells),
	[]entry{
		{name: "static_split", build: newStaticSplit,
			text: "a token bucket of R/N and Burst/N in each process, by weight; no calls"},
		{name: "local_batches", build: newLocalBatches,
			text: "batches of 100 ms of R/N from one bucket, spent locally; no ledger or expiry"},
		{name: "settle_afterwards", build: newSettleAfterwards,
			text: "each process admits by its own view of the bucket and settles every 100 ms"},
	},
)

// both returns the entries of a Remote by the store's time and by the caller's time.
func both(name, text string, build func(Fleet) (Algorithm, error)) []entry {
	return []entry{
		{name, text, false, true, build},
		{name + "_client", name + " by the caller's time", true, true, build},
	}
}

// find returns the entry of a name. The error wraps ErrUnknown.
func find(name string) (entry, error) {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, violation.New(ErrUnknown, "", name, "must be one of %s", strings.Join(Names(), ", "))
	}
	return entries[i], nil
}

// New returns the named algorithm for f. The error wraps ErrLimit or ErrUnknown.
func New(name string, f Fleet) (Algorithm, error) {
	e, err := find(name)
	if err != nil {
		return nil, err
	}
	if !e.client || f.Local == nil {
		f.Local = func(_ int, now int64) int64 { return now }
	}
	return e.build(f)
}

// Check returns an error that wraps ErrUnknown for an unknown name.
func Check(name string) error {
	_, err := find(name)
	return err
}

// Names returns the names of all algorithms in the order of the table in docs/simulator.md.
func Names() (names []string) {
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

// IsRemote reports whether the named algorithm is a [Remote].
func IsRemote(name string) bool {
	e, err := find(name)
	return err == nil && e.remote
}

// Describe returns one line about the named algorithm, or "" for an unknown name.
func Describe(name string) string {
	e, _ := find(name)
	return e.text
}
