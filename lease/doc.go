// Package lease is the protocol by which processes lease tokens from one token bucket, free of I/O, of goroutines
// and of any clock: time comes in as an argument and randomness as a seed, so that a simulator runs the very code
// that production runs.
//
// # Which type do I want
//
// Most programs want package hybrid, and of this one Limit and Policy, which hybrid names too, and perhaps
// MemoryStore, which takes the place of Redis in tests and in services of one process. For tools and for other shells:
//
//   - Limit says how much, with PerSecond, PerMinute, PerHour, Every and ParseLimit to make one; Policy how to lease.
//   - Store is where buckets live. redisbucket.Store keeps them in Redis. Exchange executes lease calls and
//     Configure everything else (Op).
//   - Holder is one process's side of one bucket: when to call, how much to ask for, when to deny. Its Pool is what
//     requests take from, its Holding the half of the protocol that must be exact.
//   - Bucket is the other side: the reference that the Lua scripts of redisbucket agree with to the last bit.
//
// What keeps the bound is written at Bucket, what keeps the tokens counted at Holding and Account, and what makes a
// take cheap at Pool.
package lease
