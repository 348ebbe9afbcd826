package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInterrupted is wrapped by the error of a run that its context ended. The Report is of the
// replications that had ended by then.
var ErrInterrupted = errors.New("sim: interrupted")

// Runner runs scenarios. The zero value is a good default. It may be shared between goroutines.
type Runner struct {
	Parallel   int     // replications at one time; below 1 means GOMAXPROCS; the Report is the same
	Confidence float64 // of the intervals; 0 means 0.95
	// Progress is told now and then which part of all replications is done, from 0 to 1; nil for
	// nobody. It may be called from any goroutine, one at a time.
	Progress func(done float64)
}

// Run simulates s. The error wraps scenario.ErrInvalidScenario, ErrInterrupted or ErrNotConserved.
func (r Runner) Run(ctx context.Context, s scenario.Scenario) (report.Report, error) {
	if err := s.Validate(); err != nil {
		return report.Report{}, err
	}
	s = s.Defaults()
	if r.Parallel < 1 {
		r.Parallel = runtime.GOMAXPROCS(0)
	}
	if r.Confidence == 0 {
		r.Confidence = 0.95
	}
	began := time.Now()
	outcomes, err := r.replicate(ctx, &s)
	sum := report.Of(&s, outcomes, r.Confidence)
	sum.Machine.Finish(time.Since(began), min(r.Parallel, s.Reps))
	return sum, err
}

// replicate runs the replications, some at a time, and returns those that ended, in their order.
// The error is the first that there was.
func (r Runner) replicate(ctx context.Context, s *scenario.Scenario) (ended []report.Outcome, err error) {
	all := make([]*report.Outcome, s.Reps)
	meter := progress{tell: r.Progress, done: make([]float64, s.Reps)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.Parallel)
	for rep := range s.Reps {
		group.Go(func() error {
			tell := func(part float64) { meter.report(rep, part) }
			o, err := replicateOnce(ctx, s, random.SeedOf(s.Seed, rep), tell)
			if err == nil {
				all[rep] = &o
				tell(1)
			}
			return err
		})
	}
	err = group.Wait()
	for _, o := range all {
		if o != nil {
			ended = append(ended, *o)
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; %d of %d replications had ended", err, len(ended), s.Reps)
	}
	return ended, err
}

// replicateOnce runs one replication. A panic of the code under test says which one it was.
func replicateOnce(
	ctx context.Context, s *scenario.Scenario, seed uint64, tell func(part float64),
) (report.Outcome, error) {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("sim: scenario %q with seed %d and one replication: %v", s.Name, seed, p))
		}
	}()
	if ctx.Err() != nil {
		return report.Outcome{}, interrupted(ctx)
	}
	r, err := newReplication(s, seed)
	if err != nil {
		return report.Outcome{}, err
	}
	if err := r.run(ctx, tell); err != nil {
		return report.Outcome{}, err
	}
	return r.outcome(), nil
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
}

// progress sums up how far all replications are.
type progress struct {
	mu   sync.Mutex
	tell func(float64)
	done []float64
}

func (p *progress) report(rep int, part float64) {
	if p.tell == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[rep] = part
	total := 0.0
	for _, x := range p.done {
		total += x
	}
	p.tell(total / float64(len(p.done)))
}
