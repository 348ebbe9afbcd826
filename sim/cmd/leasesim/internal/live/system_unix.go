//go:build unix

package live

import (
	"syscall"
	"time"
)

// cannotStop is the reason why this system cannot stop processes; empty if it can.
const cannotStop = ""

// The signals that stop and resume a process.
const stopSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// wallClock returns the time of day to the microsecond.
func wallClock() time.Time { return time.Now() }

var loaded = time.Now()

// stopwatch reads a clock that is fine enough for one decision.
func stopwatch() time.Duration { return time.Since(loaded) }
