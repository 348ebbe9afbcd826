//go:build race

package lease

// raceEnabled makes the exhaustive tests smaller: the race detector makes them ten times slower and finds
// nothing in code that runs on one goroutine.
const raceEnabled = true
