package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// surface executes a command line with a simulator that makes up its figures from the scenario.
func surface(ctx context.Context, f func(s sim.Scenario) (sim.Figures, error), args ...string) (ran []sim.Scenario, runners []sim.Runner, status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	var mu sync.Mutex
	p := program{args: args, simulate: func(runner sim.Runner, _ context.Context, s sim.Scenario) (sim.Report, error) {
		mu.Lock()
		defer mu.Unlock()
		ran, runners = append(ran, s), append(runners, runner)
		figures, err := f(s)
		s = s.Defaults()
		r := sim.Report{Seed: s.Seed, Reps: s.Reps, DurationS: s.Duration.Seconds(), Confidence: runner.Confidence, Figures: figures}
		r.Machine.Requests = 1000
		return r, err
	}}
	status = p.run(ctx, &out, &errs)
	return ran, runners, status, out.String(), errs.String()
}

// figures are those of a scenario in which calls are one over the target, and false rejects rise
// with it.
func figures(s sim.Scenario) (f sim.Figures, err error) {
	exactly := func(x float64) sim.Figure {
		f := sim.Figure{Mean: x, Low: x, High: x, Worst: x}
		for range s.Defaults().Reps {
			f.Values = append(f.Values, x)
		}
		return f
	}
	tau := s.Policy.Target.Seconds()
	f.FalseRejectRatio, f.CallsPerS, f.AdmittedVsCentral = exactly(tau/10), exactly(1/tau), exactly(1)
	return f, nil
}

func TestASweepRunsEveryPointWithTheFlagsOfAll(t *testing.T) {
	file := scenarioFile(t, small+"rivals: [fixed_window]\n")
	ran, runners, status, stdout, stderr := surface(t.Context(), figures, "sweep", "-f", file, "--set", "policy.ttl=1s", "--seed", "9", "--parallel", "2",
		"--vary", "policy.target=10ms,100ms,600ms", "--vary", "groups.web.count=1,2")
	if status != 0 || stderr != "" || len(ran) != 4 {
		t.Fatalf("status %d, %d runs, %s", status, len(ran), stderr)
	}
	for i, s := range ran {
		if s.Seed != 9 || s.Policy.TTL.String() != "1s" || len(s.Rivals) != 0 || runners[i].Parallel != 1 {
			t.Errorf("%+v by %+v", s, runners[i])
		}
	}
	for _, want := range []string{"small: a sweep\nhash ", "seed 9,", "base", "600ms", "invalid: policy.ttl: TTL is 1s, must be at least 2*Target (1.2s)", "The bound holds at every point that ran."} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestASweepHasObjectives(t *testing.T) {
	_, _, status, stdout, stderr := surface(t.Context(), figures, "sweep", "--vary", "policy.target=10ms,50ms", "--objectives", "calls_per_s:max", "--out", "json")
	var r search.SweepReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("status %d, %s: %v", status, stderr, err)
	}
	if !r.Points[0].Front || r.Points[1].Front || r.Points[1].Differences["calls_per_s"].Mean > -79 {
		t.Errorf("%+v", r)
	}
}

func TestAnInterruptedSweepShowsWhatHasFinished(t *testing.T) {
	for _, finished := range []int{0, 2} {
		ctx, interrupt := context.WithCancel(t.Context())
		n := 0
		_, _, status, stdout, stderr := surface(ctx, func(s sim.Scenario) (sim.Figures, error) {
			if n++; n > finished {
				interrupt()
				return sim.Figures{}, fmt.Errorf("%w: in the middle", sim.ErrInterrupted)
			}
			return figures(s)
		}, "sweep", "--parallel", "1", "--vary", "policy.target=10ms,20ms,30ms,40ms")
		interrupt()
		if status != exitInterrupted || !strings.Contains(stderr, fmt.Sprintf("%d of 4 simulations are finished", finished)) {
			t.Errorf("status %d, %s", status, stderr)
		}
		if shows := strings.Contains(stdout, "Interrupted: 2 of 4 points did not run."); shows != (finished == 2) || finished == 0 && stdout != "" {
			t.Errorf("after %d points:\n%s", finished, stdout)
		}
	}
}

func TestARealSweepIsTheSameWhateverParallelIs(t *testing.T) {
	var reports []string
	for _, parallel := range []string{"1", "2"} {
		status, stdout, stderr := leasesim(t, "sweep -f example:small-burst --duration 1s --reps 2 --vary workload.load=0.5,1.5 --vary clock.offset=0,1s --out json --parallel "+parallel)
		var r search.SweepReport
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
			t.Fatalf("status %d, %s: %v", status, stderr, err)
		}
		r.Machine = sim.Machine{}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, string(text))
		// Leases do not go by the clocks of processes, so an offset changes nothing; and the load is what
		// it is said to be.
		p := r.Points
		offered := p[2].Figures.Offered.Mean / p[0].Figures.Offered.Mean
		if r.Finished != 4 || p[0].Figures.CallsPerS.Mean != p[1].Figures.CallsPerS.Mean || offered < 2.5 || offered > 3.5 || p[2].Differences["offered"].Mean <= 0 {
			t.Errorf("%s", stdout)
		}
	}
	if reports[0] != reports[1] {
		t.Errorf("%s\n%s", reports[0], reports[1])
	}
}
