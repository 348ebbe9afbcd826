package sweep

import (
	"math"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/student"
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

// Paired is a minus b, replication by replication, as far as both have some.
func Paired(a, b sim.Figure, confidence float64) Difference {
	n := min(len(a.Values), len(b.Values))
	if n == 0 {
		return Difference{a.Mean - b.Mean, a.Mean - b.Mean, a.Mean - b.Mean}
	}
	sum := 0.0
	for i := range n {
		sum += a.Values[i] - b.Values[i]
	}
	mean := sum / float64(n)
	if n == 1 {
		return Difference{mean, mean, mean}
	}
	squares := 0.0
	for i := range n {
		off := a.Values[i] - b.Values[i] - mean
		squares += float64(off * off)
	}
	half := 0.0
	if squares > 0 { // certain, whatever the confidence
		half = float64(student.Quantile(confidence, n-1) * math.Sqrt(squares/float64(n-1)/float64(n)))
	}
	return Difference{mean, mean - half, mean + half}
}
