package sim

import (
	"context"
	"errors"
)

// ErrInterrupted is wrapped by the error of a run that its context ended; the Report is of the replications that
// had ended by then.
var ErrInterrupted = errors.New("sim: interrupted")

// Runner runs scenarios. The zero value is a good default.
type Runner struct {
	Parallel   int     // replications at one time; 0 means GOMAXPROCS. It does not change the Report
	Confidence float64 // of the intervals; 0 means 0.95
	// Progress is told now and then which part of all replications is done, from 0 to 1; nil for nobody. It may be
	// called from any goroutine, one at a time.
	Progress func(done float64)
}

// Run simulates s with a Runner's defaults.
func Run(ctx context.Context, s Scenario) (Report, error) { return Runner{}.Run(ctx, s) }

// Run simulates s.
func (r Runner) Run(ctx context.Context, s Scenario) (Report, error) {
	return Report{}, errors.New("sim: not yet")
}
