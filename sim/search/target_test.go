package search

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim"
)

func TestAMarginIsAPartOfWhatTheTargetTolerates(t *testing.T) {
	f := sim.Figures{
		FalseRejectRatio:  sim.Figure{Low: 0.001, Mean: 0.002, High: 0.004, Worst: 0.1},
		AdmittedVsCentral: sim.Figure{Low: 0.99, Mean: 0.995, High: 0.999},
		CallsPerS:         sim.Figure{Low: 90, Mean: 100, High: 110},
		Jain:              sim.Figure{Low: math.NaN(), Mean: math.NaN(), High: math.NaN()},
		BoundExceededBy:   sim.Figure{Low: -3, Mean: 1, High: 5, Worst: 7},
	}
	for _, c := range []struct {
		target                         Target
		pessimistic, expected, hopeful float64
	}{
		{AtMost("false_reject_ratio", 0.005), 0.2, 0.6, 0.8},
		{AtMost("false_reject_ratio", 0.002), -1, 0, 0.5},
		{AtMost("false_reject_ratio", 0), -0.004, -0.002, -0.001},
		{AtLeast("admitted_vs_central", 0.98), 0.5, 0.75, 0.95},
		{AtLeast("admitted_vs_central", 1), -0.01, -0.005, -0.001},
		{AtMost("calls_per_s", 100), -0.1, 0, 0.1},
		{AtLeast("calls_per_s", 200), -0.55, -0.5, -0.45},
		{AtLeast("jain", 0.9), math.Inf(-1), math.Inf(-1), math.Inf(-1)},
		{AtMost(BoundFigure, 0), -7, -7, -7},
	} {
		for at, want := range map[end]float64{pessimistic: c.pessimistic, expected: c.expected, optimistic: c.hopeful} {
			if got := c.target.margin(&f, at); got != want && !(math.Abs(got-want) <= 1e-9) {
				t.Errorf("%v at end %d: %v, want %v", c.target, at, got, want)
			}
		}
	}
	f.BoundExceededBy = sim.Figure{}
	if got := AtMost(BoundFigure, 0).margin(&f, pessimistic); !math.IsInf(got, 1) {
		t.Errorf("a promise that is kept leaves %v", got)
	}
}

func TestTheLeastMarginIsThatOfTheWorstTarget(t *testing.T) {
	f := sim.Figures{FalseRejectRatio: sim.Figure{High: 0.004}, CallsPerS: sim.Figure{High: 90}}
	targets := []Target{AtMost("calls_per_s", 100), AtMost("false_reject_ratio", 0.0041), AtMost(BoundFigure, 0)}
	if m := least(targets, &f, pessimistic); math.Abs(m-0.0001/0.0041) > 1e-12 {
		t.Error(m)
	}
}
