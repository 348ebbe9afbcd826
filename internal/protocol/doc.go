// Package protocol implements both sides of the lease protocol, which docs/protocol.md specifies: Bucket is
// the central bucket of one key, and Client is one process's side of one key.
//
// The package has no goroutine, does no I/O and reads no clock: the caller passes the time as an argument and
// randomness as a seed. The simulator therefore runs the production code, and a test decides when time
// passes. The code of Bucket does not use the code of Client.
//
// Package hybrid runs the Clients of millions of keys; ExampleClient runs one Client.
package protocol
