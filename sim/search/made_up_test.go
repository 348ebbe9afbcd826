package search

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"gonum.org/v1/gonum/stat/distuv"
)

// fleet is a scenario whose burst allows any target: 2 s at a quarter of the burst.
func fleet() sim.Scenario {
	return sim.Scenario{
		Name:     "fleet",
		Seed:     3,
		Reps:     8,
		Duration: 10 * time.Second,
		Limits:   []lease.Limit{lease.PerSecond(1000).WithBurst(8000)},
		Policy:   lease.Policy{Fallback: lease.FallbackDeny},
		Groups:   []sim.Group{{Name: "all", Count: 20}},
	}.Defaults()
}

// truth is what a made-up simulator shows of a scenario in the mean.
type truth struct {
	falseRejects, calls, admitted, exceeded float64
}

// world makes up a simulator: f is the truth, and every replication adds noise to it that depends
// on its seed alone, as with common random numbers.
type world struct {
	f     func(s sim.Scenario) truth
	noise float64 // a standard deviation, as a part of the value
	// before, if set, is called first; an error is what the run returns.
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
	r := sim.Report{Seed: s.Seed, Reps: s.Reps, DurationS: s.Duration.Seconds(), WarmupS: s.Warmup.Seconds(), Confidence: 0.95}
	luck := rand.New(rand.NewPCG(s.Seed, 0))
	// Shorter runs are noisier.
	deviation := w.noise * (10 * time.Second).Seconds() / s.Duration.Seconds()
	var noise []float64
	for range s.Reps {
		noise = append(noise, 1+deviation*luck.NormFloat64())
	}
	figure := func(mean float64) sim.Figure {
		f := sim.Figure{}
		for _, n := range noise {
			f.Values = append(f.Values, mean*n)
			f.Mean += mean * n / float64(len(noise))
		}
		half := 0.0
		if s.Reps > 1 {
			squares := 0.0
			for _, v := range f.Values {
				squares += (v - f.Mean) * (v - f.Mean)
			}
			half = distuv.StudentsT{Sigma: 1, Nu: float64(s.Reps - 1)}.Quantile(0.975) * math.Sqrt(squares/float64(s.Reps-1)/float64(s.Reps))
		}
		f.Low, f.High, f.Worst = f.Mean-half, f.Mean+half, f.Mean
		return f
	}
	r.Offered = sim.Figure{Mean: 900 * (s.Duration - s.Warmup).Seconds()}
	r.FalseRejectRatio = figure(x.falseRejects)
	r.CallsPerS = sim.Figure{Mean: x.calls, Low: x.calls, High: x.calls, Worst: x.calls}
	for range s.Reps {
		r.CallsPerS.Values = append(r.CallsPerS.Values, x.calls)
	}
	r.AdmittedVsCentral = sim.Figure{Mean: x.admitted, Low: x.admitted, High: x.admitted}
	r.BoundExceededBy = sim.Figure{Mean: x.exceeded / 2, Worst: x.exceeded}
	r.Machine.Requests = int64(900 * s.Duration.Seconds() * float64(s.Reps))
	return r, nil
}

// ask plans for a question in a made-up world.
func ask(t *testing.T, w *world, q Question) (Plan, error) {
	t.Helper()
	return Planner{Run: w.run, Parallel: 1}.Plan(t.Context(), q)
}

// mustFind is ask for a question that has an answer.
func mustFind(t *testing.T, w *world, q Question) Plan {
	t.Helper()
	p, err := ask(t, w, q)
	if err != nil || p.Verdict != Found || p.Chosen == nil || !p.Chosen.Meets {
		t.Fatalf("%v: %+v", err, p)
	}
	return p
}

// mustNotFind is ask for a question that has none.
func mustNotFind(t *testing.T, w *world, q Question) Plan {
	t.Helper()
	p, err := ask(t, w, q)
	if !errors.Is(err, ErrInfeasible) || p.Verdict != Infeasible || p.Chosen != nil || p.Miss == nil {
		t.Fatalf("%v: %+v", err, p)
	}
	return p
}

func target(t *testing.T, p Policy) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(p.Target)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var _ Run = (&world{}).run
