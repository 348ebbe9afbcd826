package report

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Difference is how far a figure is from that of another scenario, in the mean over replications with the same seeds,
// with the confidence interval of that mean (Student's t). One pair has no interval: Low and High are the mean then.
type Difference struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Certain reports whether the interval leaves zero out: the difference is more than luck.
func (d Difference) Certain() bool { return d.Low > 0 || d.High < 0 }

// Minus is f less g, replication by replication, as far as both have some. Two replications with the same seed differ
// far less than their figures do, so that its interval is much narrower than those of f and g.
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

// studentsT is the t that a t-distributed quantity with the given degrees of freedom (at least 1) stays within, on both
// sides of zero, with probability confidence (0 to 1). It is rounded to a millionth: gonum computes with math.Log, whose
// last bit differs between machines, and a report must not.
func studentsT(confidence float64, freedom int) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile((1 + confidence) / 2)
	return math.Round(t*1e6) / 1e6
}
