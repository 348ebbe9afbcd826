package search

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// fleet is a scenario whose burst allows any target: 2 s at a quarter of the burst.
func fleet() sim.Scenario {
	return sim.Scenario{
		Name:     "fleet",
		Seed:     3,
		Reps:     8,
		Duration: 10 * time.Second,
		Limits:   []lease.Limit{lease.PerSecond(1000).WithBurst(8000)},
		Policy:   lease.Policy{Target: 100 * time.Millisecond, Fallback: lease.FallbackDeny},
		Groups:   []sim.Group{{Name: "all", Count: 20}},
	}.Defaults()
}

// truth has the means that a made-up simulator shows of a scenario.
type truth struct {
	falseRejects, calls, admitted, exceeded, redisCPU float64
	faultStock                                        float64 // tokens; one bucket admits 1000 a second
}

// world makes up a simulator: f is the truth, and every replication adds noise to its false rejects
// that depends on the seed alone, as with common random numbers.
type world struct {
	f     func(s sim.Scenario) truth
	noise float64 // a standard deviation, of a run of ten seconds
	// before, if set, is called first; the run returns its error.
	before func(s sim.Scenario) error

	mu   sync.Mutex
	runs []sim.Scenario
}

func (w *world) run(_ context.Context, s sim.Scenario) (sim.Report, error) {
	w.mu.Lock()
	w.runs = append(w.runs, s)
	w.mu.Unlock()
	if w.before != nil {
		if err := w.before(s); err != nil {
			return sim.Report{}, err
		}
	}
	x := w.f(s)
	r := sim.Report{Seed: s.Seed, Reps: s.Reps, DurationS: s.Duration.Seconds(), Confidence: 0.95}
	luck := rand.New(rand.NewPCG(s.Seed, 0))
	same := func(v float64) sim.Figure {
		return sim.Figure{Mean: v, Low: v, High: v, Worst: v, Values: slices.Repeat([]float64{v}, s.Reps)}
	}
	f := &r.FalseRejectRatio
	for range s.Reps {
		v := x.falseRejects + w.noise*10/s.Duration.Seconds()*luck.NormFloat64() // shorter runs are noisier
		f.Values = append(f.Values, v)
		f.Mean += v / float64(s.Reps)
	}
	half := 0.0
	if s.Reps > 1 {
		half = f.Minus(sim.Figure{Values: make([]float64, s.Reps)}, 0.95).High - f.Mean
	}
	f.Low, f.High, f.Worst = f.Mean-half, f.Mean+half, f.Mean
	r.CallsPerS, r.AdmittedVsCentral, r.RedisCPU = same(x.calls), same(x.admitted), same(x.redisCPU)
	r.FaultStock, r.CentralAdmitted = same(x.faultStock), same(1000*(s.Duration-s.Warmup).Seconds())
	r.BoundExceededBy = sim.Figure{Mean: x.exceeded / 2, Worst: x.exceeded}
	r.Machine.Requests = 1000
	return r, nil
}

// ask plans for a question in a made-up world.
func ask(t *testing.T, w *world, q Question) (Plan, error) {
	t.Helper()
	return Lab{Run: w.run, Parallel: 1}.Plan(t.Context(), q)
}

// mustFind is ask for a question that has an answer.
func mustFind(t *testing.T, w *world, q Question) Plan {
	t.Helper()
	p, err := ask(t, w, q)
	ok := err == nil && p.Verdict == Found && p.Chosen != nil && p.Chosen.Meets
	testkit.Must(t, ok, "%v: %+v", err, p)
	return p
}

// mustNotFind is ask for a question that has none.
func mustNotFind(t *testing.T, w *world, q Question) Plan {
	t.Helper()
	p, err := ask(t, w, q)
	ok := errors.Is(err, ErrInfeasible) && p.Verdict == Infeasible && p.Chosen == nil && p.Miss != nil
	testkit.Must(t, ok, "%v: %+v", err, p)
	return p
}

func target(t *testing.T, p Policy) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(p.Target)
	testkit.NoErr(t, err)
	return d
}

// rising returns a world in which calls fall with the target and f gives the false rejects for it, in
// milliseconds.
func rising(f func(ms float64) float64) func(sim.Scenario) truth {
	return func(s sim.Scenario) truth {
		tau := s.Policy.Target.Seconds()
		return truth{falseRejects: f(tau * 1000), calls: 20 / tau, admitted: 1}
	}
}

// interrupting returns a world.before that presses Ctrl-C in the middle of the run after the first n.
func interrupting(n int, cancel func()) func(sim.Scenario) error {
	return func(sim.Scenario) error {
		if n--; n >= 0 {
			return nil
		}
		cancel()
		return fmt.Errorf("%w: in the middle", sim.ErrInterrupted)
	}
}
