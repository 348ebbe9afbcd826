// Package pool holds the tokens that this process has leased for one key, and hands them out without
// a lock. Key.Allow of package hybrid has Begin, Pin, TakeAt and MissAt inline.
//
//   - pool.go: takes. owner.go: what the Client that has the Pool does with it. stripes.go: takes of
//     several Ps at once. pin_runtime.go, pin_portable.go: which of the stripes is mine.
//
// Rules: docs/protocol.md sections 5.5, 5.7 and 9.1.
package pool
