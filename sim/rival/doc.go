// Package rival holds the algorithms that a simulation runs beside the leases, on the same requests: what a user of this
// library would otherwise have. [New] makes one by its name.
//
// # One limit for all
//
// A limit is a rate R = Tokens/Per with a Burst, and every algorithm gets both from the same limit, such that it admits
// Burst at once after a rest, and R in the long run. For the algorithms that know only a quota per window, that leaves one
// choice: the quota is Burst and the window is Burst/R, the time in which a bucket fills. The other one, Tokens per Per,
// would compare different limits: 100/s with a burst of 1000 would lose its burst, and 1000/s with a burst of 10
// would admit 1000 at once. With this choice the sliding windows keep
//
//	admitted(t, t+w] <= Burst + R*w                                                              (1)
//
// by the store's time, as the bucket does. What they lose is the refill in between: after a burst the log admits nothing for a
// whole window. A fixed window admits up to Burst more than (1), across its boundary.
//
// Decisions, and the rates and bursts they rest on, are in whole numbers without rounding. Time is in microseconds, so that
// two requests in the same one are simultaneous. New refuses the few valid limits that an algorithm cannot hold in this way,
// and says why: a counter's window or cell must be a microsecond at least, and its length, in lowest terms, a quotient of two
// numbers below 2^63.
//
// # Whose time
//
// The algorithms that ask a store for each request come twice. By the store's time there is one clock, which is right. By
// the caller's time (names in _client) the process sends its own along, and the store does what the usual script
// does with it:
//
//   - central: the bucket's time never goes back. A clock that is d ahead brings R*d, up to a burst, once after each
//     rest. From then on all that flows in does so by the fastest clock, and the slower processes get what it leaves.
//   - gcra: a fast clock leaves a time that lies in the future of the slower ones, which wait for it.
//   - leaky: what a fast clock has seen drained is gone.
//   - sliding_log: a fast clock removes what the others' windows still hold, on every call, so that R itself is exceeded.
//   - fixed_window, sliding_cells: each clock counts in its own windows, and clocks a window or more apart each have a
//     whole quota.
//
// A key in the store lives as long as its last writer can need it: Burst/R for a bucket, a log and a fixed window,
// a cell longer for cells, and until they are empty for GCRA and the queue. With right clocks this changes nothing. With
// others it ends the time for which one that was far ahead blocks the rest.
//
// GCRA and the central bucket decide the same by the store's time, whatever the limits and the requests are. By the callers'
// they part: in the bucket a slow process may spend what is left, while to GCRA a slow clock reads as a debt of R times what
// it is behind.
//
// # What is compared
//
// An admission counts when the request arrives. So the queue (leaky), whose point is to delay, has the figures of GCRA, and
// its price, a wait of up to Burst/R, is not among them. Fleet.RoundTrip says what each decision of the others costs that
// ask the store.
//
// A process that starts anew under its old number finds what it kept: nothing of the local algorithms is lost in a restart.
package rival
