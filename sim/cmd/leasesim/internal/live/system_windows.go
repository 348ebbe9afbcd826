package live

import (
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"github.com/yuzhi-go/yuzhi/internal/stamps"
)

// cannotStop says why no process can be stopped here.
const cannotStop = "Windows has no signal that stops a process and lets it go on"

// stopSignal and resumeSignal are not sent, as Options.Validate refuses what asks for them.
const stopSignal, resumeSignal = syscall.Signal(0), syscall.Signal(0)

// wallClock is the time of day to the microsecond. That of package time moves in steps of up to
// 16 ms on Windows.
func wallClock() time.Time {
	var t windows.Filetime
	windows.GetSystemTimePreciseAsFileTime(&t)
	return time.Unix(0, t.Nanoseconds())
}

// stopwatch reads a clock that shows how long one decision takes. The monotonic clock of package
// time moves in steps here, too.
func stopwatch() time.Duration { return time.Duration(stamps.Now()) }
