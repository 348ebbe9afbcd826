//go:build !race

package testkit

const (
	// RaceEnabled says whether the race detector watches.
	RaceEnabled = false
	// Slowdown is about how much longer the race detector makes a computation take; 1 without it. A
	// test that runs on one goroutine, where it finds nothing, does that much less.
	Slowdown = 1
)
