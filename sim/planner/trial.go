package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	known    map[string]*sim.Report // by hash and seed; looked up, never ranged over
	requests int64
	progress func(done, of int)
}

// all runs the jobs that have not run before, and returns all reports in order. When ctx ends, what is missing is nil, and
// the error wraps sim.ErrInterrupted.
func (l *lab) all(ctx context.Context, jobs []job) ([]*sim.Report, error) {
	names := make([]string, len(jobs))
	var fresh []int // the first job of each name that is not known
	for i, j := range jobs {
		names[i] = fmt.Sprint(j.s.Hash(), " ", j.s.Seed)
		if _, ok := l.known[names[i]]; !ok && !slices.Contains(names[:i], names[i]) {
			fresh = append(fresh, i)
		}
	}
	got := make([]*sim.Report, len(fresh))
	var mu sync.Mutex
	ended := 0
	err := sweep.Each(ctx, l.parallel, len(fresh), func(k int) error {
		j := jobs[fresh[k]]
		r, err := l.run(ctx, j.s)
		if errors.Is(err, sim.ErrInterrupted) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("planner: target %v, ttl %v, overcommit %d, burst %d: %w", j.choice.target, j.choice.ttl, j.choice.overcommit, j.choice.burst, err)
		}
		got[k] = &r
		mu.Lock()
		defer mu.Unlock()
		if ended++; l.progress != nil {
			l.progress(ended, len(fresh))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k, r := range got {
		if r != nil {
			l.known[names[fresh[k]]] = r
			l.requests += r.Machine.Requests
		}
	}
	reports := make([]*sim.Report, len(jobs))
	for i, name := range names {
		reports[i] = l.known[name]
	}
	if done := slices.DeleteFunc(slices.Clone(reports), func(r *sim.Report) bool { return r == nil }); len(done) < len(jobs) {
		return reports, fmt.Errorf("planner: %w: %d of %d simulations are finished", sim.ErrInterrupted, len(done), len(jobs))
	}
	return reports, nil
}

// freshSeed is a seed whose replications are unrelated to those of seed: it is that of a replication which no search
// reaches.
func freshSeed(seed uint64) uint64 { return random.SeedOf(seed, 1<<30) }
