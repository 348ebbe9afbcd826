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
// I/O and reads no clock. The table arrows in internal/house lists the allowed imports.
//
// To add a Kind of limit, search for Kind, Windowed and slides: units are in limit.go, limit_window.go and
// scale.go here; state and charges in internal/protocol (window.go, the bucket_ files, limits.go, share.go,
// heard.go, the client's sizes and waits); the same in redisbucket, whose scripts know kinds by number
// (kindCode in encode.go, parse.go, l.kind in the scripts); a bound in sim/audit, a central bucket in
// sim/rival, books in sim/engine. Kinds use the server's clock alone.
package lease
