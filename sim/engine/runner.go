// Package engine simulates a fleet of limiters, event by event on a virtual clock: the processes, the
// network, and Redis. A Runner runs the replications of a Scenario, each with a seed of its own, and makes a
// Report.
//
// A replication hands each event to the type that owns the event's data: demand (requests), fleet (processes
// and their clocks), entry (one key in one process), network (batches of calls, connections, losses and
// delays), redis (shards, queues, faults), or books (decisions, the promise, every token).
//
// A scenario and a seed give the same Report to the last bit: one goroutine runs a replication, every stream
// of random numbers belongs to one entity, and the engine reads no wall clock. As in production, package
// protocol decides about tokens, and package node about calls.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// ErrInterrupted is wrapped by the error of a run whose context has ended. The run's Report covers the
// replications that ended before the context.
var ErrInterrupted = errors.New("sim: interrupted")

// Runner runs scenarios. The zero value is a good default. Goroutines may share a Runner.
type Runner struct {
	Parallel   int     // number of concurrent replications; below 1 means GOMAXPROCS; no effect on the Report
	Confidence float64 // confidence level of the intervals; 0 means 0.95
	// Run calls Progress from time to time with the finished fraction of all replications, from 0 to 1.
	// Progress may be nil. Any goroutine may make the calls, but only one at a time.
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

// replicate runs the replications, up to Parallel at a time, and returns the replications that ended, in
// order. The error is the first error of a replication.
func (r Runner) replicate(ctx context.Context, s *scenario.Scenario) (ended []report.Outcome, err error) {
	all := make([]*report.Outcome, s.Reps)
	var mu sync.Mutex
	done := make([]float64, s.Reps)
	tell := func(rep int, part float64) {
		if r.Progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		done[rep] = part
		total := 0.0
		for _, x := range done {
			total += x
		}
		r.Progress(total / float64(s.Reps))
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.Parallel)
	for rep := range s.Reps {
		group.Go(func() (err error) {
			seed := random.SeedOf(s.Seed, rep)
			all[rep], err = replicateOnce(ctx, s, seed, func(part float64) { tell(rep, part) })
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

// replicateOnce runs one replication. A panic of the simulated code reports the scenario and the seed.
func replicateOnce(
	ctx context.Context, s *scenario.Scenario, seed uint64, tell func(part float64),
) (*report.Outcome, error) {
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("sim: scenario %q with seed %d and one replication: %v", s.Name, seed, p))
		}
	}()
	r, err := newReplication(s, seed)
	if err != nil {
		return nil, err
	}
	for n := 0; r.goesOn(); n++ {
		r.step()
		if n%(1<<16) == 0 {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(ctx))
			}
			tell(r.part())
		}
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	o := r.outcome()
	tell(1)
	return &o, nil
}

// Requests returns the requests that a process of s makes in its first replication, or the requests of all
// processes if process is negative. s must be valid. The last request that waits in line comes a Deadline
// before the end of the run, so that every request gets an answer. The error wraps
// scenario.ErrInvalidScenario for an adversary, whose requests depend on answers, and if groups use different
// verbs.
func Requests(s scenario.Scenario, process int) (iter.Seq[scenario.TraceRequest], error) {
	s = s.Defaults()
	w, end := asked(s.Groups[0].Workload, &s), s.Duration
	for _, g := range s.Groups {
		its := *cmp.Or(g.Workload, &s.Workload)
		if asked(g.Workload, &s) != w || its.Kind == scenario.Adversary {
			return nil, fmt.Errorf("%w: workload.kind is %s, must be one whose requests do not depend on answers, "+
				"with one verb for all groups", scenario.ErrInvalidScenario, its.Kind)
		}
	}
	if w.Verb == scenario.VerbWait && s.Workload.Kind != scenario.Replay {
		end -= w.Deadline
	}
	if _, err := newReplication(&s, random.SeedOf(s.Seed, 0)); err != nil {
		return nil, err
	}
	return func(yield func(scenario.TraceRequest) bool) {
		r, _ := newReplication(&s, random.SeedOf(s.Seed, 0))
		r.requests(process, int64(end), yield)
	}, nil
}

// Record returns s with a replay of Requests as its workload, which programs can play, too.
func Record(s scenario.Scenario) (scenario.Scenario, error) {
	s = s.Defaults()
	requests, err := Requests(s, -1)
	if err != nil {
		return s, err
	}
	w := asked(s.Groups[0].Workload, &s)
	w.Kind, w.Trace = scenario.Replay, &scenario.Trace{Keys: s.Keys.Count, Requests: slices.Collect(requests)}
	for i := range s.Groups {
		w.Trace.Processes += s.Groups[i].Count
		s.Groups[i].Skew, s.Groups[i].Workload = 0, nil // the trace has the groups' workloads
	}
	s.Workload = w.Defaults(s.Duration)
	return s, nil
}

// asked returns the fields of a group's workload that say how the group makes requests, without their times.
// own is nil for a group that uses the workload of s.
func asked(own *scenario.Workload, s *scenario.Scenario) scenario.Workload {
	w := cmp.Or(own, &s.Workload)
	return scenario.Workload{Verb: w.Verb, Deadline: w.Deadline, Actual: w.Actual, Hold: w.Hold}
}
