// Package rival implements the alternatives to this library that a simulation runs on the same requests, for
// comparison with leases. [New] makes one by its name.
//
// Every algorithm gets the same limit: Burst at once after a rest, and R = Tokens/Per in the long run. An
// algorithm that has only a quota per window takes Burst as the quota, and Burst/R, the time in which a
// bucket fills, as the window. So the sliding windows keep admitted(t, t+w] <= Burst + R*w by the store's
// time, and lose the refill in between. A fixed window admits up to Burst more, across its boundary.
//
// A sliding window or a calendar has a quota and a window of its own. The central limiter counts both
// exactly. The other windows use their length, even for a calendar, and a fixed window begins with the
// period. settle_afterwards supports only token buckets.
//
// All algorithms count in whole numbers without rounding, and in microseconds. New rejects the few valid
// limits that an algorithm cannot hold exactly.
//
// The algorithms that call a store for each request exist twice: by the store's time, which is right, and by
// the caller's (names that end in _client), which the process sends along, as many libraries do. With the
// caller's time:
//
//   - central: a clock that is d ahead creates R*d tokens once after each rest, at most a burst. From then on
//     tokens flow in by the fastest clock.
//   - sliding_log: a fast clock removes admissions that the others' windows still hold, so that even R is
//     exceeded.
//   - fixed_window, sliding_cells: clocks that differ by a window or more each get a whole quota.
//
// A key in the store lives as long as its last writer may need it, by the store's time.
//
// An admission counts when it is decided. GCRA and the leaky bucket as a queue are left out, because they
// then admit the same requests as the central bucket.
package rival

import (
	"errors"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	// ErrUnknown is wrapped by New's error for an unknown name.
	ErrUnknown = errors.New("rival: unknown algorithm")
	// ErrArgument is wrapped by New's error for an invalid text after the colon of a name.
	ErrArgument = errors.New("rival: invalid argument")
	// ErrLimit is wrapped by New's error for limits that are invalid, or that the algorithm cannot hold
	// exactly.
	ErrLimit = errors.New("rival: invalid limit")
)

// Fleet describes a fleet to the algorithm that limits it. New checks only the limits; the other numbers must
// come from a valid scenario.
type Fleet struct {
	// Processes is the number of processes at the start, at least 1. static_split divides by it, and so does
	// the default batch of local_batches. Processes that join later may have any higher number.
	Processes int
	// Weights are the processes' weights, each at least 1; missing weights are 1. Only static_split divides
	// by them.
	Weights []int64
	Limits  []lease.Limit // every key's limits, 1 to 4; a request must fit into all of them
	Keys    int           // number of keys, at least 1; numbered from 0
	// Local is process p's clock at the true time now, both in microseconds since the start. It may be
	// negative and may step. Only the algorithms by the caller's time use it; nil means that every clock is
	// right.
	Local func(p int, now int64) int64
	// Store is the store's clock in the same way. Only the algorithms by the store's time use it.
	Store func(now int64) int64
}

// Algorithm decides requests in order of time. Only one goroutine may use it at a time. A process that
// restarts under its old number finds its earlier state.
type Algorithm interface {
	// Decide reports whether a request of process p, numbered from 0, for n tokens of a key is admitted at
	// the true time now, in microseconds, at least 0 and never falling. A refusal takes nothing. An n of 0 is
	// admitted, a negative n is not, and neither reaches the store. It panics for a key that the Fleet does
	// not have.
	Decide(now int64, p, key int, n int64) bool
	// RoundTrips returns the number of round trips to the store until the last Decide.
	RoundTrips() int64
}

// Remote is an Algorithm that calls the store for each request, and keeps no state elsewhere.
type Remote interface {
	Algorithm
	// Clone returns an independent copy: the state of a replica of the store.
	Clone() Remote
}

// calls counts the round trips of an algorithm that makes one per call.
type calls struct{ made int64 }

func (c *calls) RoundTrips() int64 { return c.made }

// entry is one algorithm under one name.
type entry struct {
	name, text string
	argument   string // the argument's name in the help; "" for an algorithm without one
	client     bool   // uses the caller's time
	remote     bool   // is a Remote
	build      func(f Fleet, argument string) (Algorithm, error)
}

// entries has all algorithms in the order of the table.
var entries = slices.Concat(
	both("central", "one exact limiter, one call per request; GCRA decides as its token bucket does", "",
		newCentral),
	both("fixed_window", "a counter per window of Burst/R, with a quota of Burst", "", newFixedWindow),
	both("sliding_log", "a log of the admissions of the last Burst/R, at most Burst", "", newSlidingLog),
	both("sliding_cells", "a sliding window of Burst/R over 10 (CELLS) counters, the oldest one weighted",
		"CELLS", newSlidingCells),
	[]entry{
		{name: "static_split", build: newStaticSplit,
			text: "a token bucket of R/N and Burst/N in each process, by weight; no calls"},
		{name: "local_batches", build: newLocalBatches, argument: "TOKENS",
			text: "batches of 100 ms of R/N (TOKENS) from one bucket, spent locally; no ledger or expiry"},
		{name: "window_leases", build: newWindowLeases, argument: "TOKENS",
			text: "batches of 20 (TOKENS) from a counter per window of Burst/R, void at its end"},
		{name: "settle_afterwards", build: newSettleAfterwards, argument: "PERIOD",
			text: "each process admits by its own view of the bucket and settles every 100 ms (PERIOD)"},
	},
)

// both returns the two entries of a Remote: by the store's time and by the caller's.
func both(name, text, argument string, build func(Fleet, string) (Algorithm, error)) []entry {
	return []entry{
		{name, text + "; by the store's time", argument, false, true, build},
		{name + "_client", text + "; by the caller's time", argument, true, true, build},
	}
}

// find returns the entry and the argument of a name. The error wraps ErrUnknown or ErrArgument.
func find(text string) (e entry, argument string, err error) {
	name, argument, given := strings.Cut(text, ":")
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return e, "", violation.New(ErrUnknown, "", text, "must be one of %s", strings.Join(Names(), ", "))
	}
	e = entries[i]
	switch {
	case given && e.argument == "":
		err = violation.New(ErrArgument, "", text, "has an argument, but %s takes none", name)
	case given && argument == "":
		err = violation.New(ErrArgument, "", text, "has no %s after the colon", e.argument)
	}
	return e, argument, err
}

// New returns the algorithm of that name for f, with no key used. Some names take an argument, as in
// "sliding_cells:60", "local_batches:50" and "settle_afterwards:50ms". The error wraps ErrArgument, ErrLimit
// or, for an unknown name, ErrUnknown, and then lists the names.
func New(name string, f Fleet) (Algorithm, error) {
	e, argument, err := find(name)
	if err != nil {
		return nil, err
	}
	switch {
	case !e.client && f.Store != nil:
		f.Local = func(_ int, now int64) int64 { return f.Store(now) }
	case !e.client || f.Local == nil:
		f.Local = func(_ int, now int64) int64 { return now }
	}
	return e.build(f, argument)
}

// Check returns the error of New for the name and its argument with any fleet.
func Check(name string) error {
	_, err := New(name, Fleet{Processes: 1, Limits: []lease.Limit{lease.PerSecond(1)}, Keys: 1})
	if errors.Is(err, ErrLimit) {
		return nil
	}
	return err
}

// Names returns all algorithms without arguments, in the order of the table.
func Names() (names []string) {
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

// IsRemote reports whether the algorithm of that name, with or without an argument, is a [Remote].
func IsRemote(name string) bool {
	e, _, err := find(name)
	return err == nil && e.remote
}

// Describe returns one line about the algorithm of that name, with or without an argument; "" if there is
// none.
func Describe(name string) string {
	e, _, _ := find(name)
	return e.text
}
