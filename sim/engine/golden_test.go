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

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

var update = flag.Bool("update", false, "TestGolden: write what is, instead of comparing with it")

// goldens are small scenarios that together use every part of the engine.
var goldens = map[string]string{
	"steady": "limits: [5000/s], groups: [{count: 20, skew: 0.5}], warmup: 500ms",
	"overload": `limits: [2000/s burst 400], policy: {fallback: deny}, workload: {load: 3, cost: "uniform(1,4)"},
		groups: [{name: a, count: 3, weight: 2}, {name: b, count: 5, share: 10}],
		network: {round_trip: "lognormal(500us,3ms)"}, clock: {offset: 50ms, drift: 100ppm},
		rivals: [central, central_client, fixed_window, sliding_log, sliding_cells, static_split, local_batches,
			settle_afterwards]`,
	"small burst": "limits: [100/s burst 3], groups: [{count: 30}], workload: {kind: constant, load: 2}",
	"waiting": `limits: [300/s burst 30, 15000/m], groups: [{count: 4}],
		workload: {verb: wait, cost: "uniform(1,3)", deadline: 300ms, load: 1.2}`,
	"keys": `limits: [20/s burst 40], keys: {count: 60, zipf: 1}, redis: {shards: 3, service_time: exp(50us)},
		groups: [{count: 10, scale: [{at: 1s, count: 15}, {at: 1.5s, count: 5}]}],
		workload: {kind: onoff, verb: try, load: 0.7}`,
	"faults": `limits: [3000/s], policy: {target: 30ms, strict_expiry: true},
		groups: [{count: 12, pauses: {every: 1s, for: exp(80ms)}, restarts: {every: 2s, for: 40ms}}],
		network: {loss: 5%, lost_replies: 5%, partitions: [{at: 300ms, for: 200ms, part: 50%}]},
		redis: {faults: [
			{kind: failover, at: 500ms, for: 100ms, lost: 50ms},
			{kind: outage, at: 1100ms, for: 100ms},
			{kind: hang, at: 1300ms, for: 100ms},
			{kind: restart_empty, at: 1500ms, for: 50ms},
		]}`,
	"adversary": `limits: [1000/s burst 200], policy: {fallback: deny}, groups: [{count: 4}],
		workload: {kind: adversary}`,
	"sale": `limits: [1000/s], groups: [{count: 5}], workload: {kind: flash, load: 0.5},
		policy: {cold_start: allow, fallback: allow_all}`,
	"volleys": `limits: [1000/s], policy: {overcommit: 50, min_batch: 5, start_empty: true},
		groups: [{count: 7}], workload: {kind: sync, within: 20ms, load: 1.5}`,
	"shadow": `limits: [1000/s burst 100], groups: [{count: 3}, {count: 3, shadow: true}],
		workload: {load: 2}`,
	"classes": `limits: [1000/s, 50000/m burst 3000], policy: {fallback: deny}, groups: [
		{name: a, workload: {rate: 500/s}},
		{name: b, count: 4, headroom: 0.3, workload: {rate: 900/s, verb: wait}},
		{name: c, count: 4, headroom: 0.7, workload: {rate: 900/s, cost: "uniform(1,3)"}}]`,
	"reservations": `limits: [3000/s burst 500, 150000/m], policy: {fallback: deny},
		groups: [{count: 5, restarts: {every: 1s, for: 20ms}}],
		workload: {load: 3, verb: wait, cost: "uniform(1,5)", actual: "lognormal(3,40)", hold: exp(100ms)}`,
	"window": `limits: [600 in 500ms, 3000/s burst 400], policy: {fallback: deny}, groups: [
			{name: web, count: 5, workload: {rate: 900/s, verb: wait, cost: "uniform(1,3)"}},
			{name: crawlers, count: 4}],
		workload: {kind: boundary, rate: 1500/s, every: 1s}, clock: {offset: 50ms}, network: {lost_replies: 2%},
		rivals: [central, central_client, fixed_window, sliding_log, sliding_cells, static_split, local_batches]`,
	"calendar": `limits: [500 each 600ms from 100ms, 1500 each 1h], policy: {fallback: deny}, keys: {count: 2},
		groups: [{count: 6, restarts: {every: 1s, for: 20ms}}],
		workload: {rate: 1200/s, actual: "uniform(0,3)", hold: exp(20ms)},
		rivals: [central, fixed_window]`,
	"trace": "limits: [50/s], groups: [{count: 2}]", // with recorded requests
}

// TestGolden: the report of a scenario is a promise, to the last bit, on every machine: GOARCH=386
// go test ./sim/engine -run Golden has to pass too. After an intended change of lease, the engine
// or a rival, write the new reports with
//
//	go test ./sim/engine -run '^TestGolden$' -update
//
// and look at the difference: each line shows a few of the figures in clear.
func TestGolden(t *testing.T) {
	file := filepath.Join("testdata", "golden.txt")
	got := ""
	for _, name := range slices.Sorted(maps.Keys(goldens)) {
		s := scene(t, "name: %s, duration: 2s, reps: 3, %s", name, goldens[name])
		if name == "trace" {
			s.Workload = regularly(7*time.Millisecond, time.Second)
		}
		r := reported(t, s, 2)
		sum := sha256.Sum256([]byte(asJSON(t, r)))
		got += fmt.Sprintf("%-12s admitted %.6g of %.6g, %.6g calls/s, 99 %% wait %.6g ms: %s\n", name,
			r.Admitted.Mean, r.CentralAdmitted.Mean, r.CallsPerS.Mean, r.WaitMsP99.Mean, hex.EncodeToString(sum[:12]))
	}
	if *update {
		testkit.NoErr(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("the reports are\n%s\nwant\n%s\n"+
			"(if that is meant: go test ./sim/engine -run '^TestGolden$' -update) %v",
			got, want, err)
	}
}
