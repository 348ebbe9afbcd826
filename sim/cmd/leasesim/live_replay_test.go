package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

// traced writes a trace of Poisson requests and a scenario that replays it, and returns its path.
// Each request is for one of so many keys, of which the k-th has a part in proportion to 1/k.
func traced(t *testing.T, seed uint64, perSecond float64, processes, keys int, cost func(*rand.Rand) int64, scenario string) string {
	t.Helper()
	const seconds = 5
	r := rand.New(rand.NewPCG(seed, seed))
	var popular []float64 // the sum of the parts so far
	for k := range keys {
		popular = append(popular, 1/float64(k+1))
		if k > 0 {
			popular[k] += popular[k-1]
		}
	}
	var csv strings.Builder
	csv.WriteString("time_s,process,key,tokens\n")
	for at := r.ExpFloat64() / perSecond; at < seconds; at += r.ExpFloat64() / perSecond {
		key, _ := slices.BinarySearch(popular, r.Float64()*popular[keys-1])
		fmt.Fprintf(&csv, "%.6f,%d,k%d,%d\n", at, r.IntN(processes), key, cost(r))
	}
	dir := t.TempDir()
	testkit.NoErr(t, os.WriteFile(filepath.Join(dir, "trace.csv"), []byte(csv.String()), 0o644))
	path := filepath.Join(dir, "fleet.yaml")
	text := fmt.Sprintf("duration: %ds\nreps: 5\npolicy: {fallback: deny}\nkeys: {count: %d}\n"+
		"workload: {kind: replay, file: trace.csv}\n%s\n", seconds, keys, scenario)
	testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func one(*rand.Rand) int64 { return 1 }

func upTo4000(r *rand.Rand) int64 { return 1 + r.Int64N(4000) }

// heavy is nearly always small, and one request in a thousand costs 400 times as much: a Pareto
// distribution with shape 1.15.
func heavy(r *rand.Rand) int64 { return int64(min(20/math.Pow(1-r.Float64(), 1/1.15), 20000)) }

// Traces played through real limiters on a real Redis, and through the simulator. -v prints the
// table that stands in docs/simulator.md.
func TestTracesThroughRealLimitersAreWhatTheSimulatorSays(t *testing.T) {
	redis := redistest.Start(t).Addr
	t.Logf("%-34s %10s %10s %10s", "trace", "offered", "real", "simulated")
	for _, c := range []struct {
		name string
		path string
	}{
		{"6 processes, 500/s burst 5", traced(t, 1, 1000, 6, 1, one, "limits: [500/s burst 5]\ngroups: [{count: 6}]")},
		{"4 groups with weights 1 to 4", traced(t, 2, 6000, 4, 1, one, "limits: [3000/s burst 300]\n"+
			"groups: [{name: a}, {name: b, weight: 2}, {name: c, weight: 3}, {name: d, weight: 4}]")},
		{"300 keys by Zipf, 10/s burst 20", traced(t, 3, 2000, 4, 300, one, "limits: [10/s burst 20]\ngroups: [{count: 4}]")},
		{"costs of 1 to 4,000", traced(t, 4, 100, 4, 1, upTo4000, "limits: [100000/s burst 20000]\ngroups: [{count: 4}]")},
		{"heavy-tailed costs of 20 to 20,000", traced(t, 5, 1000, 4, 1, heavy, "limits: [50000/s burst 20000]\ngroups: [{count: 4}]")},
		{"1 of 4 stopped for a second", traced(t, 6, 2000, 4, 1, one, "limits: [1000/s burst 200]\n"+
			"groups: [{count: 4, pauses: {at: 2s, for: 1s}}]")},
		{"1 of 4 killed", traced(t, 7, 2000, 4, 1, one, "limits: [1200/s burst 200]\n"+
			"groups: [{count: 4, scale: [{at: 2s, count: 3, kill: true}]}]")},
	} {
		// given a trace, when it is played in both ways, then they nearly agree in what they admit, and
		// the promise is kept for every key
		e := leasesim(t, "compare --live --redis "+redis+" -f "+c.path+" --out json")
		b := prints[sideBySide](e)
		for _, row := range b.Rows {
			// What compare --live says agrees within 1 %; that is a question of the machine's time. A key or
			// a weight that goes astray is off by far more.
			part := map[string]float64{live.Offered: 0.05, live.Admitted: 0.2}[row.Name]
			near := math.Abs(row.Real-row.Simulated) <= part*row.Simulated
			if row.Name == live.Admitted || row.Name == live.Offered {
				testkit.Check(t, near || b.Real.Overloaded, "%s: %+v", c.name, row)
			}
		}
		testkit.Check(t, b.Real.BoundExceededBy == 0 && b.Real.Admitted > 0, "%s: %+v", c.name, b.Real)
		// and what was to be done to a process was done.
		first, last := b.Real.Processes[0].Fate, b.Real.Processes[len(b.Real.Processes)-1].Fate
		testkit.Check(t, (first == "stopped") == strings.HasSuffix(c.name, "stopped for a second") &&
			(last == "killed") == strings.HasSuffix(c.name, "killed"), "%s: the first is %q, the last %q", c.name, first, last)
		busy := ""
		if b.Real.Overloaded {
			busy = "  this machine was overloaded"
		}
		t.Logf("%-34s %10d %10d %10.0f%s", c.name, b.Real.Offered, b.Real.Admitted, b.Simulated.Admitted.Mean, busy)
	}
}
