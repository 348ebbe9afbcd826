package engine

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestAShareIsOfTheTimeInWhichAProcessRunsAndAsks(t *testing.T) {
	testkit.OneGoroutine(t)
	const grows = "duration: 10s, limits: [20000/s], workload: {load: 2}, groups: [{%s}]"
	const asks = "duration: 20s, limits: [2000/s burst 500], groups: [%s]"
	const others = "{count: 10, workload: {kind: poisson, rate: 4000/s}}, "
	fleets := []struct {
		format, group string
		jain, worst   float64
	}{
		// Older leases go on for a while.
		{grows, "count: 10, scale: [{at: 5s, count: 200}]", 0.96, 0},
		{grows, "count: 200, scale: [{at: 5s, count: 10}]", 0.96, 0},
		{grows, "count: 10, scale: [{at: 3s, count: 200}, {at: 6s, count: 40}, {at: 9s, count: 10, kill: true}]",
			0.96, 0},
		{grows, "count: 20, restarts: {every: 2s, for: 1s}", 0.96, 0},
		{asks, others + "{count: 10, workload: {kind: flash, rate: 1/s, factor: 4000, at: 1ms, for: 10s}}",
			0.995, 0.9},
		{asks, others + "{count: 10, workload: {kind: flash, rate: 1/s, factor: 4000, at: 10s, for: 10s}}",
			0.995, 0.9},
		{asks, "{count: 10, workload: {kind: onoff, rate: 4000/s, on: 3s, off: 3s}}", 0.995, 0.9},
		{asks, "{count: 20, pauses: {at: 5s, for: 8s}, workload: {kind: poisson, rate: 4000/s}}", 0.995, 0.9},
	}
	for _, c := range fleets[len(fleets)-testkit.ShortOrLong(t, 5, len(fleets), "fleets"):] {
		// Given equal processes under overload that come and go, or ask only part of the time,
		o := simulate(t, scene(t, "rivals: [central], "+c.format, c.group)).outcome()
		// when all is counted, then they got equal shares of the time in which they ran and asked,
		f, central := o.Figures, o.Rivals[0].Jain.Mean
		testkit.Check(t, f.Jain.Mean >= c.jain && f.WorstShare.Mean >= c.worst && central >= 0.99,
			"%s: Jain's index is %v, the worst share %v, Jain's index of central %v", c.group, f.Jain.Mean,
			f.WorstShare.Mean, central)
		// and the shares add up to the admitted tokens.
		total := 0.0
		for _, m := range o.Members {
			total += m.Share
		}
		testkit.Check(t, math.Abs(total/f.Admitted.Mean-1) < 0.0001, "%s: the shares add up to %v of %v", c.group,
			total, f.Admitted.Mean)
	}
}
