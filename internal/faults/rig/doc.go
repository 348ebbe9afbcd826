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
