package random

import (
	"math"
	"testing"
)

// checkUniform bins numbers that must be uniform in [0, 1) and compares Pearson's statistic with
// its mean and standard deviation.
func checkUniform(t *testing.T, what string, bins, draws int, draw func() float64) {
	t.Helper()
	counts := make([]float64, bins)
	for range draws {
		u := draw()
		if !(u >= 0 && u < 1) {
			t.Fatalf("%s: %g is outside [0, 1)", what, u)
		}
		counts[int(u*float64(bins))]++
	}
	sum, each := 0.0, float64(draws)/float64(bins)
	for _, c := range counts {
		sum += (c - each) * (c - each) / each
	}
	freedom := float64(bins - 1)
	if sigmas := (sum - freedom) / math.Sqrt(2*freedom); math.Abs(sigmas) > 6 {
		t.Errorf("%s: chi square is %.0f with %.0f degrees of freedom, %.1f standard deviations off", what, sum, freedom, sigmas)
	}
}

// A variable's own distribution function of it is uniform: every error of a shape shows as an
// uneven bin.
func TestShapes(t *testing.T) {
	const bins, draws = 1000, 1_000_000
	r := New(3)
	checkUniform(t, "Float64", bins, draws, r.Float64)
	checkUniform(t, "Normal", bins, draws, func() float64 { return math.Erfc(r.Normal()/-math.Sqrt2) / 2 })
	checkUniform(t, "Pareto", bins, draws, func() float64 { return 1 - math.Pow(r.Pareto(1.5), -1.5) })
	// What the ziggurat does at the rims of its layers concerns 2 % of the draws; to see it takes
	// many.
	checkUniform(t, "Exp", bins, 16*draws, func() float64 { return -math.Expm1(-r.Exp()) })
}

func TestExpBeyondTheZiggurat(t *testing.T) {
	r := New(4)
	const draws = 16_000_000
	count, sum := 0.0, 0.0
	for range draws {
		if x := r.Exp(); x > tail {
			count++
			sum += x - tail
		}
	}
	if want := draws * math.Exp(-tail); math.Abs(count-want) > 6*math.Sqrt(want) {
		t.Errorf("%v of %d beyond %v, want %.0f", count, draws, tail, want)
	}
	if mean := sum / count; math.Abs(mean-1) > 6/math.Sqrt(count) {
		t.Errorf("the mean excess is %.3f, want 1", mean)
	}
}

// Moments, with the standard error of each: an even moment is the check of the tails.
func TestMoments(t *testing.T) {
	const n = 1_000_000
	r := New(5)
	moments := func(what string, draw func() float64, want ...float64) {
		t.Helper()
		got := make([]float64, len(want))
		for range n {
			x, p := draw(), 1.0
			for k := range got {
				p *= x
				got[k] += p / n
			}
		}
		for k := range len(want) / 2 { // the variance of x^k needs the moment 2k
			sigma := math.Sqrt((want[2*k+1] - want[k]*want[k]) / n)
			if math.Abs(got[k]-want[k]) > 6*sigma {
				t.Errorf("%s: moment %d is %.5f, want %.5f within %.5f", what, k+1, got[k], want[k], 6*sigma)
			}
		}
	}
	moments("uniform", r.Float64, 1./2, 1./3, 1./4, 1./5, 1./6, 1./7, 1./8, 1./9)
	moments("exponential", r.Exp, 1, 2, 6, 24, 120, 720, 5040, 40320)
	moments("normal", r.Normal, 0, 1, 0, 3, 0, 15, 0, 105)
	moments("pareto of shape 9", func() float64 { return r.Pareto(9) }, 9./8, 9./7, 9./6, 9./5, 9./4, 9./3, 9./2, 9.)
}
