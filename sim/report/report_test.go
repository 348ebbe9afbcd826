package report

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// poured is max-min fairness by its definition: water rises in all vessels alike, each as wide as its weight
// and as high as was asked for, until the total is poured out. The level is found by halving.
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

func floats(xs []int64) (ys []float64) {
	for _, x := range xs {
		ys = append(ys, float64(x))
	}
	return ys
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
		got, want := maxMin(asked, floats(weights), float64(total)), poured(asked, weights, total)
		// then each gets what would fill his vessel.
		left := float64(total)
		for i := range n {
			testkit.Must(t, math.Abs(got[i]-want[i]) <= 1e-6*float64(total+1),
				"%d among %v with weights %v: %v, want %v", total, asked, weights, got, want)
			left -= got[i]
		}
		testkit.Must(t, math.Abs(left) <= 1e-6*float64(total+1),
			"%d among %v with weights %v: %v, which leaves %v", total, asked, weights, got, left)
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
		f := Judge(c.admitted, maxMin(c.offered, floats(c.weights), float64(sum(c.admitted))))
		testkit.Check(t, math.Abs(f.Jain-c.jain) <= 1e-12 && math.Abs(f.Worst-c.worst) <= 1e-12,
			"%s: Jain %v, worst share %v, want %v and %v", c.what, f.Jain, f.Worst, c.jain, c.worst)
	}
}

func TestQuantilesAreThoseOfThePublishedTables(t *testing.T) {
	// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2; and, for 0.999 of one degree, the
	// Cauchy distribution.
	for _, c := range []struct {
		confidence float64
		freedom    int
		want       float64
	}{
		{0.95, 1, 12.706}, {0.95, 2, 4.303}, {0.95, 9, 2.262}, {0.95, 99, 1.984}, {0.90, 5, 2.015},
		{0.99, 7, 3.499}, {0.998, 20, 3.552}, {0.999, 1, 636.619}, {0, 3, 0}, {1, 3, math.Inf(1)},
	} {
		if got := studentsT(c.confidence, c.freedom); got != c.want && !(math.Abs(got-c.want) < 0.0006) {
			t.Errorf("studentsT(%v, %d) is %.4f, want %.3f", c.confidence, c.freedom, got, c.want)
		}
	}
}

func TestMinusIsTheIntervalOfTheMeanDifference(t *testing.T) {
	a := Figure{Mean: 9, Values: []float64{5, 7, 9}}
	b := Figure{Mean: 5, Values: []float64{4, 5, 6, 99}}
	// differences 1, 2, 3: mean 2, deviation 1; t(95 %, 2) is 4.302653
	d := a.Minus(b, 0.95)
	if half := 4.302653 / math.Sqrt(3); d.Mean != 2 || math.Abs(d.High-2-half) > 1e-6 ||
		math.Abs(2-d.Low-half) > 1e-6 || d.Certain() {
		t.Errorf("%+v", d)
	}
	if d := a.Minus(b, 0.5); !d.Certain() {
		t.Errorf("half confident: %+v", d)
	}
	one := Figure{Mean: 3, Values: []float64{3}}
	if d := one.Minus(b, 0.95); d != (Difference{Mean: -1, Low: -1, High: -1}) {
		t.Errorf("one pair: %+v", d)
	}
	// Where an interval would promise too much, the difference has the extremes.
	b.Range = true
	if d := a.Minus(b, 0.95); d != (Difference{Mean: 2, Low: 1, High: 3, Range: true}) {
		t.Errorf("ranged: %+v", d)
	}
	if d := (Figure{Mean: 3}).Minus(b, 0.95); d != (Difference{Mean: -2, Low: -2, High: -2}) {
		t.Errorf("no values: %+v", d)
	}
}

// verdict is one request and what was decided about it.
type verdict struct {
	key         int32
	n           int64
	central, ok bool
}

func TestFalseRejectsAndSwapsOfKnownDecisions(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		what                        string
		verdicts                    []verdict
		admitted, rejected, swapped int64
	}{
		{"as one central bucket", []verdict{{0, 1, yes, yes}, {0, 5, no, no}}, 1, 0, 0},
		{"denied without need", []verdict{{0, 3, yes, no}}, 0, 3, 0},
		{"another was admitted in its place before", []verdict{{0, 3, no, yes}, {0, 2, yes, no}}, 3, 0, 2},
		{"a part of it in its place", []verdict{{0, 3, no, yes}, {0, 5, yes, no}}, 3, 2, 3},
		{"one place is taken once", []verdict{{0, 3, no, yes}, {0, 3, yes, no}, {0, 1, yes, no}}, 3, 1, 3},
		{"what comes later is no place", []verdict{{0, 3, yes, no}, {0, 3, no, yes}}, 3, 3, 0},
		{"nor is another key's", []verdict{{1, 3, no, yes}, {0, 3, yes, no}}, 3, 3, 0},
		{"of each key", []verdict{{1, 3, no, yes}, {0, 2, no, yes}, {1, 4, yes, no}, {0, 2, yes, no}}, 5, 1, 5},
	} {
		// Given requests that are decided in this order,
		got := NewTally(1, 2)
		for _, v := range c.verdicts {
			got.Decided(0, v.key, v.n, v.central, v.ok)
		}
		// then the tokens are counted as it says.
		if got.Admitted != c.admitted || got.FalseRejects != c.rejected || got.Swapped != c.swapped {
			t.Errorf("%s: %d admitted, %d rejected falsely, %d swapped, want %d, %d and %d", c.what, got.Admitted,
				got.FalseRejects, got.Swapped, c.admitted, c.rejected, c.swapped)
		}
		// And after the warm-up nothing of it counts, but the credit stays.
		credit := got.credit[0]
		got.Reset()
		got.Decided(0, 0, credit+1, true, false)
		if got.Admitted != 0 || got.FalseRejects != 1 || got.Swapped != credit ||
			!slices.Equal(got.ByProcess, []int64{0}) {
			t.Errorf("%s: after the warm-up there are %+v", c.what, got)
		}
	}
}

func TestWaitQuantilesOfKnownWaits(t *testing.T) {
	ms := func(from, to int) (all []time.Duration) {
		for n := from; n <= to; n++ {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	none := func(n int) []time.Duration { return make([]time.Duration, n) }
	for _, c := range []struct {
		what          string
		waits         []time.Duration
		p50, p99, max float64
	}{
		{"nobody", nil, 0, 0, 0},
		{"nobody waited", none(10), 0, 0, 0},
		{"one", ms(7, 7), 7, 7, 7},
		{"1 to 100 ms", ms(1, 100), 50, 99, 100},
		{"1 to 160 ms", ms(1, 160), 80, 159, 160}, // 99 % are 158.4
		{"1 to 200 ms", ms(1, 200), 100, 198, 200},
		{"one of two", append(ms(4, 4), 0), 0, 4, 4},
		{"one of a hundred", append(ms(4, 4), none(99)...), 0, 0, 4},
		{"two of a hundred", append(ms(4, 5), none(98)...), 0, 4, 5},
		{"fifty of a hundred", append(ms(1, 50), none(50)...), 0, 49, 50},
		{"fifty-one of a hundred", append(ms(1, 51), none(49)...), 1, 50, 51},
	} {
		// Given admitted requests that waited so long,
		w := NewWaits(time.Second)
		for _, wait := range c.waits {
			w.Add(int64(wait))
		}
		// then the quantiles are right to three digits.
		for percent, want := range map[int64]float64{50: c.p50, 99: c.p99, 100: c.max} {
			if got := w.Quantile(percent); got < want || got > want*1.001 {
				t.Errorf("%s: %d %% wait %v ms at most, want %v", c.what, percent, got, want)
			}
		}
	}
}
