package main

import (
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
)

// TestSearchesEndWithTheirStatus runs sweeps and plans on a made-up simulator: false rejects are
// 0.5 % at a target of 50 ms, and everything is rejected where Redis fails.
func TestSearchesEndWithTheirStatus(t *testing.T) {
	file := scenarioFile(t, room)
	fragile := func(s sim.Scenario) (sim.Figures, error) {
		f, err := figures(s)
		if len(s.Redis.Faults) > 0 {
			f.FalseRejectRatio = sim.Figure{Mean: 1, Low: 1, High: 1}
		}
		return f, err
	}
	for _, c := range []struct {
		line           string
		status         int
		stdout, stderr []string
	}{
		{"plan", 0, []string{"room: a plan\nhash ", "seed 5,", "false_reject_ratio at most 0.5 %", "Take target ", "hybrid.Config{"}, nil},
		{"plan --redis-calls 5 --false-rejects 0.5%", exitInfeasible,
			[]string{"No policy that was tried meets the targets.", "The closest is target ", "--overcommit-max"}, []string{"no policy meets the targets"}},
		{"plan --stress-must-hold", exitInfeasible, []string{"outage"}, []string{"under stress (outage)"}},
		{"plan --stress-must-hold=skew,outage", exitInfeasible, []string{"outage"}, []string{"under stress (outage)"}},
		{"plan --stress-must-hold=skew,processes", 0, nil, nil},
		// a threshold is about the chosen policy,
		{"plan --threshold 'calls_per_s < 30'", 0, nil, nil},
		{"plan --threshold 'calls_per_s < 3'", exitExceeded, []string{"Take target "}, []string{"threshold does not hold"}},
		// or about every point of a sweep
		{"sweep --vary policy.target=10ms,50ms --threshold 'false_reject_ratio <= 0.5%'", 0, []string{"50ms"}, nil},
		{"sweep --vary policy.target=10ms,50ms --threshold 'false_reject_ratio <= 0.3%'", exitExceeded,
			[]string{"50ms"}, []string{"at policy.target=50ms: search: threshold does not hold"}},
		// TTLs below two targets at every point; one that is valid is enough
		{"sweep --vary policy.ttl=1ms,2ms", exitUsage, nil, []string{"no point is a valid scenario: at policy.ttl=1ms: "}},
		{"sweep --vary policy.ttl=1ms,4s", 0, []string{"invalid: "}, nil},
	} {
		words := splitWords(c.line)
		ran, runners, status, stdout, stderr := surface(t.Context(), fragile, append(words, "-f", file)...)
		if status != c.status || (stderr == "") != (c.stderr == nil) {
			t.Errorf("leasesim %s: status %d, want %d\n%s\n%s", c.line, status, c.status, stderr, stdout)
		}
		for _, want := range c.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("leasesim %s: no %q in\n%s", c.line, want, stdout)
			}
		}
		for _, want := range c.stderr {
			if !strings.Contains(stderr, want) || strings.Contains(stderr, "at policy.target=10ms") {
				t.Errorf("leasesim %s: no %q in\n%s", c.line, want, stderr)
			}
		}
		// Each simulation is about the leases alone, and has a core of its own.
		for i, s := range ran {
			confidence := map[string]float64{"plan": 0.95}[words[0]]
			if len(s.Rivals) != 0 || runners[i].Parallel != 1 || runners[i].Confidence != confidence {
				t.Fatalf("leasesim %s: %+v by %+v", c.line, s, runners[i])
			}
		}
	}
	// What defaults follow from varies with them: groups take their weight from the policy.
	ran, _, _, _, stderr := surface(t.Context(), figures, "sweep", "--parallel", "1", "--vary", "policy.weight=1,7")
	if len(ran) != 2 || ran[1].Defaults().Groups[0].Weight != 7 {
		t.Errorf("%s, %+v", stderr, ran)
	}
}
