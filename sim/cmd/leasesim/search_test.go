package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

func TestASweepRunsEveryPointWithTheFlagsOfAll(t *testing.T) {
	e := execute(t.Context(), t, figured(figures), "sweep -f "+fileOf(t, small+"rivals: [fixed_window]\n")+
		" --set policy.ttl=1s --seed 9 --parallel 2 --vary policy.target=10ms,100ms --vary "+
		"groups.web.count=1,2")
	e.ends(0).says().shows("small: a sweep\n", "hash ", "seed 9,", "base", "100ms",
		"The bound holds at every point.")
	testkit.Must(t, len(e.ran) == 4, "%d runs", len(e.ran))
	for i, s := range e.ran {
		testkit.Check(t, s.Seed == 9 && s.Policy.TTL.String() == "1s" && len(s.Rivals) == 0 &&
			e.runners[i].Parallel == 2, "%+v by %+v", s, e.runners[i])
	}
}

func TestAnInterruptedSearchPrintsNothing(t *testing.T) {
	for _, line := range []string{"sweep --vary policy.target=10ms,20ms,30ms,40ms", "plan -f " + fileOf(t, room)} {
		ctx, interrupt := context.WithCancel(t.Context())
		e := execute(ctx, t, interrupted(2, interrupt), line+" --parallel 1").ends(exitInterrupted).
			says("interrupted in phase ")
		testkit.Check(t, e.stdout == "", "%s: %s", line, e.stdout)
	}
}

func TestEveryTargetHasItsFlag(t *testing.T) {
	all := func(s sim.Scenario) sim.Figures {
		f := figures(s)
		for _, x := range f.All() {
			if x.Mean == 0 && x.Name != "bound_exceeded_by" {
				*x.Figure = sim.Figure{Mean: 0.5, Low: 0.5, High: 0.5, Worst: 0.5}
			}
		}
		return f
	}
	e := execute(t.Context(), t, figured(all), "plan -f "+fileOf(t, room)+
		" --false-rejects 1% --admitted 99.5% --redis-calls 500 --redis-cpu 60% "+
		"--wait-p99 20ms --jain 40% --worst-share 45% --confidence 99% --overcommit-max 7 --out json").ends(0)
	p := prints[search.Plan](e)
	want := []search.Threshold{
		search.AtMost("false_reject_ratio", 0.01), atLeast("admitted_vs_central", 0.995),
		search.AtMost("redis_cpu", 0.6),
		atLeast("jain", 0.4), atLeast("worst_share", 0.45), search.AtMost("calls_per_s", 500),
		search.AtMost("wait_ms_p99", 20), {Figure: "bound_exceeded_by", Part: "worst", Op: "<="},
	}
	testkit.Check(t, slices.Equal(p.Targets, want), "%+v, want %+v", p.Targets, want)
	testkit.Check(t, e.runners[0].Confidence == 0.99 && p.Chosen.Policy.Overcommit == 0,
		"%+v, %+v", e.runners[0], p.Chosen.Policy)
}

func TestARealPlanIsTheSameWhateverParallelIs(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes minutes with the race detector; sweeps share what runs side by side")
	}
	scenario := " -f example:small-burst --duration 500ms --reps 2 --set warmup=0s"
	if !testkit.Long(t, "a fleet of 10", "one of 200") {
		scenario += " --set groups.workers.count=10"
	}
	var plans [2]search.Plan
	for i := range plans {
		line := fmt.Sprintf("plan --false-rejects 2%% --out json --parallel %d", i+1)
		plans[i] = prints[search.Plan](leasesim(t, line+scenario).ends(0))
		plans[i].Machine = sim.Machine{}
	}
	p := plans[0]
	testkit.Check(t, reflect.DeepEqual(p, plans[1]), "%+v\n%+v", p, plans[1])
	testkit.Must(t, p.Verdict == search.Found, "%+v", p)
}

func TestThePrintedRunSetsEachFieldOnce(t *testing.T) {
	f := &shared{file: "fleet.yaml", sets: []string{"policy.calls_per_second=40", "policy.overcommit=7"}}
	s := sim.Scenario{Policy: lease.Policy{CallsPerSecond: 40, Overcommit: 7}}.Defaults()
	chosen := search.PolicyOf(s)
	chosen.CallsPerSecond = 32
	got := f.rerun(s, &search.Candidate{Policy: chosen})
	testkit.Check(t, strings.Count(got, "calls_per_second=32") == 1 && !strings.Contains(got, "=40") &&
		strings.Contains(got, "policy.overcommit=7"), "%s", got)
}

// TestSearchesEndWithTheirStatus runs sweeps and plans on a made-up simulator: false rejects are
// 0.5 % at a target of 50 ms, and everything is rejected where Redis fails.
func TestSearchesEndWithTheirStatus(t *testing.T) {
	file := fileOf(t, room)
	fragile := func(s sim.Scenario) sim.Figures {
		f := figures(s)
		if len(s.Redis.Faults) > 0 {
			f.CentralAdmitted.Mean, f.FaultStock = 1000, sim.Figure{Mean: 1e9, Low: 1e9, High: 1e9}
		}
		return f
	}
	type texts = []string
	for _, c := range []struct {
		line           string
		status         int
		stdout, stderr texts
	}{
		{"plan", 0, texts{"room: a plan\n", "hash ", "seed 5,",
			"false_reject_ratio at most 0.5 %", "Take target ",
			"hybrid.Config{"}, nil},
		{"plan --redis-calls 5 --false-rejects 0.5%", exitInfeasible,
			texts{"No tried policy meets the targets.", "The closest is target ", "--overcommit-max"},
			texts{"no policy meets the targets"}},
		{"plan --stress-must-hold all", exitInfeasible, texts{"outage"}, texts{"under stress (outage)"}},
		{"plan --stress-must-hold clocks,outage", exitInfeasible, texts{"outage"}, texts{"under stress (outage)"}},
		{"plan --stress-must-hold=clocks,processes", 0, texts{"Take target "}, nil},
		// a threshold is about the chosen policy,
		{"plan --threshold 'calls_per_s < 30'", 0, texts{"Take target "}, nil},
		{"plan --threshold 'calls_per_s < 3'", exitExceeded, texts{"Take target "},
			texts{"threshold does not hold"}},
		// or about every point of a sweep
		{"sweep --vary policy.target=10ms,50ms --threshold 'false_reject_ratio <= 0.5%'", 0, texts{"50ms"}, nil},
		{"sweep --vary policy.target=10ms,50ms --threshold 'false_reject_ratio <= 0.3%'", exitExceeded,
			texts{"50ms"}, texts{"at policy.target=50ms: threshold does not hold"}},
		// A TTL below two targets at one point.
		{"sweep --vary policy.ttl=4s,1ms", exitUsage, nil, texts{"invalid axis policy.ttl=1ms: policy.ttl is 1ms"}},
	} {
		e := execute(t.Context(), t, figured(fragile),
			c.line+" -f "+file).ends(c.status).shows(c.stdout...).says(c.stderr...)
		testkit.Check(t, !strings.Contains(e.stderr, "at policy.target=10ms"), "%s: %s", c.line, e.stderr)
		// Each simulation is about the leases alone.
		confidence := 0.0
		if strings.HasPrefix(c.line, "plan") {
			confidence = 0.95
		}
		for i, s := range e.ran {
			testkit.Must(t, len(s.Rivals) == 0 && e.runners[i].Confidence == confidence,
				"%s: %+v by %+v", c.line, s, e.runners[i])
		}
	}
	// Defaults follow the varied fields: groups take their weight from the policy.
	e := execute(t.Context(), t, figured(figures), "sweep --parallel 1 --vary policy.weight=1,7").ends(0)
	testkit.Check(t, len(e.ran) == 2 && e.ran[1].Defaults().Groups[0].Weight == 7, "%+v", e.ran)
}

// atLeast is a threshold from below.
func atLeast(figure string, bound float64) search.Threshold {
	return search.Threshold{Figure: figure, Op: ">=", Bound: bound}
}
