package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

var update = flag.Bool("update", false, "TestGolden: write what is, instead of comparing with it")

// goldens are small scenarios that together use every part of the engine.
func goldens() map[string]scenario.Scenario {
	repeated := regularly(7*time.Millisecond, time.Second)
	repeated.Repeated = true
	return map[string]scenario.Scenario{
		"steady": {Limits: limits(lease.PerSecond(5000)), Groups: []scenario.Group{{Count: 20, Skew: 0.5}}, Warmup: 500 * time.Millisecond},
		"overload": {
			Limits: limits(lease.PerSecond(2000).WithBurst(400)), Policy: deny,
			Groups: []scenario.Group{{Name: "a", Count: 3, Weight: 2}, {Name: "b", Count: 5, Share: 10}}, Workload: scenario.Workload{Load: 3, Cost: scenario.Cost{Min: 1, Max: 4}},
			Network: scenario.Network{RoundTrip: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistLognormal, P: 5e5, Q: 3e6}}},
			Rivals:  []string{"central", "central_client", "fixed_window", "sliding_log", "sliding_cells", "static_split", "local_batches", "settle_afterwards"},
			Clock:   scenario.Clock{Offset: scenario.Constantly(50 * time.Millisecond), Drift: scenario.DriftDist{Dist: scenario.Dist{P: 100}}},
		},
		"small burst": {Limits: limits(lease.PerSecond(100).WithBurst(3)), Groups: alike(30), Workload: scenario.Workload{Kind: scenario.Constant, Load: 2}},
		"waiting": {
			Limits: limits(lease.PerSecond(300).WithBurst(30), lease.PerMinute(15_000)), Groups: alike(4),
			Workload: scenario.Workload{Kind: scenario.Pareto, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: 1, Max: 3}, Deadline: 300 * time.Millisecond, Load: 1.2},
		},
		"keys": {
			Limits: limits(lease.PerSecond(20).WithBurst(40)), Keys: scenario.Keys{Count: 60, Zipf: 1}, Redis: scenario.Redis{Shards: 3, ServiceTime: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistExp, P: 50e3, Q: 0}}},
			Groups: []scenario.Group{{Count: 10, Scale: []scenario.Step{{At: time.Second, Count: 15}, {At: 1500 * time.Millisecond, Count: 5}}}}, Workload: scenario.Workload{Kind: scenario.OnOff, Verb: scenario.VerbTry, Load: 0.7},
		},
		"faults": {
			Limits: limits(lease.PerSecond(3000)), Policy: lease.Policy{Target: 30 * time.Millisecond, StrictExpiry: true}, Groups: []scenario.Group{{
				Count: 12, Pauses: scenario.Stops{Every: time.Second, For: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistExp, P: 80e6, Q: 0}}}, Restarts: scenario.Stops{Every: 2 * time.Second, For: scenario.Constantly(40 * time.Millisecond)},
			}},
			Network: scenario.Network{Loss: 0.05, LostReplies: 0.05, Duplicates: 0.05, Partitions: []scenario.Partition{{At: 300 * time.Millisecond, For: 200 * time.Millisecond, Part: 0.5}}},
			Redis: scenario.Redis{Faults: []scenario.RedisFault{
				{Kind: scenario.FaultFailover, At: 500 * time.Millisecond, For: 100 * time.Millisecond, Lost: 50 * time.Millisecond},
				{Kind: scenario.FaultSlow, At: 800 * time.Millisecond, For: 200 * time.Millisecond, By: 2 * time.Millisecond},
				{Kind: scenario.FaultOutage, At: 1100 * time.Millisecond, For: 100 * time.Millisecond},
				{Kind: scenario.FaultHang, At: 1300 * time.Millisecond, For: 100 * time.Millisecond},
				{Kind: scenario.FaultRestartEmpty, At: 1500 * time.Millisecond, For: 50 * time.Millisecond},
				{Kind: scenario.FaultClockStep, At: 1800 * time.Millisecond, By: -time.Minute},
			}},
		},
		"adversary": {Limits: limits(lease.PerSecond(1000).WithBurst(200)), Policy: deny, Groups: alike(4), Workload: scenario.Workload{Kind: scenario.Adversary}},
		"closed": {
			Limits: limits(lease.PerSecond(200).WithBurst(20)), Groups: []scenario.Group{{Count: 3, Restarts: scenario.Stops{Every: time.Second}}},
			Workload: scenario.Workload{Kind: scenario.Closed, Retries: 2, Think: scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistPareto, P: 20e6, Q: 1.5}}},
		},
		"day":  {Limits: limits(lease.PerSecond(1000)), Groups: alike(5), Workload: scenario.Workload{Kind: scenario.Diurnal, Load: 1}, Redis: scenario.Redis{ClientTime: true}, Clock: scenario.Clock{Offset: scenario.Constantly(time.Second)}},
		"sale": {Limits: limits(lease.PerSecond(1000)), Groups: alike(5), Workload: scenario.Workload{Kind: scenario.Flash, Load: 0.5}, Policy: lease.Policy{ColdStart: lease.ColdStartAllow, Fallback: lease.FallbackAllowAll}},
		"volleys": {
			Limits: limits(lease.PerSecond(1000)), Policy: lease.Policy{Overcommit: 50, MinBatch: 5, MaxBatch: 60, StartEmpty: true}, Groups: alike(7),
			Workload: scenario.Workload{Kind: scenario.Sync, Within: 20 * time.Millisecond, Load: 1.5},
		},
		"trace": {Limits: limits(lease.PerSecond(50)), Groups: alike(2), Workload: repeated},
	}
}

// TestGolden: the report of a scenario is a promise, to the last bit, on every machine: GOARCH=386
// go test ./sim/engine -run Golden has to pass too. Whoever changes what lease, the engine or a
// rival does, and means it, writes the new reports with
//
//	go test ./sim/engine -run '^TestGolden$' -update
//
// and looks at the difference: each line has a few of the figures in clear.
func TestGolden(t *testing.T) {
	file := filepath.Join("testdata", "golden.txt")
	got := ""
	all := goldens()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		s.Name, s.Duration, s.Reps = name, 2*time.Second, 3
		r := reported(t, s, 2)
		sum := sha256.Sum256([]byte(asJSON(t, r)))
		got += fmt.Sprintf("%-12s admitted %.6g of %.6g, %.6g calls/s, 99 %% wait %.6g ms: %s\n", name,
			r.Admitted.Mean, r.CentralAdmitted.Mean, r.CallsPerS.Mean, r.WaitMsP99.Mean, hex.EncodeToString(sum[:12]))
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("the reports are\n%s\nwant\n%s\n(if that is meant: go test ./sim/engine -run '^TestGolden$' -update) %v",
			got, want, err)
	}
}
