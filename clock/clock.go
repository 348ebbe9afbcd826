// Package clock provides the time to this module: the machine's clock or, in a test, a faulty clock. A test
// controls time with testing/synctest: [System] follows the fake time of a bubble.
//
// Every clock reads monotonic [Instant] values. No reading is ever zero or negative, so the zero Instant can
// mean "unset". Instants may be compared only with others of the same clock in the same process: send a
// time.Duration to another machine, never an Instant.
package clock

import (
	"math"
	"time"
)

// Instant is a moment on one clock, in nanoseconds from an arbitrary origin of that clock. Instant is a type
// of its own so that the compiler distinguishes it from wall clock times and durations. Instants of different
// clocks or processes are unrelated.
type Instant int64

// The range of an Instant. Arithmetic with Instants stops at the ends of the range and does not wrap.
const (
	minInstant Instant = math.MinInt64
	maxInstant Instant = math.MaxInt64
)

// Add returns the instant d after i, or before i if d is negative. A result out of range is the latest or
// earliest Instant: "now plus forever" stays in the future.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	if (sum > i) == (d > 0) {
		return sum
	}
	if d > 0 {
		return maxInstant
	}
	return minInstant
}

// Sub returns the time from o to i, negative if i is earlier. A result out of range is the longest or
// shortest Duration.
func (i Instant) Sub(o Instant) time.Duration {
	diff := i - o
	if (diff < 0) == (i < o) {
		return time.Duration(diff)
	}
	if i > o {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Clock reads the time and calls functions later. Goroutines may share a Clock.
type Clock interface {
	// Now returns the current reading. A reading is above zero and never less than an earlier reading, except
	// for a clock that a test steps back.
	Now() Instant

	// AfterFunc calls f once, d from now by this clock; a d of zero or less means as soon as possible. f must
	// not be nil.
	//
	// f never runs inside the call to AfterFunc, so the caller may hold a lock that f takes. The clock
	// decides on which goroutine f runs: System starts a goroutine for f, a clock of a test may use the
	// goroutine that moves the clock. So f should be short and should not wait for time to pass.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of AfterFunc. The methods of a Timer behave like those of a time.Timer from
// time.AfterFunc, and goroutines may share it.
type Timer interface {
	// Stop cancels the call and reports whether it did. Stop returns false if the call was made, has begun,
	// or was stopped before. Stop does not wait for a call that has begun.
	Stop() bool

	// Reset makes the timer fire after the duration d, whether or not it has fired or was stopped; a d of
	// zero or less means as soon as possible. Reset reports whether the timer was still pending.
	Reset(d time.Duration) bool
}

// systemBase is the origin of all readings of the system clock, so that Instants from any two System clocks
// compare. Readings count from 1970, so that a caller can compute the time of day. Readings are positive in a
// testing/synctest bubble too, where the year is 2000 and time.Since is about minus a quarter of a century.
var systemBase = time.Now()

type systemClock struct{}

// System returns the machine's monotonic clock: setting the wall clock does not move it. Goroutines may share
// the clock, and all System clocks of a process are the same clock. Instants of System count from 1970-01-01
// 00:00 UTC, by the wall clock at the start of the process.
//
// Inside a testing/synctest bubble the clock reads the bubble's fake time, even if System was called outside,
// for instance for a package-level variable. Instants from a bubble can be compared only within that bubble.
//
// On some systems, including Linux, Go's monotonic clock stands still while the machine is suspended. Code
// that holds something only until a deadline must not trust this clock across a suspension. On Windows this
// clock moves in steps of up to 16 ms.
func System() Clock { return systemClock{} }

func (systemClock) Now() Instant {
	return max(1, Instant(systemBase.UnixNano()).Add(time.Since(systemBase)))
}

// AfterFunc runs f on a new goroutine.
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
