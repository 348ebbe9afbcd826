// Package protocol implements both sides of the lease protocol, which docs/protocol.md specifies: Bucket is
// the central bucket of one key, and Client is one process's side of one key.
//
// The package has no goroutine, does no I/O and reads no clock: time comes in as an argument and randomness
// as a seed. The simulator therefore runs the code of production, and a test decides when time passes. The
// bucket's side uses nothing of the client's.
//
// Package hybrid is the loop around the Clients of millions of keys, and ExampleClient shows it for one.
package protocol
