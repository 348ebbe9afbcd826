package clock

import "time"

// systemBase is what every reading of the system clock is counted from. There is one for the whole
// process, so that Instants from any two System clocks can be compared.
//
// Inside a testing/synctest bubble there is no monotonic time, and time.Since subtracts wall clock
// times: the bubble's, which starts in the year 2000, less that of systemBase. That is about minus
// a quarter of a century. Readings stay positive all the same because they start at origin.
var systemBase = time.Now()

type systemClock struct{}

// System returns the machine's monotonic clock: setting the wall clock does not move it. Any number
// of goroutines may share it, and all System clocks of a process are the same clock.
//
// Inside a testing/synctest bubble it reads the bubble's fake time, even if System was called
// outside, in a package-level variable for instance. Such Instants can be compared within that
// bubble only.
//
// On some systems, Linux among them, Go's monotonic clock stands still while the machine is
// suspended. Code that holds something only until a deadline must not trust this clock across a
// suspension.
func System() Clock { return systemClock{} }

func (systemClock) Now() Instant { return origin.Add(time.Since(systemBase)) }

// AfterFunc runs f on a goroutine of its own.
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
