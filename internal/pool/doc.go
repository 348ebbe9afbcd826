// Package pool holds the tokens that a process has leased for one key, and hands them out without a lock.
// Key.Allow of package hybrid inlines Begin, Pin, TakeAt and MissAt.
//
//   - pool.go: the takes
//   - owner.go: the methods of the Client that owns the Pool
//   - stripes.go: the part of the tokens that each P takes from under contention
//   - pin_runtime.go, pin_portable.go: the number of the present P
//
// Rules: docs/protocol.md sections 5.5, 5.7 and 9.1.
package pool
