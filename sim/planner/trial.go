package planner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/sweep"
)

// trial is a choice and what a simulation of it showed.
type trial struct {
	choice
	report sim.Report
	// means and surely are the least margins of all targets at the mean and at the pessimistic end; hopes is that at the
	// optimistic one.
	means, surely, hopes float64
}

func (t *trial) calls() float64 { return t.report.CallsPerS.Mean }

// job is one simulation.
type job struct {
	choice choice
	s      sim.Scenario // with the choice, an effort and a seed
}

// lab runs simulations, each once.
type lab struct {
	run      sweep.Run
	parallel int
	known    map[string]sim.Report // by hash and seed; looked up, never ranged over
	requests int64
	progress func(done, of int)
}

// all runs the jobs and returns their reports in order. When ctx ends, what is missing is nil, and the error wraps
// sim.ErrInterrupted.
func (l *lab) all(ctx context.Context, jobs []job) ([]*sim.Report, error) {
	reports := make([]*sim.Report, len(jobs))
	names := make([]string, len(jobs))
	first := make(map[string]int, len(jobs)) // of equal jobs one runs
	for i, j := range jobs {
		names[i] = fmt.Sprint(j.s.Hash(), " ", j.s.Seed)
		if _, ok := first[names[i]]; !ok {
			first[names[i]] = i
		}
	}
	var mu sync.Mutex
	ended := 0
	err := sweep.Each(ctx, l.parallel, len(jobs), func(i int) error {
		var r sim.Report
		var err error
		if first[names[i]] == i {
			mu.Lock()
			known, ok := l.known[names[i]]
			mu.Unlock()
			if r = known; !ok {
				if r, err = l.run(ctx, jobs[i].s); err == nil {
					mu.Lock()
					l.known[names[i]] = r
					l.requests += r.Machine.Requests
					mu.Unlock()
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, sim.ErrInterrupted):
			return nil
		case err != nil:
			return fmt.Errorf("planner: %v: %w", jobs[i].choice, err)
		}
		ended++
		if l.progress != nil {
			l.progress(ended, len(jobs))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	missing := 0
	for i, name := range names {
		if r, ok := l.known[name]; ok {
			reports[i] = &r
		} else {
			missing++
		}
	}
	if missing > 0 {
		return reports, fmt.Errorf("planner: %w: %d of %d simulations are finished", sim.ErrInterrupted, len(jobs)-missing, len(jobs))
	}
	return reports, nil
}

// freshSeed is a seed none of whose replications is one of the given seed's.
func freshSeed(seed uint64, reps int) uint64 {
	seen := make(map[uint64]bool, reps)
	for r := range reps {
		seen[random.SeedOf(seed, r)] = true
	}
	for try := 1 << 30; ; try++ {
		fresh := random.SeedOf(seed, try)
		disjoint := true
		for r := range reps {
			disjoint = disjoint && !seen[random.SeedOf(fresh, r)]
		}
		if disjoint {
			return fresh
		}
	}
}
