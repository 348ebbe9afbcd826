//go:build unix

package live

import (
	"syscall"
	"time"
)

// cannotStop is the reason why this system cannot stop processes; empty if it can.
const cannotStop = ""

// stopSignal stops a process, and resumeSignal resumes it.
const stopSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// wallClock returns the time of day to the microsecond.
func wallClock() time.Time { return time.Now() }
