// Package lease defines the types between a rate limiter and a store: limits, policies, messages, and the
// Store interface. docs/protocol.md specifies the protocol: many processes share one token bucket, and each
// process leases tokens from the bucket in batches and spends them without a call.
//
// Most programs need only package hybrid, which also exports types such as Limit and Policy.
//
//   - Limit is a rate and a burst. PerSecond, PerMinute, PerHour, Every, Sliding, Calendar and ParseLimit
//     make a Limit.
//   - Policy tunes leasing. The zero Policy is a good default.
//   - Store keeps the buckets: redisbucket.Store in Redis, and memory.Store, of package lease/memory, in the
//     process. A program may implement its own Store: Request, Grant, Config and State are the messages, and
//     the errors of package lease report the meaning of a failure to the limiter.
//
// internal/protocol implements the bucket and the process. Package lease does no I/O and reads no clock.
package lease
