// Package lease has the language that a rate limiter and a store speak: limits, policies, messages, and
// the Store interface. docs/protocol.md specifies the protocol: many processes share one token bucket,
// and each leases tokens from it in batches and spends them without asking.
//
// Most programs want package hybrid, which names the types that they need too, such as Limit and Policy.
//
//   - Limit says how much. PerSecond, PerMinute, PerHour, Every, Sliding, Calendar and ParseLimit make
//     one.
//   - Policy says how to lease. Its zero value is a good default.
//   - Store is where buckets live. redisbucket.Store keeps them in Redis, and memory.Store, in the
//     package below this one, in the process. A program may bring a Store of its own: Request, Grant,
//     Config and State are the messages, and the errors tell the limiter what a failure means.
//
// Both sides of the protocol, the bucket and the process, are in internal/protocol. This package does no
// I/O and reads no clock.
package lease
