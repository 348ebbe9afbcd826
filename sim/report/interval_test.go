package report

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
		{0.95, 100_000, 1.960}, {0.999, 1, 636.619}, {0, 3, 0}, {1, 3, math.Inf(1)},
	} {
		if got := studentsT(c.confidence, c.freedom); got != c.want && !(math.Abs(got-c.want) < 0.0006) {
			t.Errorf("studentsT(%v, %d) is %.4f, want %.3f", c.confidence, c.freedom, got, c.want)
		}
	}
}
