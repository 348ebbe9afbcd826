//go:build race

package scenfile

// raceEnabled makes the examples run once each: the race detector makes them ten times slower.
const raceEnabled = true
