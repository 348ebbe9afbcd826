// Package network holds tests only: what a fleet of limiters does while the network or the server fails, against real
// redis-server processes and through a proxy that loses, delays, repeats and forges replies, and, where the figures
// must be exact, in virtual time against the reference bucket. The rows that the tests are named after are those of
// docs/faults.md.
package network
