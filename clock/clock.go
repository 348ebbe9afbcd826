// Package clock provides the time: [System] is the machine's clock, and a test can pass a faulty Clock.
//
// The readings of a clock are monotonic [Instant] values above zero, so that the zero Instant can mean
// "unset". Compare only Instants of one clock in one process, and send a time.Duration to another machine.
package clock

import (
	"math"
	"time"
)

// Instant is a moment on one clock, in nanoseconds from an arbitrary origin of that clock. Instant is a type
// of its own, so that the compiler tells it apart from a wall clock time and a duration.
type Instant int64

// Add returns the instant d after i, or before i if d is negative. Add stops at the ends of the range.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	if (sum > i) == (d > 0) {
		return sum
	}
	if d > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

// Sub returns the time from o to i, negative if i is earlier. Sub stops at the ends of the range.
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
	// Now returns the current reading, which is above zero. Only the clock of a test may step back.
	Now() Instant

	// AfterFunc calls f once, d from now by this clock; a d of zero or less means as soon as possible.
	//
	// f never runs inside the call to AfterFunc, so that the caller may hold a lock that f takes. System
	// starts a goroutine for f. The clock of a test may run f on the goroutine that moves the clock, so that
	// f should be short and must not wait for time to pass.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of AfterFunc. The methods of a Timer behave like those of the time.Timer from
// time.AfterFunc. Goroutines may share a Timer.
type Timer interface {
	// Stop cancels the call, or returns false if the call has begun or was stopped before.
	Stop() bool

	// Reset makes the timer fire after the duration d, whether or not it has fired or was stopped; a d of
	// zero or less means as soon as possible. Reset reports whether the timer was still pending.
	Reset(d time.Duration) bool
}

// systemBase is the origin of all System clocks. Readings count from 1970, so that they are positive in a
// testing/synctest bubble too: its year is 2000, and time.Since is about minus a quarter of a century.
var systemBase = time.Now()

type systemClock struct{}

// System returns the machine's monotonic clock, which ignores changes of the wall clock. All System clocks of
// a process are the same clock. Instants of System count from 1970-01-01 00:00 UTC, by the wall clock at the
// start of the process.
//
// Inside a testing/synctest bubble the clock reads the bubble's fake time, even if System was called outside.
// Compare Instants from a bubble only within that bubble.
//
// On some systems, including Linux, Go's monotonic clock stands still while the machine is suspended, so that
// a deadline may pass unnoticed. On Windows the clock moves in steps of up to 16 ms.
func System() Clock { return systemClock{} }

func (systemClock) Now() Instant {
	return max(1, Instant(systemBase.UnixNano()).Add(time.Since(systemBase)))
}

// AfterFunc runs f on a new goroutine.
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
