package render

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks are at 1, 2 or 5 times a power of ten, as many as there is room for, labelled as this package writes numbers.
type ticks struct {
	most int // at least 2
	log  bool
}

func (t ticks) Ticks(low, high float64) (out []plot.Tick) {
	around := t.even
	if t.log {
		around = decades
	}
	values := around(low, high)
	for _, v := range values {
		if v >= low && v <= high {
			out = append(out, plot.Tick{Value: v, Label: Number(v)})
		}
	}
	return out
}

// even are the multiples of the least step that makes at most t.most of them.
func (t ticks) even(low, high float64) (values []float64) {
	span := high - low
	if !(span > 0) || !finite(span) {
		return nil
	}
	step := 0.0
	for e := exponent(span/float64(t.most), digitsMax); step == 0; e++ {
		for _, m := range []float64{1, 2, 5} {
			if s := m * ten(e); span/s <= float64(t.most-1) {
				step = s
				break
			}
		}
	}
	for k := math.Floor(low / step); k*step <= high; k++ {
		values = append(values, k*step)
	}
	return values
}

// decades are the powers of ten around low and high, and 2 and 5 times each where these are few.
func decades(low, high float64) (values []float64) {
	first, last := exponent(low, digitsMax), exponent(high, digitsMax)
	between := []float64{1}
	if last-first < 3 {
		between = []float64{1, 2, 5}
	}
	for e := first; e <= last; e++ {
		for _, m := range between {
			values = append(values, m*ten(e))
		}
	}
	return values
}

// ten is 10 to the power of e, the nearest there is.
func ten(e int) float64 {
	x, err := strconv.ParseFloat("1e"+strconv.Itoa(e), 64)
	if err != nil {
		return math.Inf(e)
	}
	return x
}
