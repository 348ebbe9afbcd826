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
	"time"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// played describes Poisson requests and the fleet that they are played to.
type played struct {
	name            string
	perSecond       float64
	processes, keys int
	cost            func(*rand.Rand) int64
	scenario        string
	fates           [2]string // of the first and of the last process
}

// write writes c with a scenario that replays it, and returns its path and the tokens that it asks
// for. Each request is for one of c.keys, of which the k-th has a part in proportion to 1/k.
func (c played) write(t *testing.T, seed uint64, length time.Duration) (path string, tokens int64) {
	t.Helper()
	perSecond, keys := c.perSecond, c.keys
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
	for at := r.ExpFloat64() / perSecond; at < length.Seconds(); at += r.ExpFloat64() / perSecond {
		key, _ := slices.BinarySearch(popular, r.Float64()*popular[keys-1])
		process, n := r.IntN(c.processes), c.cost(r)
		fmt.Fprintf(&csv, "%.6f,%d,k%d,%d\n", at, process, key, n)
		tokens += n
	}
	dir := t.TempDir()
	testkit.NoErr(t, os.WriteFile(filepath.Join(dir, "trace.csv"), []byte(csv.String()), 0o644))
	path = filepath.Join(dir, "fleet.yaml")
	// A process is stopped or killed after 0.4 of the trace; a stop lasts for 0.2 of it.
	times := strings.NewReplacer("AT", (2 * length / 5).String(), "FOR", (length / 5).String())
	scenario := times.Replace(c.scenario)
	text := fmt.Sprintf("duration: %v\nreps: 5\npolicy: {fallback: deny}\nkeys: {count: %d}\n"+
		"workload: {kind: replay, file: trace.csv}\n%s\n", length, keys, scenario)
	testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o644))
	return path, tokens
}

func one(*rand.Rand) int64 { return 1 }

func upTo4000(r *rand.Rand) int64 { return 1 + r.Int64N(4000) }

// heavy is nearly always small, and one request in a thousand costs 400 times as much: a Pareto
// distribution with shape 1.15.
func heavy(r *rand.Rand) int64 { return int64(min(20/math.Pow(1-r.Float64(), 1/1.15), 20000)) }

// TestTracesThroughRealLimitersKeepTheBounds plays traces through real limiters on a real Redis, and
// through the simulator: no key's bound is exceeded, every request is made, and what was to be done
// to a process was done. -v prints the table that stands in docs/simulator.md.
func TestTracesThroughRealLimitersKeepTheBounds(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).Addr
	all := []played{
		{"6 processes, 500/s burst 5", 1000, 6, 1, one,
			"limits: [500/s burst 5]\ngroups: [{count: 6}]", [2]string{}},
		{"4 groups with weights 1 to 4", 6000, 4, 1, one, "limits: [3000/s burst 300]\n" +
			"groups: [{name: a}, {name: b, weight: 2}, {name: c, weight: 3}, {name: d, weight: 4}]", [2]string{}},
		{"300 keys by Zipf, 10/s burst 20", 2000, 4, 300, one,
			"limits: [10/s burst 20]\ngroups: [{count: 4}]", [2]string{}},
		{"costs of 1 to 4,000", 100, 4, 1, upTo4000,
			"limits: [100000/s burst 20000]\ngroups: [{count: 4}]", [2]string{}},
		{"heavy-tailed costs of 20 to 20,000", 1000, 4, 1, heavy,
			"limits: [50000/s burst 20000]\ngroups: [{count: 4}]", [2]string{}},
		{"1 of 4 stopped for a second", 2000, 4, 1, one, "limits: [1000/s burst 200]\n" +
			"groups: [{count: 4, pauses: {at: AT, for: FOR}}]", [2]string{"stopped", ""}},
		{"1 of 4 killed", 2000, 4, 1, one, "limits: [1200/s burst 200]\n" +
			"groups: [{count: 4, scale: [{at: AT, count: 3, kill: true}]}]", [2]string{"", "killed"}},
	}
	length := 5 * time.Second
	if !testkit.Long(t, "two traces of a second", "seven of five seconds") {
		all, length = []played{all[2], all[6]}, time.Second
	}
	t.Logf("%-34s %10s %10s %10s", "trace", "offered", "real", "simulated")
	for i, c := range all {
		path, tokens := c.write(t, uint64(i+1), length)
		// given a trace, when it is played, then the promise is kept for every key, what was to be done to
		// a process was done, and every request was made but those of a process that was killed
		var b sideBySide
		testkit.Eventually(t, c.name, func() bool {
			b = prints[sideBySide](leasesim(t, "compare --live --redis "+redis+" -f "+path+" --out json"))
			testkit.Must(t, b.Real.BoundExceededBy == 0, "%s: %+v", c.name, b.Real)
			processes := b.Real.Processes
			return b.Real.Admitted > 0 && c.fates == [2]string{processes[0].Fate, processes[len(processes)-1].Fate}
		})
		testkit.Check(t, b.Real.Offered == tokens || b.Real.Offered < tokens && c.fates[1] == "killed",
			"%s: %d tokens are asked for, %+v", c.name, tokens, b.Real)
		busy := ""
		if b.Real.Overloaded {
			busy = "  this machine was overloaded"
		}
		t.Logf("%-34s %10d %10d %10.0f%s", c.name, b.Real.Offered, b.Real.Admitted, b.Simulated.Admitted.Mean, busy)
	}
}
