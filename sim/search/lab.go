package search

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yuzhi-go/yuzhi/sim"
)

// Run simulates one scenario. It is called by several goroutines; the method of a sim.Runner with
// Parallel 1 is one.
type Run func(ctx context.Context, s sim.Scenario) (sim.Report, error)

// lab runs simulations side by side, each once. It is used by one goroutine.
type lab struct {
	run      Run
	parallel int // at one time; 0 or less means GOMAXPROCS. It does not change what is returned
	known    map[string]*sim.Report
	requests int64 // simulated so far
	began    time.Time
}

func newLab(run Run, parallel int) *lab {
	if parallel <= 0 {
		parallel = runtime.GOMAXPROCS(0)
	}
	return &lab{run: run, parallel: parallel, known: map[string]*sim.Report{}, began: time.Now()}
}

// all returns the scenarios' reports, in their order. Those that are not known yet run, the first
// ones first. progress, unless nil, is told how many of these have ended, one call at a time.
//
// When ctx ends, nothing further starts, what has not ended is nil, and the error wraps
// sim.ErrInterrupted. When a run fails, there are no reports, and the error says where, by name.
func (l *lab) all(ctx context.Context, scenarios []sim.Scenario, name func(i int) string,
	progress func(done, of int)) ([]*sim.Report, error) {
	keys := make([]string, len(scenarios))
	var fresh []int
	for i, s := range scenarios {
		keys[i] = fmt.Sprint(s.Hash(), " ", s.Seed)
		if _, ok := l.known[keys[i]]; !ok {
			l.known[keys[i]] = nil
			fresh = append(fresh, i)
		}
	}
	var mu sync.Mutex
	ended := 0
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(l.parallel)
	for _, i := range fresh {
		group.Go(func() error {
			if running.Err() != nil {
				return nil
			}
			r, err := l.run(running, scenarios[i])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, sim.ErrInterrupted):
				return nil
			case err != nil:
				return fmt.Errorf("search: %s: %w", name(i), err)
			}
			l.known[keys[i]] = &r
			l.requests += r.Machine.Requests
			if ended++; progress != nil {
				progress(ended, len(fresh))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	reports, missing := make([]*sim.Report, len(scenarios)), 0
	for i, key := range keys {
		if reports[i] = l.known[key]; reports[i] == nil {
			delete(l.known, key)
			missing++
		}
	}
	if missing > 0 {
		return reports, fmt.Errorf("search: %w: %d of %d simulations are finished",
			sim.ErrInterrupted, len(scenarios)-missing, len(scenarios))
	}
	return reports, nil
}

// machine is what a report says of the machine that made it.
func (l *lab) machine() sim.Machine {
	elapsed := time.Since(l.began)
	return sim.Machine{
		Elapsed:      elapsed,
		Requests:     l.requests,
		RequestsPerS: float64(l.requests) / max(elapsed.Seconds(), 1e-9),
		Parallel:     l.parallel,
		GoVersion:    runtime.Version(),
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
}
