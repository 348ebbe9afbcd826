// Package lease defines the types between a rate limiter and a store: limits, policies, messages, and the
// Store interface. docs/protocol.md specifies the protocol: many processes share one token bucket, and each
// leases tokens from it in batches and spends them without a call.
//
// Most programs need only package hybrid, which also exports types such as Limit and Policy.
//
//   - Limit is a rate and a burst. PerSecond, PerMinute, PerHour, Every, Sliding, Calendar and ParseLimit
//     make one.
//   - Policy tunes leasing. Its zero value is a good default.
//   - Store keeps the buckets: redisbucket.Store in Redis, and memory.Store, in the package below this one,
//     in the process. A program may implement its own Store: Request, Grant, Config and State are the
//     messages, and the errors tell the limiter the meaning of a failure.
//
// Both sides of the protocol, the bucket and the process, are in internal/protocol. This package does no I/O
// and reads no clock.
package lease
