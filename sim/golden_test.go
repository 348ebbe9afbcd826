package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

var update = flag.Bool("update", false, "TestGolden: write what is, instead of comparing with it")

// goldens are small scenarios that together use every part of the engine.
func goldens() map[string]Scenario {
	limits := func(all ...lease.Limit) []lease.Limit { return all }
	deny := lease.Policy{Fallback: lease.FallbackDeny}
	return map[string]Scenario{
		"steady": {Limits: limits(lease.PerSecond(5000)), Groups: []Group{{Count: 20, Skew: 0.5}}, Warmup: 500 * time.Millisecond},
		"overload": {
			Limits: limits(lease.PerSecond(2000).WithBurst(400)), Policy: deny,
			Groups: []Group{{Name: "a", Count: 3, Weight: 2}, {Name: "b", Count: 5, Share: 10}}, Workload: Workload{Load: 3, Cost: Cost{1, 4}},
			Network: Network{RoundTrip: DurationDist{Dist{DistLognormal, 5e5, 3e6}}},
			Rivals:  []string{"central", "central_client", "fixed_window", "sliding_log", "sliding_cells", "leaky", "static_split", "local_batches", "settle_afterwards"},
			Clock:   Clock{Offset: Constantly(50 * time.Millisecond), Drift: DriftDist{Dist{P: 100}}},
		},
		"small burst": {Limits: limits(lease.PerSecond(100).WithBurst(3)), Groups: []Group{{Count: 30}}, Workload: Workload{Kind: Constant, Load: 2}},
		"waiting": {
			Limits: limits(lease.PerSecond(300).WithBurst(30), lease.PerMinute(15_000)), Groups: []Group{{Count: 4}},
			Workload: Workload{Kind: Pareto, Verb: VerbWait, Cost: Cost{1, 3}, Deadline: 300 * time.Millisecond, Load: 1.2},
		},
		"keys": {
			Limits: limits(lease.PerSecond(20).WithBurst(40)), Keys: Keys{Count: 60, Zipf: 1}, Redis: Redis{Shards: 3, ServiceTime: DurationDist{Dist{DistExp, 50e3, 0}}},
			Groups: []Group{{Count: 10, Scale: []Step{{At: time.Second, Count: 15}, {At: 1500 * time.Millisecond, Count: 5}}}}, Workload: Workload{Kind: OnOff, Verb: VerbTry, Load: 0.7},
		},
		"faults": {
			Limits: limits(lease.PerSecond(3000)), Policy: lease.Policy{Target: 30 * time.Millisecond, StrictExpiry: true}, Groups: []Group{{
				Count: 12, Pauses: Stops{Every: time.Second, For: DurationDist{Dist{DistExp, 80e6, 0}}}, Restarts: Stops{Every: 2 * time.Second, For: Constantly(40 * time.Millisecond)},
			}},
			Network: Network{Loss: 0.05, LostReplies: 0.05, Duplicates: 0.05, Partitions: []Partition{{At: 300 * time.Millisecond, For: 200 * time.Millisecond, Part: 0.5}}},
			Redis: Redis{Faults: []RedisFault{
				{Kind: FaultFailover, At: 500 * time.Millisecond, For: 100 * time.Millisecond, Lost: 50 * time.Millisecond},
				{Kind: FaultSlow, At: 800 * time.Millisecond, For: 200 * time.Millisecond, By: 2 * time.Millisecond},
				{Kind: FaultOutage, At: 1100 * time.Millisecond, For: 100 * time.Millisecond},
				{Kind: FaultHang, At: 1300 * time.Millisecond, For: 100 * time.Millisecond},
				{Kind: FaultRestartEmpty, At: 1500 * time.Millisecond, For: 50 * time.Millisecond},
				{Kind: FaultClockStep, At: 1800 * time.Millisecond, By: -time.Minute},
			}},
		},
		"adversary": {Limits: limits(lease.PerSecond(1000).WithBurst(200)), Policy: deny, Groups: []Group{{Count: 4}}, Workload: Workload{Kind: Adversary}},
		"closed": {
			Limits: limits(lease.PerSecond(200).WithBurst(20)), Groups: []Group{{Count: 3, Restarts: Stops{Every: time.Second}}},
			Workload: Workload{Kind: Closed, Retries: 2, Think: DurationDist{Dist{DistPareto, 20e6, 1.5}}},
		},
		"day":  {Limits: limits(lease.PerSecond(1000)), Groups: []Group{{Count: 5}}, Workload: Workload{Kind: Diurnal, Load: 1}, Redis: Redis{ClientTime: true}, Clock: Clock{Offset: Constantly(time.Second)}},
		"sale": {Limits: limits(lease.PerSecond(1000)), Groups: []Group{{Count: 5}}, Workload: Workload{Kind: Flash, Load: 0.5}, Policy: lease.Policy{ColdStart: lease.ColdStartAllow, Fallback: lease.FallbackAllowAll}},
		"volleys": {
			Limits: limits(lease.PerSecond(1000)), Policy: lease.Policy{Overcommit: 50, MinBatch: 5, MaxBatch: 60, StartEmpty: true}, Groups: []Group{{Count: 7}},
			Workload: Workload{Kind: Sync, Within: 20 * time.Millisecond, Load: 1.5},
		},
		"trace": {Limits: limits(lease.PerSecond(50)), Groups: []Group{{Count: 2}}, Workload: Workload{Kind: Replay, Trace: regularly(7*time.Millisecond, time.Second), Repeated: true}},
	}
}

// TestGolden: the report of a scenario is a promise, to the last bit, on every machine: GOARCH=386 go test ./sim -run Golden
// has to pass too. Whoever changes what lease, the engine or a rival does, and means it, writes the new reports with
//
//	go test ./sim -run '^TestGolden$' -update
//
// and looks at the difference: each line has a few of the figures in clear.
func TestGolden(t *testing.T) {
	file := filepath.Join("testdata", "golden.txt")
	var lines []string
	all := goldens()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		s.Name, s.Duration, s.Reps = name, 2*time.Second, 3
		r := reported(t, s, 2)
		sum := sha256.Sum256(asJSON(t, r))
		lines = append(lines, fmt.Sprintf("%-12s admitted %.6g of %.6g, %.6g calls/s, 99 %% wait %.6g ms: %s",
			name, r.Admitted.Mean, r.CentralAdmitted.Mean, r.CallsPerS.Mean, r.WaitMsP99.Mean, hex.EncodeToString(sum[:12])))
	}
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := range max(len(lines), len(want)) {
		if i >= len(lines) || i >= len(want) || lines[i] != want[i] {
			t.Errorf("the reports are\n%s\nwant\n%s\n(if that is meant: go test ./sim -run '^TestGolden$' -update)", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			break
		}
	}
}
