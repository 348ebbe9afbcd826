package live

import (
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// cannotStop is the reason why this system cannot stop processes.
const cannotStop = "Windows has no signal that stops a process and lets it go on"

// stopSignal and resumeSignal are unused: Options.playable leaves out the pauses of groups.
const stopSignal, resumeSignal = syscall.Signal(0), syscall.Signal(0)

// wallClock returns the time of day to the microsecond. On Windows the clock of package time has steps of up
// to 16 ms.
func wallClock() time.Time {
	var t windows.Filetime
	windows.GetSystemTimePreciseAsFileTime(&t)
	return time.Unix(0, t.Nanoseconds())
}
