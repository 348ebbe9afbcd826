package random

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// checkUniform bins numbers that must be uniform in [0, 1) and compares Pearson's statistic with
// its mean and standard deviation.
func checkUniform(t *testing.T, what string, bins, draws int, draw func() float64) {
	t.Helper()
	counts := make([]float64, bins)
	for range draws {
		u := draw()
		testkit.Must(t, u >= 0 && u < 1, "%s: %g is outside [0, 1)", what, u)
		counts[int(u*float64(bins))]++
	}
	sum, each := 0.0, float64(draws)/float64(bins)
	for _, c := range counts {
		sum += (c - each) * (c - each) / each
	}
	freedom := float64(bins - 1)
	if sigmas := (sum - freedom) / math.Sqrt(2*freedom); math.Abs(sigmas) > 6 {
		t.Errorf("%s: chi square is %.0f with %.0f degrees of freedom, %.1f sigma off", what, sum, freedom, sigmas)
	}
}

// A variable's own distribution function of it is uniform: every error of a shape shows as an uneven bin.
func TestShapes(t *testing.T) {
	const bins = 1000
	draws := testkit.ShortOrLong(t, 200_000, testkit.PlainOrRace(1_000_000, 200_000), "draws")
	r := New(3)
	checkUniform(t, "Float64", bins, draws, r.Float64)
	checkUniform(t, "Normal", bins, draws, func() float64 { return math.Erfc(r.Normal()/-math.Sqrt2) / 2 })
	// 2 % of the draws are at the rims of the ziggurat's layers, so a check needs many.
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
	mean := sum / count
	testkit.Check(t, math.Abs(mean-1) <= 6/math.Sqrt(count), "the mean excess is %.3f, want 1", mean)
}

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
			want := weights[i] / sum
			testkit.Check(t, math.Abs(p-want) <= 1e-15*float64(len(weights)),
				"%s: thing %d has probability %g, want %g", name, i, p, want)
		}
	}
}
