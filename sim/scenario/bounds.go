package scenario

import (
	"time"
)

// DurationMax is the duration of the longest run, and the largest duration in a scenario.
const DurationMax = 30 * 24 * time.Hour

// The bounds of fields refuse typing errors that would make a run endless or too large for memory.
const (
	processesMax = 100_000
	meanMin      = time.Microsecond // shortest mean of recurring times, so that simulated time advances
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm: at 1e6, a clock stands still or runs twice as fast
	alphaMax     = 100
)
