package render

import (
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

func TestTheVerdictSaysWhetherTheBoundHolds(t *testing.T) {
	r := madeUp()
	if v := r.boundVerdict(); v.Mood != Good || !strings.Contains(v.Text, "The bound holds: in no window of any of the 10 replications") {
		t.Errorf("%+v", v)
	}
	r.Report.Reps, r.Report.RepsAsked = 1, 1
	if v := r.boundVerdict(); v.Mood != Good || !strings.Contains(v.Text, "in no window of the one replication") {
		t.Errorf("%+v", v)
	}
	// The mean may be small; the worst replication counts.
	r.Report.BoundExceededBy = fig(0.1, 0.2, 12, 99)
	v := r.boundVerdict()
	if v.Mood != Bad || !strings.Contains(v.Text, "admitted 12 tokens more than burst + overcommit + rate × window (seed 99)") {
		t.Errorf("%+v", v)
	}
	if strings.Contains(v.Text, "allows") {
		t.Errorf("nothing in the scenario allows it: %+v", v)
	}
}

func TestAnExceededBoundComesWithWhatAllowsIt(t *testing.T) {
	for _, c := range []struct {
		change func(*sim.Scenario)
		want   string
	}{
		{func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackLocalShare }, "fallback admits without a lease"},
		{func(s *sim.Scenario) { s.Policy.Fallback = lease.FallbackAllowAll }, "fallback admits without a lease"},
		{func(s *sim.Scenario) { s.Policy.ColdStart = lease.ColdStartAllow }, "before the first reply"},
		{func(s *sim.Scenario) { s.Redis.ClientTime = true }, "by the callers' clocks"},
		{func(s *sim.Scenario) {
			s.Redis.Faults = []sim.RedisFault{{Kind: sim.FaultClockStep, By: time.Second}}
		}, "steps forward by 1s"},
		{func(s *sim.Scenario) {
			s.Redis.Faults = []sim.RedisFault{{Kind: sim.FaultClockStep, By: -time.Second}}
		}, ""},
		{func(s *sim.Scenario) {
			s.Redis.Faults = []sim.RedisFault{{Kind: sim.FaultFailover, Lost: time.Second}}
		}, "loses 1s of writes"},
		{func(s *sim.Scenario) { s.Redis.Faults = []sim.RedisFault{{Kind: sim.FaultFailover}} }, ""},
		{func(s *sim.Scenario) { s.Redis.Faults = []sim.RedisFault{{Kind: sim.FaultRestartEmpty}} }, "restarts empty"},
		{func(s *sim.Scenario) {
			s.Redis.Faults, s.Policy.StartEmpty = []sim.RedisFault{{Kind: sim.FaultRestartEmpty}}, true
		}, ""},
		{func(s *sim.Scenario) { s.Groups[0].Pauses.Every = time.Second }, "without strict_expiry"},
		{func(s *sim.Scenario) { s.Groups[0].Pauses.Every, s.Policy.StrictExpiry = time.Second, true }, ""},
	} {
		s := madeUp().Scenario.Defaults()
		c.change(&s)
		if got := strings.Join(excuses(s), "; "); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestAnInterruptedRunSaysHowFarItCame(t *testing.T) {
	r := madeUp()
	r.Report.Reps = 3
	if got := written(t, Run, FormatCSV, r); !strings.Contains(got, "reps,3,3,3,3,\r\nreps_asked,10,10,10,10,") {
		t.Errorf("CSV does not say that it was interrupted: %s", got)
	}
	if got := written(t, Run, FormatJSON, r); !strings.Contains(got, `"reps_asked": 10`) {
		t.Errorf("JSON does not say that it was interrupted: %s", got)
	}
	for _, format := range []string{FormatTable, FormatHTML} {
		if got := written(t, Run, format, r); !strings.Contains(got, "Interrupted after 3 of 10 replications") {
			t.Errorf("%s does not say that it was interrupted", format)
		}
	}
	if got := written(t, Run, FormatTable, madeUp()); strings.Contains(got, "nterrupted") {
		t.Error("a whole run says that it was interrupted")
	}
}

func TestTheFactsNameEverythingThatAScenarioHas(t *testing.T) {
	// Given a scenario with something of everything,
	r := madeUp()
	r.Scenario = sim.Scenario{
		Limits: []lease.Limit{lease.PerSecond(1000), lease.PerMinute(30000)},
		Keys:   sim.Keys{Count: 20, Zipf: 1.1},
		Groups: []sim.Group{{
			Name: "web", Count: 3, Weight: 4, Skew: 0.7, Clock: &sim.Clock{}, Workload: &sim.Workload{Kind: sim.OnOff, Rate: 50},
			Pauses:   sim.Stops{Every: time.Minute, For: sim.Constantly(2 * time.Second)},
			Restarts: sim.Stops{Every: time.Hour}, Scale: []sim.Step{{At: 5 * time.Second, Count: 7}},
		}},
		Workload: sim.Workload{Kind: sim.Replay, File: "monday.csv"},
		Network:  sim.Network{Loss: 0.01, Partitions: []sim.Partition{{At: time.Second, For: 3 * time.Second, Group: "web"}}},
		Redis:    sim.Redis{Shards: 3, ClientTime: true, Faults: []sim.RedisFault{{Kind: sim.FaultSlow, At: time.Second, For: time.Second, By: 5 * time.Millisecond, Shard: 2}}},
	}
	// when its page is written,
	page := written(t, Run, FormatHTML, r)
	// then the page has it all.
	for _, want := range []string{
		"1000/s and 30000/m", "20, Zipf 1.1", "3 processes, weight 4, skew 0.7, onoff at 50/s, clocks of its own, paused every 1m0s for 2s, restarted every 1h0m0s, 7 from 5s",
		"replayed from monday.csv", "1% lost", "at 1s for 3s, web", "3 shards, by the callers", "slow at 1s for 1s by 5ms, shard 2", "local_share",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q", want)
		}
	}
}
