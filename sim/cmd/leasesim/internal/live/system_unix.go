//go:build unix

package live

import (
	"syscall"
	"time"
)

// cannotStop says why no process can be stopped here; empty: it can.
const cannotStop = ""

// The signals that keep a process from running, and let it go on.
const stopSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// wallClock is the time of day to the microsecond.
func wallClock() time.Time { return time.Now() }

var loaded = time.Now()

// stopwatch reads a clock that shows how long one decision takes.
func stopwatch() time.Duration { return time.Since(loaded) }
