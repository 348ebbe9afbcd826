package clock

import "time"

// systemBase is what every reading of the system clock is counted from. There
// is one for the whole process, not one per call of System, so that Instants
// from any two System clocks can be compared.
//
// Its monotonic half is what counts normally. Inside a testing/synctest bubble
// there is no monotonic time, and time.Since falls back to wall clock times:
// the bubble's, which starts at 2000-01-01, less that of systemBase. That is
// about minus a quarter of a century, and it is why readings start at origin
// and not at zero: they stay positive until the machine's date is 2126.
var systemBase = time.Now()

// systemClock has no fields: all its state is systemBase and the runtime.
type systemClock struct{}

// System returns the machine's monotonic clock: setting the wall clock does not
// move it. Any number of goroutines may share it, and it costs nothing to make:
// all System clocks of a process are the same clock.
//
// Inside a testing/synctest bubble it reads the bubble's fake time, even if
// System was called outside, in a package-level variable for instance.
// Instants from inside a bubble can be compared with those from the same
// bubble only.
//
// Go's monotonic clock stands still on some systems (Linux among them) while
// the machine is suspended. Code that holds something only until a deadline
// must not take this clock's word for time that passed in a suspended machine.
func System() Clock { return systemClock{} }

func (systemClock) Now() Instant { return origin.Add(time.Since(systemBase)) }

// AfterFunc runs f on a goroutine of its own. A *time.Timer is a Timer as it is.
func (systemClock) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(d, f)
}
