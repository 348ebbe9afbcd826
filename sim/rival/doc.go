// Package rival holds the algorithms that a simulation runs beside the leases on the same requests:
// what a user of this library would otherwise have. [New] makes one by its name.
//
// # One limit for all
//
// A limit is a rate R = Tokens/Per and a Burst, and every algorithm gets the same one: it admits
// Burst at once after a rest, and R in the long run. An algorithm that knows only a quota per
// window takes Burst as the quota and Burst/R, the time in which a bucket fills, as the window.
// Tokens per Per would be another limit: 100/s with a burst of 1000 would lose its burst, and
// 1000/s with a burst of 10 would admit 1000 at once. With this choice the sliding windows keep
//
//	admitted(t, t+w] <= Burst + R*w
//
// by the store's time, as the bucket does. What they lose is the refill in between: after a burst
// the log admits nothing for a whole window. A fixed window admits up to Burst more, across its
// boundary.
//
// Decisions, rates and bursts are in whole numbers without rounding. Time is in microseconds: two
// requests in the same one are simultaneous. New refuses the few valid limits that an algorithm
// cannot hold exactly, and says why. A counter's cell, for one, must be a microsecond at least.
//
// # Whose time
//
// The algorithms that ask a store for each request come twice. By the store's time there is one
// clock, which is right. By the caller's time (names that end in _client) the process sends its own
// along, and the store does what the usual script does with it:
//
//   - central: the bucket's time never goes back. A clock that is d ahead brings R*d once after
//     each rest, a burst at most. From then on tokens flow in by the fastest clock, and the slower
//     processes get what it leaves.
//   - sliding_log: a fast clock removes what the others' windows still hold, on every call, so that
//     even R is exceeded.
//   - fixed_window, sliding_cells: each clock counts in its own windows, and clocks a window or
//     more apart each have a whole quota.
//
// A key in the store lives as long as its last writer can need it: Burst/R, and a cell longer for
// sliding cells. With right clocks this changes nothing. With wrong ones it ends the time for which
// a clock that was far ahead blocks the others.
//
// # What is compared
//
// An admission counts when the request arrives. Two algorithms that users know are therefore not
// here. GCRA admits exactly what the central bucket does; a test proves it. The leaky bucket as a
// queue admits that too, of requests for one token, and delays what it admits.
//
// A process that restarts under its old number finds what it kept: local algorithms lose nothing.
package rival
