package report_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/engine"
	"github.com/yuzhi-go/yuzhi/sim/report"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// everyFigure are those of the fleet, and then those of rivals and of classes.
func everyFigure(r *report.Report) (names []string, all []*report.Figure) {
	add := func(of string, figures []report.Named) {
		for _, f := range figures {
			names, all = append(names, of+f.Name), append(all, f.Figure)
		}
	}
	add("", r.Figures.All())
	for i := range r.Rivals {
		add(r.Rivals[i].Name+" ", r.Rivals[i].All())
	}
	for i := range r.Classes {
		add(fmt.Sprint(r.Classes[i].Headroom, " "), r.Classes[i].All())
	}
	return names, all
}

// replicationsOf are those that a report sums up.
func replicationsOf(r *report.Report) []report.Outcome {
	outcomes := make([]report.Outcome, r.Reps)
	_, from := everyFigure(r)
	for rep := range outcomes {
		one := report.Report{Rivals: make([]report.RivalReport, len(r.Rivals)),
			Classes: make([]report.ClassReport, len(r.Classes))}
		_, to := everyFigure(&one)
		for i, f := range to {
			f.Mean = from[i].Values[rep]
		}
		outcomes[rep] = report.Outcome{Figures: one.Figures, Rivals: one.Rivals, Classes: one.Classes}
	}
	return outcomes
}

func TestIntervalsHoldTheMeanAsOftenAsTheySay(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes four minutes with the race detector; .ci/run runs it without")
	}
	type ask struct {
		reps       int
		confidence float64
	}
	asks := []ask{{9, 0.95}, {10, 0.95}, {20, 0.95}, {30, 0.95}, {12, 0.9}, {25, 0.99}}
	long := testkit.Long(t, "10 replications of two scenes", "up to 30 of twelve")
	if !long {
		asks = asks[:2]
	}
	// The same every time: another draw of as many runs may be half a percent off.
	rnd, intervals := rand.New(rand.NewPCG(1, 2)), map[string]int{}
	for _, scene := range []struct{ name, text string }{
		{"overload", "limits: [1000/s burst 200], groups: [{count: 5}], workload: {load: 2}, rivals: [central, " +
			"fixed_window]"},
		{"calm", "limits: [1000/s burst 200], groups: [{count: 5}], workload: {load: 0.8}, rivals: [static_split]"},
		{"edge", "limits: [200/s burst 20], groups: [{count: 5}], workload: {load: 0.95}"},
		{"autoscale", `limits: [1000/s burst 100], groups: [{count: 2, scale: [{at: 1s, count: 10}]}], workload: ` +
			`{load: 1.5}`},
		{"allow all", `limits: [300/s burst 60], groups: [{count: 5}], network: {loss: 0.5%},
			policy: {fallback: allow_all},			workload: {load: 1.2}`},
		{"failover", `limits: [300/s burst 60], groups: [{count: 5}],
			redis: {faults: [{kind: failover, at: 1s, for: 200ms, lost: 100ms}]},
			policy: {fallback: deny}, workload: {load: 1.5}`},
		{"classes", `limits: [300/s burst 300], groups: [{count: 2, workload: {rate: 100/s}},
			{count: 3, headroom: 0.5,
			workload: {rate: 600/s}}]`},
		{"wait", "limits: [300/s burst 30], groups: [{count: 4}], workload: {load: 0.95, verb: wait, deadline: " +
			"300ms}"},
		// The figures of these have none: no ten replications tell what the others would.
		{"saturated", "limits: [2000/s burst 20], groups: [{count: 8}], redis: {service_time: exp(15ms)}"},
		{"bursts", "limits: [500/s burst 100], groups: [{count: 5}], workload: {kind: onoff, load: 0.7}"},
		{"restarts", `limits: [500/s], groups: [{count: 2, restarts: {every: 20s, for: 40ms}}], policy: ` +
			`{fallback: deny}`},
	} {
		if !long && scene.name != "edge" && scene.name != "saturated" {
			continue
		}
		// Given 400 replications,
		s, err := file.Parse("scene", fmt.Appendf(nil, "{duration: 2s, reps: 400, %s}", scene.text))
		testkit.NoErr(t, err)
		all, err := engine.Runner{}.Run(t.Context(), s)
		testkit.NoErr(t, err)
		names, figures := everyFigure(&all)
		replications := replicationsOf(&all)
		for _, ask := range asks {
			reps, confidence := ask.reps, ask.confidence
			// when runs of a few of them are summed up, again and again,
			const runs = 2000
			given, held := make([]int, len(figures)), make([]int, len(figures))
			for range runs {
				outcomes := make([]report.Outcome, reps)
				for rep := range outcomes {
					outcomes[rep] = replications[rnd.IntN(s.Reps)]
				}
				sum := report.Of(&s, outcomes, confidence)
				_, summed := everyFigure(&sum)
				for i, f := range summed {
					testkit.Must(t, f.Low >= 0 && f.Low <= f.Mean && f.Mean <= f.High || f.Range, "%s: %+v", names[i], f)
					if !f.Range {
						given[i]++
						if f.Low <= figures[i].Mean && figures[i].Mean <= f.High {
							held[i]++
						}
					}
				}
			}
			// then those of their figures that often have an interval have it around the mean of all
			// replications as often as it says, or a little more often.
			for i := range figures {
				part := float64(held[i]) / max(1, float64(given[i]))
				intervals[scene.name] += given[i]
				testkit.Check(t, reps >= 10 || given[i] == 0, "%s: %d replications have an interval", names[i], reps)
				testkit.Check(t, given[i] < runs/3 || part >= confidence-0.025 && part <= min(confidence+0.03, 1),
					"%s, %d replications: %.1f %% of %d intervals of %s hold the mean, want %.0f %%",
					scene.name, reps, 100*part, given[i], names[i], 100*confidence)
			}
		}
	}
	// And many have one, in each scene that can.
	for _, scene := range []string{"overload", "calm", "edge", "autoscale", "allow all", "failover", "classes",
		"wait"} {
		testkit.Check(t, intervals[scene] > 2500*len(asks) || !long && scene != "edge",
			"%s has %d intervals", scene, intervals[scene])
		delete(intervals, scene)
	}
	for scene, n := range intervals {
		testkit.Check(t, n == 0, "%s has %d intervals", scene, n)
	}
}

func TestIntervalsOfDifferencesHoldTheirMeanAsOftenAsTheySay(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("takes a minute with the race detector; .ci/run runs it without")
	}
	// Given 400 replications of two policies with the same seeds, which both lose a call now and
	// then,
	var of [2]report.Report
	var replications [2][]report.Outcome
	scenes, rnd := [2]scenario.Scenario{}, rand.New(rand.NewPCG(3, 4))
	for k, target := range []string{"100ms", "30ms"} {
		s, err := file.Parse("scene", fmt.Appendf(nil, `{duration: 2s, reps: 400,
			limits: [300/s burst 60], groups: [{count: 5}],
			network: {loss: 0.5%%}, policy: {fallback: allow_all, target: %s}, workload: {load: 1.2}}`, target))
		testkit.NoErr(t, err)
		of[k], err = engine.Runner{}.Run(t.Context(), s)
		testkit.NoErr(t, err)
		scenes[k], replications[k] = s, replicationsOf(&of[k])
	}
	before, after := of[0].Figures.All(), of[1].Figures.All()
	all := []int{5, 10, 20}
	for _, reps := range all[:testkit.ShortOrLong(t, 2, len(all), "numbers of pairs")] {
		given, held := map[string]int{}, map[string]int{}
		const runs = 2000
		for range runs {
			// when a few of them are compared one by one,
			outcomes := [2][]report.Outcome{}
			for range reps {
				which := rnd.IntN(len(replications[0]))
				for k := range outcomes {
					outcomes[k] = append(outcomes[k], replications[k][which])
				}
			}
			old, changed := report.Of(&scenes[0], outcomes[0], 0.95), report.Of(&scenes[1], outcomes[1], 0.95)
			from := old.Figures.All()
			for i, f := range changed.Figures.All() {
				mean := after[i].Mean - before[i].Mean
				if d := f.Minus(*from[i].Figure, 0.95); !d.Range {
					given[f.Name]++
					if d.Low <= mean && mean <= d.High {
						held[f.Name]++
					}
				}
			}
		}
		// then an interval holds the mean of all as often as it says (pairs were offered the same),
		// and a rare event has none. (A figure of whole tokens is held a little more often.)
		for name, n := range given {
			part := float64(held[name]) / float64(n)
			testkit.Check(t, n < runs/3 || name == "offered" || part >= 0.93 && part <= 0.975,
				"%d replications: %.1f %% of %d intervals of %s hold the mean", reps, 100*part, n, name)
		}
		testkit.Check(t, given["burnt"]+given["bound_exceeded_by"]+given["wait_ms_max"] == 0, "%v", given)
		testkit.Check(t, reps < 10 && len(given) == 0 || given["calls_per_s"] > runs*9/10,
			"%d replications: %v", reps, given)
	}
}
