//go:build race

package testkit

const (
	// RaceEnabled says whether the race detector is on.
	RaceEnabled = true
	// Slowdown is about the factor by which the race detector slows a computation; 1 without it. A test on
	// one goroutine, where the detector finds nothing, does less by this factor.
	Slowdown = 10
)
