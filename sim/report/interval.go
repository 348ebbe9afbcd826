package report

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Difference is how far a figure is from that of another scenario: the mean over replications with
// the same seeds, and its confidence interval (Student's t). Of one pair, Low and High are the
// mean.
type Difference struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Certain reports whether the interval leaves zero out: the difference is more than luck.
func (d Difference) Certain() bool { return d.Low > 0 || d.High < 0 }

// Minus is f less g, replication by replication, as far as both have some. Two replications with
// the same seed are alike, so the interval of their difference is much narrower than those of f and
// g.
func (f Figure) Minus(g Figure, confidence float64) Difference {
	n := min(len(f.Values), len(g.Values))
	if n == 0 {
		return Difference{f.Mean - g.Mean, f.Mean - g.Mean, f.Mean - g.Mean}
	}
	sum := 0.0
	for i := range n {
		sum += f.Values[i] - g.Values[i]
	}
	mean := sum / float64(n)
	if n == 1 {
		return Difference{mean, mean, mean}
	}
	squares := 0.0
	for i := range n {
		off := f.Values[i] - g.Values[i] - mean
		squares += float64(off * off)
	}
	half := 0.0
	if squares > 0 { // certain, whatever the confidence
		half = float64(studentsT(confidence, n-1) * math.Sqrt(squares/float64(n-1)/float64(n)))
	}
	return Difference{mean, mean - half, mean + half}
}

// studentsT is the t within which, on both sides of zero, a t-distributed quantity lies with
// probability confidence (0 to 1). freedom is its degrees of freedom, 1 or more. The result is
// rounded to a millionth, because gonum computes with math.Log, whose last bit differs between
// machines.
func studentsT(confidence float64, freedom int) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile((1 + confidence) / 2)
	return math.Round(t*1e6) / 1e6
}
