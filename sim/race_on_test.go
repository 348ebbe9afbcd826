//go:build race

package sim

// slowdown is about how much longer the race detector makes a simulation take.
const slowdown = 10
