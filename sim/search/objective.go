package search

import (
	"math"
	"slices"

	"github.com/yuzhi-go/yuzhi/sim"
)

// sweepGoals lists the two figures that leases trade against each other: accuracy and calls. Both should be low.
var sweepGoals = []string{"false_reject_ratio", "calls_per_s"}

// FigureNames returns the JSON keys of a report's figures, in the report's order.
func FigureNames() (names []string) {
	for _, f := range (&sim.Figures{}).All() {
		names = append(names, f.Name)
	}
	return names
}

// FigureOf returns the figure of a report with this JSON key. FigureOf panics for an unknown name, which the
// parsers refuse.
func FigureOf(report interface{ All() []sim.Named }, name string) sim.Figure {
	all := report.All()
	return *all[slices.IndexFunc(all, func(named sim.Named) bool { return named.Name == name })].Figure
}

// paretoFront marks the rows that no row of the front beats. goals are figures that should be low. A row has the
// figures of one trial, and all trials have the same seeds. A row that is nil or has a NaN is not on the front, and beats no row. Beating
// is not transitive: a beaten row may beat the row that beats its winner. Beaten rows therefore do not count.
func paretoFront(goals []string, rows []*sim.Figures, confidence float64) []bool {
	on, of := make([]bool, len(rows)), make([][]sim.Figure, len(rows))
	var open []int // rows that are neither on the front nor beaten
	for i, row := range rows {
		if row == nil {
			continue
		}
		for _, goal := range goals {
			of[i] = append(of[i], FigureOf(row, goal))
		}
		if !slices.ContainsFunc(of[i], func(f sim.Figure) bool { return math.IsNaN(f.Mean) }) {
			open = append(open, i)
		}
	}
	beaten := func(i int, by []int) bool {
		return slices.ContainsFunc(by, func(k int) bool { return beats(of[k], of[i], confidence) })
	}
	for len(open) > 0 {
		stand := slices.DeleteFunc(slices.Clone(open), func(i int) bool { return beaten(i, open) })
		if len(stand) == 0 { // the open rows beat each other in a circle
			stand = open
		}
		for _, i := range stand {
			on[i] = true
		}
		open = slices.DeleteFunc(slices.Clone(open), func(i int) bool { return on[i] || beaten(i, stand) })
	}
	return on
}

// beats reports whether a is certainly lower than b in one figure and certainly higher in none, by the
// differences between replications with the same seeds. A row with a NaN neither beats a row nor is beaten.
func beats(a, b []sim.Figure, confidence float64) bool {
	better := false
	for k := range a {
		d := a[k].Minus(b[k], confidence)
		if d.Low > 0 {
			return false
		}
		better = better || d.High < 0
	}
	return better
}

// saturatedFrom is the fraction of busy time at which a shard of Redis counts as saturated. Calls to a
// saturated shard queue, and their waits show little about the policy.
const saturatedFrom = 0.9

// BusyMost is the largest fraction of busy time that leaves a shard room for work besides lease calls.
const BusyMost = 0.7

// Saturated reports whether the busiest shard was saturated in any replication. cpu is the figure redis_cpu.
func Saturated(cpu sim.Figure) bool { return cpu.Worst >= saturatedFrom }

// breaks reports whether any replication admitted more tokens than the promise allows.
func breaks(f *sim.Figures) bool { return f.BoundExceededBy.Worst > 0 }
