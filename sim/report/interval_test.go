package report

import (
	"math"
	"testing"
)

func TestQuantilesAreThoseOfThePublishedTables(t *testing.T) {
	// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2; and, for 0.999 of one degree, the
	// Cauchy distribution.
	for _, c := range []struct {
		confidence float64
		freedom    int
		want       float64
	}{
		{0.95, 1, 12.706}, {0.95, 2, 4.303}, {0.95, 3, 3.182}, {0.95, 4, 2.776}, {0.95, 9, 2.262},
		{0.95, 10, 2.228},
		{0.95, 29, 2.045}, {0.95, 30, 2.042}, {0.95, 99, 1.984}, {0.95, 100, 1.984}, {0.90, 5, 2.015},
		{0.90, 6, 1.943},
		{0.99, 1, 63.657}, {0.99, 7, 3.499}, {0.99, 8, 3.355}, {0.80, 19, 1.328}, {0.998, 20, 3.552},
		{0.95, 100_000, 1.960}, {0.999, 1, 636.619}, {0, 3, 0}, {1, 3, math.Inf(1)},
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
	if half := 4.302653 / math.Sqrt(3); d.Mean != 2 || math.Abs(d.High-2-half) > 1e-6 || math.Abs(2-d.Low-half) > 1e-6 || d.Certain() {
		t.Errorf("%+v", d)
	}
	if d := a.Minus(b, 0.5); !d.Certain() {
		t.Errorf("half confident: %+v", d)
	}
	one := Figure{Mean: 3, Values: []float64{3}}
	if d := one.Minus(b, 0.95); d != (Difference{Mean: -1, Low: -1, High: -1}) {
		t.Errorf("one pair: %+v", d)
	}
	if d := (Figure{Mean: 3}).Minus(b, 0.95); d != (Difference{Mean: -2, Low: -2, High: -2}) {
		t.Errorf("no values: %+v", d)
	}
}
