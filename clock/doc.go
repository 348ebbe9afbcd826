// Package clock is where the rest of this module gets its time from. The same code then runs
// against the machine's clock in production, a clock that a test moves by hand, and a clock that is
// wrong.
//
// Which one do I want?
//
//   - [System] in production, and in tests that run inside a testing/synctest bubble: there it
//     follows the bubble's fake time.
//   - [Manual] in a test or simulation that decides itself when time passes. It has no goroutine:
//     what falls due runs inside [Manual.Advance], in the same order in every run.
//   - [Skewed], over one of the others, to see what code does when its machine's clock is off, runs
//     fast or slow, or is set while it runs.
//
// Every clock reads monotonic [Instant] values. No reading is ever zero or negative, so the zero
// Instant can mean "unset". An Instant is only good for comparing with others of the same clock in
// the same process: send a time.Duration to another machine, never an Instant.
package clock
