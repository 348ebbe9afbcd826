// Package protocol implements the lease protocol of docs/protocol.md. Bucket is the central bucket of one
// key, and Client is one process's side of one key. The code of Bucket does not use the code of Client.
//
// The package starts no goroutine, does no I/O and reads no clock. The caller passes the time as an argument
// and randomness as a seed. So simulator and tests run the production code in virtual time.
package protocol
