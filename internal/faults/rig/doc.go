// Package rig is what the tests of faults share: a fleet of limiters on one Redis, each with a client of its own as if
// it were a process, load on them, a record of every request that they decided, and the oracles of a fault:
//
//   - W: CheckBound, the audit of every admission over all windows;
//   - C: CheckConserved, no limiter lost or forged a token;
//   - K: Balance, what the bucket in Redis has and what it counts as leased;
//   - T: Seen, how long requests took and what became of them;
//   - G: AwaitRecovery, the rate is reached again.
//
// Everything reads time from the time package alone, so a fleet on another store runs inside testing/synctest too.
package rig

import (
	"runtime"
	"testing"
	"time"
)

// patience is how long Eventually polls: far beyond what anything here takes on a busy machine, so that its end
// means "never" and not "slowly".
const patience = 60 * time.Second

// Eventually polls cond until it is true, and fails t where that takes a minute.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > patience {
			stacks := make([]byte, 1<<20)
			t.Fatalf("never came: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(2 * time.Millisecond) // the pace of polling
	}
}
