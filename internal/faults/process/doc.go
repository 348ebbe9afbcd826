// Package process tests what happens when the processes of a fleet fail, and not Redis or the network: a process is
// stopped for longer than its lease, killed, cloned, starved of CPU, or closed in the middle of a lease call, and
// there are more of them than the burst has tokens. It has tests only: rows 29, 30, 31, 32, 35 and 37 of
// docs/faults.md.
//
// The tests of stops and kills run real processes, which are this test binary again, against a redis-server of their
// own. Every admission is stamped before and after the call on the clock that all processes share, in memory that
// outlives a kill, and the parent looks at all windows of time.
package process
