package random

import (
	"math"
	"testing"
)

// parts is the probability of each thing, added up from the table.
func (w *Weights) parts() []float64 {
	ps := make([]float64, len(w.columns))
	for i, c := range w.columns {
		own := float64(c.own) * 0x1p-64
		ps[i] += own
		ps[c.other] += 1 - own
	}
	for i := range ps {
		ps[i] /= float64(len(ps))
	}
	return ps
}

func TestWeightsHoldTheirProbabilities(t *testing.T) {
	zipf := make([]float64, 100_000)
	for i := range zipf {
		zipf[i] = Pow(float64(i+1), -1.1)
	}
	equal := make([]float64, 7)
	for i := range equal {
		equal[i] = 1e300
	}
	for name, weights := range map[string][]float64{
		"one":     {0.3},
		"two":     {1, 3},
		"zeros":   {0, 5, 0, 0, 1, 0},
		"tiny":    {1e-320, 1, 1e-320},
		"equal":   equal,
		"popular": zipf,
	} {
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		parts := NewWeights(weights).parts()
		for i, p := range parts {
			if want := weights[i] / sum; math.Abs(p-want) > 1e-15*float64(len(weights)) {
				t.Errorf("%s: thing %d has probability %g, want %g", name, i, p, want)
			}
		}
	}
}

func TestDrawsFollowTheWeights(t *testing.T) {
	weights := []float64{0, 5, 1, 0, 2.5, 0.01, 3, 0}
	w, r := NewWeights(weights), New(9)
	const n, sum = 1_000_000, 11.51
	counts := make([]float64, len(w.columns))
	for range n {
		counts[w.Draw(&r)]++
	}
	for i, c := range counts {
		p := weights[i] / sum
		if sigma := math.Sqrt(n * p * (1 - p)); math.Abs(c-n*p) > 6*sigma {
			t.Errorf("thing %d: %v of %d draws, want %.0f within %.0f", i, c, n, n*p, 6*sigma)
		}
	}
}

func TestWeightsRefuseWhatIsNoDistribution(t *testing.T) {
	mustPanic(t, "random: 0 weights, must be 1 to 4294967295", func() { NewWeights(nil) })
	mustPanic(t, "random: weight 1 is -2, must not be negative", func() { NewWeights([]float64{1, -2}) })
	mustPanic(t, "random: weight 0 is NaN, must not be negative", func() { NewWeights([]float64{math.NaN()}) })
	mustPanic(t, "random: the weights sum to 0, must be positive and finite", func() { NewWeights([]float64{0, 0}) })
	mustPanic(t, "random: the weights sum to +Inf, must be positive and finite", func() { NewWeights([]float64{1e308, 1e308}) })
}
