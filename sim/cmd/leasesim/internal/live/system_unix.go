//go:build unix

package live

import (
	"syscall"
	"time"
)

// cannotStop says why no process can be stopped here; empty: it can.
const cannotStop = ""

// stop keeps the process from running until resume.
func (p *process) stop() error { return p.signal(syscall.SIGSTOP) }

// resume lets the process go on, where it is stopped.
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

// wallClock is the time of day to the microsecond.
func wallClock() time.Time { return time.Now() }

var loaded = time.Now()

// stopwatch reads a clock that shows how long one decision takes.
func stopwatch() time.Duration { return time.Since(loaded) }
