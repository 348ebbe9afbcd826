package report_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/engine"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

func TestIntervalsHoldTheMeanAsOftenAsTheySay(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes four minutes with the race detector; .ci/run runs it without")
	}
	// The same every time: another draw of as many runs may be half a percent off.
	rnd, intervals := rand.New(rand.NewPCG(1, 2)), 0
	for _, scene := range []struct{ name, text string }{
		{"overload", "limits: [1000/s burst 200], groups: [{count: 5}], workload: {load: 2}"},
		{"calm", "limits: [1000/s burst 200], groups: [{count: 5}], workload: {load: 0.8}"},
		{"edge", "limits: [200/s burst 20], groups: [{count: 5}], workload: {load: 0.95}"},
		{"bursts", "limits: [500/s burst 100], groups: [{count: 5}], workload: {kind: onoff, load: 0.7}"},
		{"faults", `limits: [500/s], groups: [{count: 8, restarts: {every: 5s, for: 40ms}}], network: {loss: 1%}, policy: {fallback: deny}`},
		{"rare", `limits: [500/s], groups: [{count: 2, restarts: {every: 20s, for: 40ms}}], policy: {fallback: deny}`},
		{"wait", `limits: [300/s burst 30], groups: [{count: 4}], workload: {kind: pareto, verb: wait, deadline: 300ms}`},
		{"autoscale", `limits: [1000/s burst 100], groups: [{count: 2, scale: [{at: 1s, count: 10}]}], workload: {load: 1.5}`},
	} {
		// Given 200 replications,
		s, err := file.Parse("scene", fmt.Appendf(nil, "{duration: 2s, reps: 200, %s}", scene.text))
		testkit.NoErr(t, err)
		all, err := engine.Runner{}.Run(t.Context(), s)
		testkit.NoErr(t, err)
		figures := all.Figures.All()
		for _, reps := range []int{9, 10, 20} {
			// when runs of a few of them are summed up, again and again,
			const runs = 2000
			given, held := make([]int, len(figures)), make([]int, len(figures))
			for range runs {
				outcomes := make([]report.Outcome, reps)
				for rep := range outcomes {
					which := rnd.IntN(s.Reps)
					for i, f := range outcomes[rep].Figures.All() {
						f.Mean = figures[i].Values[which]
					}
				}
				sum := report.Of(&s, outcomes, 0.95)
				for i, f := range sum.Figures.All() {
					testkit.Must(t, f.Low >= 0 && f.Low <= f.Mean && f.Mean <= f.High || f.Range, "%s: %+v", f.Name, f.Figure)
					if !f.Range {
						given[i]++
						if f.Low <= figures[i].Mean && figures[i].Mean <= f.High {
							held[i]++
						}
					}
				}
			}
			// then those of their figures that have an interval have it around the mean of all replications
			// as often as it says,
			for i, f := range figures {
				part := float64(held[i]) / max(1, float64(given[i]))
				testkit.Check(t, reps >= 10 || given[i] == 0, "%s: %d replications have an interval", f.Name, reps)
				testkit.Check(t, given[i] < runs/20 || part >= 0.93 && part <= 0.97,
					"%s, %d replications: %d of %d intervals of %s hold the mean, want 93 to 97 %%",
					scene.name, reps, held[i], given[i], f.Name)
				intervals += given[i]
			}
		}
	}
	// and many have one.
	testkit.Check(t, intervals > 90_000, "there are %d intervals", intervals)
}
