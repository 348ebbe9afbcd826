package engine

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestALateProcessHasAShareOfItsOwnTime(t *testing.T) {
	testkit.OneGoroutine(t)
	for _, scale := range []string{
		"count: 10, scale: [{at: 5s, count: 200}]",
		"count: 200, scale: [{at: 5s, count: 10}]",
		"count: 10, scale: [{at: 3s, count: 200}, {at: 6s, count: 40}, {at: 9s, count: 10, kill: true}]",
		"count: 20, restarts: {every: 2s, for: 1s}",
	} {
		// Given a fleet of equal processes that grows or shrinks under overload,
		run := simulate(t, scene(t, `duration: 10s, limits: [20000/s], workload: {load: 2}, groups: [{%s}],
			rivals: [central]`, scale))
		// when all is counted, then processes with equal presence got equal shares: exactly in one
		// central bucket, and nearly in the fleet, where older leases go on for a while,
		o := run.outcome()
		for name, jain := range map[string][2]float64{
			"yuzhi": {o.Figures.Jain.Mean, 0.96}, "central": {o.Rivals[0].Jain.Mean, 0.99},
		} {
			testkit.Check(t, jain[0] >= jain[1], "%s: %s has Jain's index %v, want %v", scale, name, jain[0], jain[1])
		}
		// and the shares add up to the admitted tokens.
		total := 0.0
		for _, m := range o.Members {
			total += m.Share
		}
		testkit.Check(t, total > 0.9999*o.Figures.Admitted.Mean && total < 1.0001*o.Figures.Admitted.Mean,
			"%s: the shares add up to %v of %v", scale, total, o.Figures.Admitted.Mean)
	}
}

func TestAShareIsOfTheTimeInWhichAProcessAsks(t *testing.T) {
	const others = "{count: 10, workload: {kind: poisson, rate: 4000/s}}"
	for _, groups := range []string{
		others + ", {count: 10, workload: {kind: flash, rate: 1/s, factor: 4000, at: 1ms, for: 10s}}", // stops
		others + ", {count: 10, workload: {kind: flash, rate: 1/s, factor: 4000, at: 10s, for: 10s}}", // begins
		"{count: 10, workload: {kind: onoff, rate: 4000/s, on: 3s, off: 3s}}",
		"{count: 20, pauses: {at: 5s, for: 8s}, workload: {kind: poisson, rate: 4000/s}}",
	} {
		// Given processes that ask for more than the limit, some of them only part of the time,
		s := scene(t, "duration: 20s, limits: [2000/s burst 500], rivals: [central], groups: [%s]", groups)
		// when they get equal shares while they ask,
		o := simulate(t, s).outcome()
		// then the figures show equal shares.
		testkit.Check(t, o.Figures.Jain.Mean > 0.995 && o.Figures.WorstShare.Mean > 0.9 &&
			o.Rivals[0].Jain.Mean > 0.99,
			"%s: Jain's index is %v, the worst share %v, Jain's index of central %v", groups, o.Figures.Jain.Mean,
			o.Figures.WorstShare.Mean, o.Rivals[0].Jain.Mean)
	}
}
