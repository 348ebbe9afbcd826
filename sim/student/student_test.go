package student

import (
	"math"
	"testing"
)

func TestQuantilesAreThoseOfThePublishedTables(t *testing.T) {
	// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2; and, for 0.999 of one degree, the Cauchy distribution.
	for _, c := range []struct {
		confidence float64
		freedom    int
		want       float64
	}{
		{0.95, 1, 12.706}, {0.95, 2, 4.303}, {0.95, 3, 3.182}, {0.95, 4, 2.776}, {0.95, 9, 2.262}, {0.95, 10, 2.228},
		{0.95, 29, 2.045}, {0.95, 30, 2.042}, {0.95, 99, 1.984}, {0.95, 100, 1.984}, {0.90, 5, 2.015}, {0.90, 6, 1.943},
		{0.99, 1, 63.657}, {0.99, 7, 3.499}, {0.99, 8, 3.355}, {0.80, 19, 1.328}, {0.998, 20, 3.552},
		{0.95, 100_000, 1.960}, {0.999, 1, 636.619},
	} {
		if got := Quantile(c.confidence, c.freedom); math.Abs(got-c.want) > 0.0006 {
			t.Errorf("Quantile(%v, %d) is %.4f, want %.3f", c.confidence, c.freedom, got, c.want)
		}
	}
}

func TestQuantileOfOneAndTwoDegreesHaveClosedForms(t *testing.T) {
	for p := 0.01; p < 1; p += 0.01 {
		if got, want := Quantile(p, 1), math.Tan(math.Pi*p/2); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("Quantile(%v, 1) is %v, want %v", p, got, want)
		}
		if got, want := Quantile(p, 2), math.Sqrt(2)*p/math.Sqrt(1-p*p); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("Quantile(%v, 2) is %v, want %v", p, got, want)
		}
	}
}

func TestQuantileAtItsEnds(t *testing.T) {
	for _, freedom := range []int{-1, 0} {
		if got := Quantile(0.95, freedom); !math.IsInf(got, 1) {
			t.Errorf("%d degrees: %v", freedom, got)
		}
	}
	for freedom := 1; freedom < 5; freedom++ {
		if got := Quantile(0, freedom); got != 0 {
			t.Errorf("confidence 0, %d degrees: %v", freedom, got)
		}
		if got := Quantile(1, freedom); !math.IsInf(got, 1) {
			t.Errorf("confidence 1, %d degrees: %v", freedom, got)
		}
		if got := Quantile(1-1e-16, freedom); !(got > 1e4) {
			t.Errorf("confidence next to 1, %d degrees: %v", freedom, got)
		}
	}
}
