package scenario

import (
	"time"
)

// DurationMax is the longest run, and the longest time that anything in it may take.
const DurationMax = 30 * 24 * time.Hour

// These and the bounds in the checks below keep a slip of the pen from a run that never ends or
// does not fit memory.
const (
	processesMax = 100_000
	meanMin      = time.Microsecond // of what repeats itself, so that simulated time goes on
	offsetMax    = 100 * 365 * 24 * time.Hour
	driftMax     = 1e6 // ppm; a clock that stands still, or runs twice as fast
	alphaMax     = 100
)
