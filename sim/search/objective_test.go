package search

import (
	"math"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// ofMeans is the front of rows of figures without replications, which are as they are.
func ofMeans(rows [][]float64) []bool {
	goals := []string{"burnt", "stranded", "calls_per_s", "degraded"}
	figures := make([]*sim.Figures, len(rows))
	for i, row := range rows {
		if row != nil {
			f := &sim.Figures{}
			for k, figure := range []*sim.Figure{&f.Burnt, &f.Stranded, &f.CallsPerS, &f.Degraded}[:len(row)] {
				figure.Mean = row[k]
			}
			figures[i] = f
		}
	}
	return paretoFront(goals, figures, 0.95)
}

func TestTheFrontLeavesNoiseAndBrokenPromisesOut(t *testing.T) {
	row := func(calls float64, excess float64, rejects ...float64) Point {
		f := &sim.Figures{
			CallsPerS:        sim.Figure{Mean: calls, Values: slices.Repeat([]float64{calls}, 3)},
			BoundExceededBy:  sim.Figure{Worst: excess},
			FalseRejectRatio: sim.Figure{Values: rejects, Mean: (rejects[0] + rejects[1] + rejects[2]) / 3},
		}
		return Point{Figures: f}
	}
	for what, c := range map[string]struct {
		points []Point
		want   []bool
	}{
		"dearer, and better by luck": {
			[]Point{row(364, 0, .10, .13, .12), row(3600, 0, .12, .11, .11)}, []bool{true, false}},
		"dearer, and better on every seed": {
			[]Point{row(364, 0, .10, .13, .12), row(3600, 0, .08, .11, .10)}, []bool{true, true}},
		"cheap, and above the limit": {
			[]Point{row(3, 35816, .1, .1, .1), row(364, 0, .2, .2, .2)}, []bool{false, true}},
		// The second may be as good as the first, and the third as the second; the third is certainly
		// better than the first.
		"a chain": {
			[]Point{row(1, 0, .30, .31, .32), row(2, 0, .10, .31, .52), row(3, 0, .20, .21, .22)},
			[]bool{true, false, true},
		},
	} {
		// Given the points of a sweep, when they are compared, then these are on the front; but none by one
		// replication, which does not tell which of them differ.
		for _, reps := range []int{1, 3} {
			r := SweepReport{Points: c.points}
			r.Confidence, r.Reps = 0.95, reps
			r.compare()
			for i, want := range c.want {
				on := r.Points[i].Front
				testkit.Check(t, on == (want && reps > 1), "%s: point %d on the front: %v", what, i, on)
			}
		}
	}
}

func TestTheFrontIsWhatNothingBeats(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		rows [][]float64
		want []bool
	}{
		{nil, []bool{}},
		// Equal rows are marked alike; an unknown figure beats none.
		{[][]float64{nil, {1}, {0}, {0}}, []bool{false, false, true, true}},
		{[][]float64{{nan, 0}, {5, 5}, {-inf, nan}}, []bool{false, true, false}},
		{[][]float64{{-inf, 3}, {inf, 2}, {0, 3}, nil}, []bool{true, true, false, false}},
	} {
		testkit.Check(t, slices.Equal(ofMeans(c.rows), c.want), "%v: %v, want %v", c.rows, ofMeans(c.rows), c.want)
	}
	// Of many rows, each is beaten by one of the front, or on it.
	r := testkit.Rand(t)
	for range 500 {
		rows := make([][]float64, 1+r.IntN(40))
		for i := range rows {
			rows[i] = []float64{float64(r.IntN(9)), float64(r.IntN(9)), float64(r.IntN(9))}
		}
		on := ofMeans(rows)
		for i, row := range rows {
			beaten := false
			for k, other := range rows {
				worst := max(other[0]-row[0], other[1]-row[1], other[2]-row[2])
				beaten = beaten || on[k] && worst <= 0 && !slices.Equal(other, row)
			}
			testkit.Must(t, on[i] != beaten, "%v: row %d: on the front: %v, beaten: %v", rows, i, on[i], beaten)
		}
	}
}
