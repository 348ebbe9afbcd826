package report

import (
	"math"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// poured is max-min fairness by its definition: water rises in all vessels alike, each as wide as
// its weight and as high as was asked for, until the total is poured out. The level is found by
// halving.
func poured(asked, weights []int64, total int64) []float64 {
	at := func(level float64) (shares []float64, sum float64) {
		for i := range asked {
			share := min(float64(asked[i]), level*float64(weights[i]))
			shares = append(shares, share)
			sum += share
		}
		return shares, sum
	}
	low, high := 0.0, float64(total)+1
	for range 200 {
		mid := (low + high) / 2
		if _, sum := at(mid); sum < float64(total) {
			low = mid
		} else {
			high = mid
		}
	}
	shares, _ := at(high)
	return shares
}

func TestMaxMinSharesAreThoseOfWaterPouredOut(t *testing.T) {
	rnd := testkit.Rand(t)
	for range 3000 {
		// Given some processes, of which some ask for nothing, and some for the same,
		n := 1 + rnd.IntN(12)
		asked, weights := make([]int64, n), make([]int64, n)
		sum := int64(0)
		for i := range n {
			asked[i] = max(0, rnd.Int64N(1+[]int64{3, 100, 1e6}[rnd.IntN(3)])-1)
			weights[i] = 1 + rnd.Int64N([]int64{1, 4, 1000}[rnd.IntN(3)])
			sum += asked[i]
		}
		total := rnd.Int64N(sum + 1)
		// when what was admitted is divided,
		got, want := maxMin(asked, weights, total), poured(asked, weights, total)
		// then each gets what would fill his vessel.
		left := float64(total)
		for i := range n {
			if math.Abs(got[i]-want[i]) > 1e-6*float64(total+1) {
				t.Fatalf("%d among %v with weights %v: %v, want %v", total, asked, weights, got, want)
			}
			left -= got[i]
		}
		if math.Abs(left) > 1e-6*float64(total+1) {
			t.Fatalf("%d among %v with weights %v: %v, which leaves %v", total, asked, weights, got, left)
		}
	}
}

func TestMaxMinSharesOfKnownCases(t *testing.T) {
	for _, c := range []struct {
		asked, weights []int64
		total          int64
		want           []float64
	}{
		{[]int64{10, 10, 10}, []int64{1, 1, 1}, 15, []float64{5, 5, 5}},
		{[]int64{2, 10, 10}, []int64{1, 1, 1}, 12, []float64{2, 5, 5}},
		{[]int64{2, 4, 10}, []int64{1, 1, 1}, 16, []float64{2, 4, 10}}, // enough for all
		{[]int64{100, 100}, []int64{1, 3}, 40, []float64{10, 30}},      // by weight
		{[]int64{100, 20}, []int64{1, 3}, 40, []float64{20, 20}},
		// who wants less leaves it to the others
		{[]int64{0, 10}, []int64{5, 1}, 8, []float64{0, 8}},                  // who wants nothing gets nothing
		{[]int64{1, 2, 3, 4}, []int64{1, 1, 1, 1}, 0, []float64{0, 0, 0, 0}}, // there is nothing
		{nil, nil, 0, []float64{}},
	} {
		if got := maxMin(c.asked, c.weights, c.total); !slices.Equal(got, c.want) {
			t.Errorf("%d among %v with weights %v: %v, want %v", c.total, c.asked, c.weights, got, c.want)
		}
	}
}

func TestFairnessOfKnownCases(t *testing.T) {
	for _, c := range []struct {
		what              string
		offered, admitted []int64
		weights           []int64
		jain, worst       float64
	}{
		{"all the same", []int64{9, 9, 9}, []int64{4, 4, 4}, []int64{1, 1, 1}, 1, 1},
		{"one has it all", []int64{9, 9, 9, 9}, []int64{8, 0, 0, 0}, []int64{1, 1, 1, 1}, 0.25, 0},
		{"a half, one, one and a half", []int64{9, 9, 9}, []int64{1, 2, 3}, []int64{1, 1, 1}, 6. / 7, 0.5},
		{"as the weights say", []int64{90, 90}, []int64{10, 30}, []int64{1, 3}, 1, 1},
		{"the same, but not what the weights say", []int64{90, 90}, []int64{20, 20}, []int64{1, 3}, 0.8, 2. / 3},
		// 2 and 2/3
		{"who asked for little got it", []int64{1, 90}, []int64{1, 50}, []int64{1, 1}, 1, 1},
		{"who asked for nothing is not judged", []int64{0, 90, 90}, []int64{0, 7, 7}, []int64{1, 1, 1}, 1, 1},
		{"nobody got anything", []int64{5, 5}, []int64{0, 0}, []int64{1, 1}, 1, 1},
		{"nobody asked", []int64{0}, []int64{0}, []int64{1}, 1, 1},
	} {
		f := FairnessOf(c.offered, c.admitted, c.weights)
		if math.Abs(f.Jain-c.jain) > 1e-12 || math.Abs(f.Worst-c.worst) > 1e-12 {
			t.Errorf("%s: Jain %v, worst share %v, want %v and %v", c.what, f.Jain, f.Worst, c.jain, c.worst)
		}
	}
}
