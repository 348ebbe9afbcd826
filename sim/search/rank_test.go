package search

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// tried is a trial with the given margins and calls per replication.
func tried(name int64, means, surely, hopes float64, calls ...float64) *trial {
	t := &trial{choice: choice{ttl: time.Duration(name)}, means: means, surely: surely, hopes: hopes}
	t.report.Confidence = 0.95
	t.report.CallsPerS = sim.Figure{Values: calls}
	for _, c := range calls {
		t.report.CallsPerS.Mean += c / float64(len(calls))
	}
	return t
}

func namesOfAll(trials []*trial) (names []int64) {
	for _, t := range trials {
		names = append(names, int64(t.ttl))
	}
	return names
}

func TestThePromisingComeFirst(t *testing.T) {
	trials := []*trial{
		tried(1, 0.1, 0.1, 0.2, 300, 301, 302),  // certain, but dearer than 5, certainly
		tried(2, -0.2, -0.5, 0.1, 10, 11, 12),   // may turn out to meet the targets
		tried(3, -0.9, -1, -0.8, 1, 2, 3),       // cannot
		tried(4, 0.1, -0.1, 0.2, 90, 100, 110),  // in the mean
		tried(5, 0.3, 0.2, 0.4, 200, 201, 202),  // for certain
		tried(6, -0.1, -0.3, 0.1, 20, 21, 22),   // may, and lacks less than 2
		tried(7, 0.1, 0.1, 0.2, 100, 300, 260),  // more calls than 5 in the mean, but perhaps not
		tried(8, -0.8, -1, -0.7, 400, 400, 400), // cannot, lacks less than 3
	}
	if got := namesOfAll(ranked(trials)); !slices.Equal(got, []int64{4, 5, 7, 6, 2, 1, 8, 3}) {
		t.Errorf("%v", got)
	}
	// What is kept has the best of these, and the safest.
	for n, want := range map[int][]int64{3: {4, 5, 7}, 1: {5}, 99: {4, 5, 7, 6, 2, 1, 8, 3}} {
		if got := namesOfAll(keep(trials, n)); !slices.Equal(got, want) {
			t.Errorf("kept %v, want %v", got, want)
		}
	}
}

func TestTheOrderOfConfirmation(t *testing.T) {
	a, b := tried(1, 0.1, 0.05, 1, 100), tried(2, 0.3, 0.2, 1, 100.5)
	c, d := tried(3, 0.2, 0.1, 1, 150), tried(4, 0.1, -0.2, 1, 50)
	e, f := tried(5, 0.2, -0.1, 1, 60), tried(6, -0.1, -0.4, 1, 10)
	a.overcommit = 5
	// Those that are certain come first, of those that call alike the simpler; then by margin those
	// that are not; and what misses in the mean has no turn.
	if got := namesOfAll(candidates([]*trial{f, e, d, c, b, a})); !slices.Equal(got, []int64{2, 1, 3, 5, 4}) {
		t.Errorf("%v", got)
	}
	// Where nothing else is left, the nearest has it.
	if got := namesOfAll(candidates([]*trial{tried(7, -3, -4, -2, 1), f})); !slices.Equal(got, []int64{6}) {
		t.Errorf("%v", got)
	}
	// Of many, some at even distances and the safest have one.
	var many []*trial
	for i := range int64(9) {
		many = append(many, tried(10+i, 1, []float64{0.1, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1, 0.1}[i], 1, 100*float64(i+1)))
	}
	if got := namesOfAll(candidates(many)); !slices.Equal(got, []int64{10, 11, 12, 13, 18, 14}) {
		t.Errorf("%v", got)
	}
}

func TestSpacedKeepsTheEnds(t *testing.T) {
	var list []*trial
	for i := range int64(11) {
		list = append(list, tried(i, 0, 0, 0, 1))
	}
	for n, want := range map[int][]int64{3: {0, 5, 10}, 2: {0, 10}} {
		if got := namesOfAll(spaced(list, n)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := namesOfAll(spaced(list[:2], 3)); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("%v", got)
	}
}
