// Package clock is where the rest of this module gets its time from: from the machine's clock, or in a test
// from one that is wrong. A test decides when time passes by testing/synctest: [System] follows the fake
// time of its bubbles.
//
// Every clock reads monotonic [Instant] values. No reading is ever zero or negative, so the zero
// Instant can mean "unset". An Instant is only good for comparing with others of the same clock in
// the same process: send a time.Duration to another machine, never an Instant.
package clock

import (
	"math"
	"time"
)

// Instant is a moment on one clock, in nanoseconds from an arbitrary origin of that clock. It is a
// type of its own so that the compiler keeps it apart from wall clock times and from durations.
// Instants of different clocks or of different processes have nothing to do with each other.
type Instant int64

// Limits of what an Instant can hold. Arithmetic stops there and does not wrap.
const (
	minInstant Instant = math.MinInt64
	maxInstant Instant = math.MaxInt64
)

// Add returns the instant d after i, or before i if d is negative. A result that does not fit is
// the latest or earliest Instant there is: "now plus forever" stays in the future.
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

// Sub returns the time from o to i, negative if i is the earlier one. A result that does not fit is
// the longest or shortest Duration there is.
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

// Clock tells the time and calls back later. Any number of goroutines may share a Clock.
type Clock interface {
	// Now returns the current reading. It is above zero and never less than an earlier reading, but of a
	// clock that a test steps back.
	Now() Instant

	// AfterFunc calls f once, d from now by this clock; a d of zero or less means as soon as possible.
	// f must not be nil.
	//
	// f never runs inside the call to AfterFunc, so the caller may hold a lock that f takes. The clock
	// decides which goroutine f runs on: one of its own (System), or that which moves the clock, in a test.
	// So f should be short and should not wait for time to pass.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call made by AfterFunc. Its methods mean what those of a time.Timer from
// time.AfterFunc mean, and goroutines may share it.
type Timer interface {
	// Stop cancels the call and reports whether it did. False means that the call was made, has begun,
	// or was stopped before. Stop does not wait for a call that has begun.
	Stop() bool

	// Reset makes the timer call d from now, whether or not it has called or was stopped before; a d
	// of zero or less means as soon as possible. It reports whether the timer was still pending.
	Reset(d time.Duration) bool
}

// systemBase is the start of every reading of the system clock, so that Instants from any two System clocks
// compare. Readings count from 1970: a caller can compute the time of day, and they are positive in a
// testing/synctest bubble too, where the year is 2000 and time.Since is about minus a quarter of a century.
var systemBase = time.Now()

type systemClock struct{}

// System returns the machine's monotonic clock: setting the wall clock does not move it. Any number
// of goroutines may share it, and all System clocks of a process are the same clock. Its Instants
// count from 1970-01-01 00:00 UTC, by the wall clock as that was when the process began.
//
// Inside a testing/synctest bubble it reads the bubble's fake time, even if System was called outside, in a
// package-level variable for instance. Such Instants can be compared within that bubble only.
//
// On some systems, Linux among them, Go's monotonic clock stands still while the machine is
// suspended. Code that holds something only until a deadline must not trust this clock across a
// suspension. On Windows it moves in steps of up to 16 ms.
func System() Clock { return systemClock{} }

func (systemClock) Now() Instant {
	return max(1, Instant(systemBase.UnixNano()).Add(time.Since(systemBase)))
}

// AfterFunc runs f on a goroutine of its own.
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
