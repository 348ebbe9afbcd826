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
// I/O and reads no clock. Which package imports which stands in internal/house, arrows.
//
// Another Kind of limit has its units in limit.go and limit_window.go here; its state and charges in
// internal/protocol, wherever Kind or Windowed is asked (window.go, bucket_window.go, limits.go, share.go
// and the client's sizes and waits); the same in redisbucket, whose scripts know kinds by number
// (window.lua, past.lua, kindCode in encode.go); and a bound in sim/audit and a central bucket in
// sim/rival. Kinds use the server's clock alone: no process's clock decides about a bucket.
package lease
