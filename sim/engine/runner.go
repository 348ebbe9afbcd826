package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInterrupted is wrapped by the error of a run that its context ended; the Report is of the
// replications that had ended by then.
var ErrInterrupted = errors.New("sim: interrupted")

// Runner runs scenarios. The zero value is a good default. It may be shared between goroutines.
type Runner struct {
	Parallel   int     // replications at one time; 0 or less means GOMAXPROCS. It does not change the Report
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
func (r Runner) replicate(whole context.Context, s *scenario.Scenario) ([]report.Outcome, error) {
	ctx, stop := context.WithCancelCause(whole)
	defer stop(nil)
	all := make([]*report.Outcome, s.Reps)
	meter := progress{tell: r.Progress, done: make([]float64, s.Reps)}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(r.Parallel, s.Reps) {
		wg.Go(func() {
			for rep := range next {
				o, err := replicateOnce(ctx, s, random.SeedOf(s.Seed, rep), func(part float64) { meter.report(rep, part) })
				if err != nil {
					stop(err)
					continue
				}
				all[rep] = o
				meter.report(rep, 1)
			}
		})
	}
	for rep := range s.Reps {
		select {
		case next <- rep:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	var ended []report.Outcome
	for _, o := range all {
		if o != nil {
			ended = append(ended, *o)
		}
	}
	if len(ended) == s.Reps {
		return ended, nil
	}
	err := context.Cause(ctx)
	if whole.Err() != nil && err == context.Cause(whole) { // and not what went wrong in a replication
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return ended, fmt.Errorf("%w; %d of %d replications had ended", err, len(ended), s.Reps)
}

// replicateOnce runs one replication. A panic of the code under test says which one it was.
func replicateOnce(ctx context.Context, s *scenario.Scenario, seed uint64, tell func(float64)) (*report.Outcome, error) {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("sim: scenario %q with seed %d and one replication: %v", s.Name, seed, p))
		}
	}()
	w, err := newReplication(s, seed)
	if err != nil {
		return nil, err
	}
	if err := w.run(ctx, tell); err != nil {
		return nil, fmt.Errorf("seed %d: %w", seed, err)
	}
	o := w.outcome()
	return &o, nil
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
