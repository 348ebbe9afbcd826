package rival

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	// ErrUnknown is wrapped by New's error for a name that no algorithm has.
	ErrUnknown = errors.New("rival: unknown algorithm")
	// ErrArgument is wrapped by New's error for what follows the colon of a name.
	ErrArgument = errors.New("rival: invalid argument")
	// ErrLimit is wrapped by New's error for limits that are not valid, or that the algorithm cannot
	// hold exactly.
	ErrLimit = errors.New("rival: invalid limit")
)

const maxLimits = 4

// Fleet is what an algorithm knows of the fleet that it limits. Its numbers are those of a valid
// scenario; only the limits are checked here.
type Fleet struct {
	// Processes is how many run at the start, at least 1. static_split divides by it, and so does
	// the default batch of local_batches. Processes that join later may have any higher number.
	Processes int
	// Weights are the processes' weights, each at least 1; missing ones are 1. Only static_split
	// divides by them.
	Weights []int64
	Limits  []lease.Limit // of every key, 1 to 4; all must have room
	Keys    int           // at least 1; they are numbered from 0
	// Local is process p's clock at the true time now, both in microseconds since the start. It may
	// be negative and may step. Only the algorithms by the caller's time ask it; nil means that
	// every clock is right.
	Local func(p int, now int64) int64
}

func validLimits(limits []lease.Limit) error {
	var errs []error
	if len(limits) < 1 || len(limits) > maxLimits {
		errs = append(errs, fmt.Errorf("%w: there are %d Limits, must be 1 to %d",
			ErrLimit, len(limits), maxLimits))
	}
	for i, l := range limits {
		if err := l.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: Limits[%d]: %w", ErrLimit, i, err))
		}
	}
	return errors.Join(errs...)
}

// Algorithm decides requests in order of time. One goroutine at a time.
type Algorithm interface {
	// Decide says whether a request of process p, numbered from 0, for n tokens of a key is
	// admitted at the true time now, in microseconds, at least 0 and never falling. A refusal takes
	// nothing. n of 0 is admitted, a negative n is not, and neither reaches the store. It panics
	// for a key that the Fleet does not have.
	Decide(now int64, p, key int, n int64) bool
	// RoundTrips is how many round trips to the store were made until the time of the last Decide.
	RoundTrips() int64
}

// clock is the time that a decision goes by: process p's at the true time now.
type clock func(p int, now int64) int64

// entry is one algorithm under one name.
type entry struct {
	name, text string
	argument   string // what the help calls it, "" for an algorithm that takes none
	client     bool   // whether it goes by the caller's time
	build      func(f Fleet, argument string, local clock) (Algorithm, error)
}

// entries are all algorithms in the order of a table: the ideal, what asks the store for every
// request, and what does not.
var entries = slices.Concat(
	both("central", "one exact token bucket, one call per request; GCRA decides the same", "", newCentral),
	both("fixed_window", "a counter per window of Burst/R, its quota Burst", "", newFixedWindow),
	both("sliding_log", "the admissions of the last Burst/R, at most Burst", "", newSlidingLog),
	both("sliding_cells", "a window of Burst/R that slides over 10 (CELLS) counters, the oldest one weighted",
		"CELLS", newSlidingCells),
	[]entry{
		{name: "static_split", build: newStaticSplit,
			text: "a token bucket of R/N and Burst/N in each process, by weight; no calls"},
		{name: "local_batches", build: newLocalBatches, argument: "TOKENS",
			text: "batches of 100 ms of R/N (TOKENS) from a central bucket, spent locally; no ledger, no expiry"},
		{name: "settle_afterwards", build: newSettleAfterwards, argument: "PERIOD",
			text: "each process admits by its own view of the bucket and settles every 100 ms (PERIOD)"},
	},
)

// both are the entries of an algorithm by the store's time and by the caller's.
func both(name, text, argument string, build func(Fleet, string, clock) (Algorithm, error)) []entry {
	return []entry{
		{name, text + "; by the store's time", argument, false, build},
		{name + "_client", text + "; by the caller's time", argument, true, build},
	}
}

// find splits a name from its argument. The error wraps ErrUnknown or ErrArgument.
func find(text string) (e entry, argument string, err error) {
	name, argument, given := strings.Cut(text, ":")
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return e, "", fmt.Errorf("%w %q: the names are %s", ErrUnknown, text, strings.Join(Names(), ", "))
	}
	e = entries[i]
	switch {
	case given && e.argument == "":
		err = fmt.Errorf("%w: %q: %s takes none", ErrArgument, text, name)
	case given && argument == "":
		err = fmt.Errorf("%w: %q: %s is missing after the colon", ErrArgument, text, e.argument)
	}
	return e, argument, err
}

// New returns the algorithm of that name for f, with every key untouched. Some names take an
// argument, as in "sliding_cells:60", "local_batches:50" and "settle_afterwards:50ms". The error
// wraps ErrUnknown, and lists the names, where there is no such algorithm; ErrArgument; or
// ErrLimit.
func New(name string, f Fleet) (Algorithm, error) {
	e, argument, err := find(name)
	if err != nil {
		return nil, err
	}
	if err := validLimits(f.Limits); err != nil {
		return nil, err
	}
	local := f.Local
	if !e.client || local == nil {
		local = func(_ int, now int64) int64 { return now }
	}
	return e.build(f, argument, local)
}

// Names are all algorithms without arguments, in the order of a table.
func Names() []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.name
	}
	return names
}

// Describe is one line about the algorithm of that name, with or without an argument; "" if there
// is none.
func Describe(name string) string {
	e, _, _ := find(name)
	return e.text
}

// calls counts the round trips of an algorithm that makes one per call.
type calls struct{ made int64 }

func (c *calls) RoundTrips() int64 { return c.made }
