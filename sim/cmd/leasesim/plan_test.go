package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/search"
)

// room is a scenario whose burst allows any target.
const room = `
name: room
duration: 2s
seed: 5
reps: 3
limits: [100/s burst 900]
policy: {fallback: deny}
groups: [{name: web, count: 3}]
rivals: [fixed_window]
`

func planned(t *testing.T, stdout string) (p search.Plan) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	return p
}

func TestEveryTargetHasItsFlag(t *testing.T) {
	file := scenarioFile(t, room)
	all := func(s sim.Scenario) (f sim.Figures, err error) {
		f, _ = figures(s)
		for _, x := range f.All() {
			if x.Mean == 0 && x.Name != "bound_exceeded_by" {
				*x.Figure = sim.Figure{Mean: 0.5, Low: 0.5, High: 0.5, Worst: 0.5}
			}
		}
		return f, nil
	}
	_, runners, status, stdout, stderr := surface(t.Context(), all, "plan", "-f", file, "--false-rejects", "1%", "--admitted", "99.5%", "--redis-calls", "500", "--redis-cpu", "60%",
		"--wait-p99", "20ms", "--jain", "40%", "--worst-share", "45%", "--confidence", "99%", "--overcommit-max", "7", "--out", "json")
	p := planned(t, stdout)
	if status != 0 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	want := []search.Threshold{
		search.AtMost("false_reject_ratio", 0.01), search.AtLeast("admitted_vs_central", 0.995), search.AtMost("redis_cpu", 0.6),
		search.AtLeast("jain", 0.4), search.AtLeast("worst_share", 0.45), search.AtMost("calls_per_s", 500),
		search.AtMost("wait_ms_p99", 20), {Figure: "bound_exceeded_by", Part: "worst", Op: "<="},
	}
	if !slices.Equal(p.Targets, want) {
		t.Errorf("%+v, want %+v", p.Targets, want)
	}
	if runners[0].Confidence != 0.99 || p.Chosen.Policy.Overcommit != 0 {
		t.Errorf("%+v, %+v", runners[0], p.Chosen.Policy)
	}
}

func TestAnInterruptedPlanShowsWhatItHadSeen(t *testing.T) {
	file := scenarioFile(t, room)
	for _, finished := range []int{0, 12} {
		ctx, interrupt := context.WithCancel(t.Context())
		n := 0
		_, _, status, stdout, stderr := surface(ctx, func(s sim.Scenario) (sim.Figures, error) {
			if n++; n > finished {
				interrupt()
				return sim.Figures{}, fmt.Errorf("%w: in the middle", sim.ErrInterrupted)
			}
			return figures(s)
		}, "plan", "-f", file, "--parallel", "1")
		interrupt()
		if status != exitInterrupted || !strings.Contains(stderr, `simulations are finished, in phase "screen"`) {
			t.Errorf("status %d, %s", status, stderr)
		}
		if shows := strings.Contains(stdout, "Interrupted: nothing is confirmed"); shows != (finished == 12) {
			t.Errorf("after %d:\n%s", finished, stdout)
		}
	}
}

func TestARealPlanIsTheSameWhateverParallelIsAndItsPolicyDoesWhatItSays(t *testing.T) {
	const line = "plan -f example:small-burst --duration 500ms --reps 3 --set warmup=0s --false-rejects 2% --out json --parallel "
	var plans []string
	for _, parallel := range []string{"1", "2"} {
		status, stdout, stderr := leasesim(t, line+parallel)
		p := planned(t, stdout)
		if status != 0 || p.Verdict != search.Found {
			t.Fatalf("status %d, %s\n%s", status, stderr, stdout)
		}
		p.Machine = sim.Machine{}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, string(text))
		if parallel == "2" {
			continue
		}
		// When the chosen policy is run on the fresh seeds, then its figures come again.
		c := p.Chosen
		r := simulated(t, fmt.Sprintf("run -f example:small-burst --duration 500ms --reps 3 --set warmup=0s --seed %d --set policy.target=%s --set policy.ttl=%s", p.ConfirmSeed, c.Policy.Target, c.Policy.TTL))
		if math.Abs(r.CallsPerS.Mean-c.Figures.CallsPerS.Mean) > 0 || r.FalseRejectRatio.High != c.Figures.FalseRejectRatio.High || r.ScenarioHash != c.ScenarioHash {
			t.Errorf("%+v, planned %+v", r.Figures, c.Figures)
		}
	}
	if plans[0] != plans[1] {
		t.Errorf("%s\n%s", plans[0], plans[1])
	}
}
