package search

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// tried is a trial with this TTL, which names it, and these margins and calls.
func tried(name time.Duration, surely, means, calls float64) *trial {
	t := &trial{changes: 1, targets: []Threshold{AtMost("false_reject_ratio", 1)}, report: &sim.Report{}}
	t.report.FalseRejectRatio = sim.Figure{High: 1 - surely, Mean: 1 - means}
	t.report.CallsPerS.Mean, t.scenario.Policy.TTL = calls, name
	return t
}

func namesOfAll(trials []*trial) (names []int64) {
	for _, t := range trials {
		names = append(names, int64(t.scenario.Policy.TTL))
	}
	return names
}

func TestThoseThatMeetTheTargetsAndCallLeastComeFirst(t *testing.T) {
	trials := []*trial{
		tried(1, 0.1, 0.1, 300),
		tried(2, -0.5, -0.2, 10), // misses, but by less than 3
		tried(3, -1, -0.9, 1),
		tried(4, -0.1, 0.1, 100), // meets them in the mean alone
		tried(5, 0.2, 0.3, 200),
		tried(6, 0.1, 0.1, 201.9), // as many calls as 5, but for what nobody would notice
	}
	testkit.Check(t, slices.Equal(namesOfAll(ranked(trials, expected)), []int64{4, 5, 6, 1, 2, 3}), "%v", namesOfAll(ranked(trials, expected)))
	testkit.Check(t, slices.Equal(namesOfAll(ranked(trials, pessimistic)), []int64{5, 6, 1, 4, 2, 3}), "%v", namesOfAll(ranked(trials, pessimistic)))
	// The promising are the best, and others that meet them in the mean; the nearest where none does.
	testkit.Check(t, slices.Equal(namesOfAll(promising(trials, pessimistic, 2)), []int64{5, 6, 1, 4}), "%v", namesOfAll(promising(trials, pessimistic, 2)))
	testkit.Check(t, slices.Equal(namesOfAll(promising(trials[1:3], pessimistic, 1)), []int64{2}), "%v", namesOfAll(promising(trials[1:3], pessimistic, 1)))
	// Of those that call alike, the scenario's own comes first, then the simpler one.
	trials[4].scenario.Policy.Overcommit = 5
	testkit.Check(t, slices.Equal(namesOfAll(ranked(trials, pessimistic)), []int64{6, 5, 1, 4, 2, 3}), "%v", namesOfAll(ranked(trials, pessimistic)))
	trials[4].changes = 0
	testkit.Check(t, slices.Equal(namesOfAll(ranked(trials, pessimistic)), []int64{5, 6, 1, 4, 2, 3}), "%v", namesOfAll(ranked(trials, pessimistic)))
}

func TestSpacedKeepsTheEnds(t *testing.T) {
	var list []*trial
	for i := range 11 {
		list = append(list, tried(time.Duration(i), 0, 0, 1))
	}
	for n, want := range map[int][]int64{3: {0, 5, 10}, 2: {0, 10}, 99: namesOfAll(list)} {
		got := namesOfAll(spaced(list, n))
		testkit.Check(t, slices.Equal(got, want), "%v, want %v", got, want)
	}
}

func TestAMarginIsAPartOfWhatTheTargetTolerates(t *testing.T) {
	r := &sim.Report{Figures: sim.Figures{
		FalseRejectRatio:  sim.Figure{Low: 0.001, Mean: 0.002, High: 0.004, Worst: 0.1},
		AdmittedVsCentral: sim.Figure{Low: 0.99, Mean: 0.995, High: 0.999},
		CallsPerS:         sim.Figure{Low: 90, Mean: 100, High: 110},
		Jain:              sim.Figure{Low: math.NaN(), Mean: math.NaN(), High: math.NaN()},
		BoundExceededBy:   sim.Figure{Low: -3, Mean: 1, High: 5, Worst: 7},
	}}
	for _, c := range []struct {
		target                Threshold
		pessimistic, expected float64
	}{
		{AtMost("false_reject_ratio", 0.005), 0.2, 0.6},
		{AtMost("false_reject_ratio", 0.002), -1, 0},
		{AtMost("false_reject_ratio", 0), -0.004, -0.002},
		{AtLeast("admitted_vs_central", 0.98), 0.5, 0.75},
		{AtLeast("admitted_vs_central", 1), -0.01, -0.005},
		{AtMost("calls_per_s", 100), -0.1, 0},
		{AtLeast("calls_per_s", 200), -110, -100},
		{AtLeast("jain", 0.9), math.Inf(-1), math.Inf(-1)},
		{promise, -7, -7},
		{AtMost("burnt", 0), math.Inf(1), math.Inf(1)}, // as it may be nothing, and is nothing
	} {
		for at, want := range []float64{c.pessimistic, c.expected} {
			got := c.target.margin(r, end(at))
			testkit.Check(t, got == want || math.Abs(got-want) < 1e-9, "%v at end %d: %v, want %v", c.target, at, got, want)
		}
	}
	// The least margin is that of the worst target; a promise that is kept has room without end.
	r.BoundExceededBy = sim.Figure{}
	x := &trial{report: r, targets: []Threshold{AtMost("calls_per_s", 120), AtMost("false_reject_ratio", 0.0041), promise}}
	surely, means := x.margin(pessimistic), x.margin(expected)
	testkit.Check(t, math.Abs(surely-0.0001/0.0041) < 1e-12 && math.Abs(means-20.0/120) < 1e-12, "%v, %v", surely, means)
	testkit.Check(t, x.graded().Meets && x.graded().Margins[2].Margin == 0, "%+v", x.graded().Margins)
}
