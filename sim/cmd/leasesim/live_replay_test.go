package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestRealLimitersDoWhatTheSimulatorSays plays loads through real limiters on a real Redis, and through the
// simulator. No key's bound is exceeded, every request is made, and what was to be done to a process was
// done; the tokens admitted are within 2 % of those simulated, unless the command says five times that the
// machine was too busy to judge. -v prints the table that stands in docs/simulator.md.
func TestRealLimitersDoWhatTheSimulatorSays(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).Addr
	all := []struct {
		name, scenario string
		fates          [2]string // of the first and of the last process
	}{
		{"300 keys by Zipf", "limits: [10/s burst 20]\nkeys: {count: 300, zipf: 1}\ngroups: [{count: 4}]\n" +
			"workload: {rate: 2000/s}", [2]string{}},
		{"1 of 4 killed", "limits: [1200/s burst 200]\nworkload: {rate: 2000/s}\n" +
			"groups: [{count: 4, scale: [{at: 2s, count: 3, kill: true}]}]", [2]string{"", "killed"}},
		{"1 of 4 stopped for a second", "limits: [1000/s burst 200]\nworkload: {rate: 2000/s}\n" +
			"groups: [{count: 4, pauses: {at: 2s, for: 1s}}]", [2]string{"stopped", ""}},
		{"6 processes on a burst of 5", "limits: [500/s burst 5]\ngroups: [{count: 6}]\n" +
			"workload: {rate: 1000/s}", [2]string{}},
		{"4 groups with weights 1 to 4", "limits: [3000/s burst 300]\nworkload: {rate: 6000/s}\n" +
			"groups: [{name: a}, {name: b, weight: 2}, {name: c, weight: 3}, {name: d, weight: 4}]", [2]string{}},
		{"heavy-tailed costs", "limits: [50000/s burst 20000]\ngroups: [{count: 4}]\n" +
			"workload: {rate: 1000/s, cost: 'pareto(20,20000,1.15)'}", [2]string{}},
		{"on and off", "limits: [1000/s burst 300]\ngroups: [{count: 8}]\n" +
			"workload: {kind: onoff, load: 1.3, on: 300ms, off: 700ms}", [2]string{}},
		{"bursts of all within 2 ms", "limits: [1000/s burst 500]\ngroups: [{count: 8}]\n" +
			"workload: {kind: sync, load: 1.5, within: 2ms}", [2]string{}},
		{"a window, 1,000 in 1s", "limits: [1000 in 1s]\ngroups: [{count: 4}]\nworkload: {load: 1.5}",
			[2]string{}},
		{"waiting for up to 500 ms", "limits: [1000/s burst 100]\ngroups: [{count: 8}]\n" +
			"workload: {load: 1.2, verb: wait, deadline: 500ms}", [2]string{}},
		{"Redis stopped for a second",
			"limits: [1000/s burst 200]\ngroups: [{count: 4}]\nworkload: {load: 2}\n" +
				"redis: {faults: [{kind: hang, at: 2s, for: 1s}]}", [2]string{}},
	}
	cases, length := all, "6s"
	long := testkit.Long(t, "a load of three seconds", "eleven of six seconds")
	if !long {
		cases, length = all[1:2], "3s"
	}
	t.Logf("%-29s %9s %9s %9s %8s", "load", "offered", "real", "simulated", "off by")
	for _, c := range cases {
		path := filepath.Join(t.TempDir(), "fleet.yaml")
		text := "reps: 5\npolicy: {fallback: deny}\nduration: " + length + "\n" + c.scenario + "\n"
		testkit.NoErr(t, os.WriteFile(path, []byte(text), 0o644))
		var b sideBySide
		var off float64
		busy, runs := "", 0
		testkit.EventuallyNil(t, func() error {
			b = prints[sideBySide](leasesim(t, "compare --live --redis "+redis+" -f "+path+" --out json"))
			processes := b.Real.Processes
			done := b.Real.Admitted > 0 && c.fates == [2]string{processes[0].Fate,
				processes[len(processes)-1].Fate}
			testkit.Must(t, b.Real.BoundExceededBy == 0, "%s: %+v", c.name, b.Real)
			off = float64(b.Real.Admitted)/b.Simulated.Admitted.Mean - 1
			if runs++; b.Real.Overloaded && runs == 5 {
				busy = "  this machine was too busy to judge"
			} else if !done || long && math.Abs(off) > 0.02 {
				return fmt.Errorf("%s: %d tokens are admitted, %v simulated: %+v", c.name, b.Real.Admitted,
					b.Simulated.Admitted.Mean, processes)
			}
			return nil
		})
		offered := float64(b.Real.Offered)
		// A kill comes a moment early or late.
		testkit.Check(t, offered == b.Simulated.Offered.Mean || c.fates[1] == "killed",
			"%s: %v are offered, %v simulated", c.name, offered, b.Simulated.Offered.Mean)
		t.Logf("%-29s %9.0f %9d %9.0f %7.2f %%%s", c.name, offered, b.Real.Admitted,
			b.Simulated.Admitted.Mean, 100*off,
			busy)
	}
}
