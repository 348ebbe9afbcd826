//go:build !race

package testkit

const (
	// RaceEnabled reports whether the race detector is on.
	RaceEnabled = false
	// Slowdown is about the factor by which the race detector slows a computation: 1 without the detector. A
	// test on one goroutine, in which the detector finds nothing, divides its work by Slowdown.
	Slowdown = 1
)
