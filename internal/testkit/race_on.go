//go:build race

package testkit

// RaceEnabled says whether the race detector watches. It makes code ten times slower, so tests that
// run on one goroutine, where it finds nothing, do less under it.
const RaceEnabled = true
