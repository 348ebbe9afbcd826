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

func wrongText(kind error, text string) func(format string, args ...any) error {
	return func(format string, args ...any) error {
		return fmt.Errorf("%w %q: "+format, append([]any{kind, text}, args...)...)
	}
}

// Lab makes sweeps and plans.
type Lab struct {
	// Run simulates one scenario, as sim.Runner{Parallel: 1}.Run does. Several goroutines call Run.
	Run      func(ctx context.Context, s sim.Scenario) (sim.Report, error)
	Parallel int // number of simulations at one time, 0 for GOMAXPROCS; no figure depends on Parallel
	// Progress, unless nil, is called after each simulation with counts of the phase, one call at a time.
	Progress func(phase string, done, of int)
}

// Asked describes the simulated scenario.
type Asked struct {
	Scenario     string  `json:"scenario"`
	ScenarioHash string  `json:"scenario_hash"` // hash of the scenario as the caller gave it
	Seed         uint64  `json:"seed"`
	Reps         int     `json:"reps"`
	DurationS    float64 `json:"duration_s"`
	Confidence   float64 `json:"confidence"` // confidence level of the intervals; 0 if no simulation finished
}

func askedOf(s sim.Scenario) Asked {
	full := s.Defaults()
	return Asked{s.Name, s.Hash(), full.Seed, full.Reps, full.Duration.Seconds(), 0}
}

type trial struct {
	name     string // for errors
	scenario sim.Scenario
	report   *sim.Report // nil until the trial has run
	// The fields below belong to a plan.
	changes   int // 0 for the scenario's own policy, 1 for another policy
	targets   []Threshold
	times     int    // counted time of this run, divided by that of the scenario
	shorter   *trial // the same policy in a run of half the length; nil if none
	unsettled bool   // the fleet takes longer to settle than a run may last
	broken    string // name of a stress in Question.MustHold that the policy fails
	unclear   bool   // a longer run may show that the policy withstands the stress
}

// work runs the simulations of one question, each of them once.
type work struct {
	Lab
	known      map[string]*sim.Report // reports by hash and seed of the scenario; nil while a simulation runs
	confidence float64                // confidence level of the finished reports
	machine    sim.Machine
	began      time.Time
}

func (l Lab) begin() *work {
	if l.Parallel <= 0 {
		l.Parallel = runtime.GOMAXPROCS(0)
	}
	return &work{Lab: l, known: map[string]*sim.Report{}, began: time.Now()}
}

// simulate sets the reports of the trials. A scenario that has run before keeps its report. When ctx ends,
// simulate starts no further run, and the error wraps sim.ErrInterrupted. Errors name the failed trial.
func (w *work) simulate(ctx context.Context, phase string, trials []*trial) error {
	key := func(t *trial) string { return fmt.Sprint(t.scenario.Hash(), " ", t.scenario.Seed) }
	var fresh []*trial
	for _, t := range trials {
		if _, ok := w.known[key(t)]; !ok {
			w.known[key(t)] = nil
			fresh = append(fresh, t)
		}
	}
	var mu sync.Mutex
	ended := 0
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(w.Parallel)
	for _, t := range fresh {
		group.Go(func() error {
			if running.Err() != nil {
				return sim.ErrInterrupted
			}
			r, err := w.Run(running, t.scenario)
			if err != nil {
				return fmt.Errorf("search: %s: %w", t.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			w.known[key(t)] = &r
			w.machine.Requests += r.Machine.Requests
			w.confidence = r.Confidence
			if ended++; w.Progress != nil {
				w.Progress(phase, ended, len(fresh))
			}
			return nil
		})
	}
	err := group.Wait()
	w.machine.Finish(time.Since(w.began), w.Parallel)
	for _, t := range trials {
		t.report = w.known[key(t)]
	}
	if errors.Is(err, sim.ErrInterrupted) {
		err = fmt.Errorf("search: %w in phase %q", sim.ErrInterrupted, phase)
	}
	return err
}
