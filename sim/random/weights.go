package random

import (
	"fmt"
	"math"
	"math/bits"
)

// Weights draws one of n things with given probabilities, in the same time whatever n is: the alias
// method of Walker (1977), its table built as Vose (1991) did. It does not change, so that any
// number of goroutines may share it. The zero Weights has nothing to draw; NewWeights makes a good
// one.
type Weights struct{ columns []column }

// column i of the table is split between i and another.
type column struct {
	own   uint64 // the part that is i's, in 2^-64
	other uint32
}

// NewWeights makes the table for probabilities proportional to weights. They need not sum to 1. It
// panics unless there are 1 to 2^32-1 of them, all finite and not negative, with a finite sum above
// 0.
func NewWeights(weights []float64) *Weights {
	n := len(weights)
	if n == 0 || uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("random: %d weights, must be 1 to %d", n, uint32(math.MaxUint32)))
	}
	sum := 0.0
	for i, w := range weights {
		if !(w >= 0) {
			panic(fmt.Sprintf("random: weight %d is %g, must not be negative", i, w))
		}
		sum += w
	}
	if !(sum > 0 && sum <= math.MaxFloat64) {
		panic(fmt.Sprintf("random: the weights sum to %g, must be positive and finite", sum))
	}

	// Columns hold 1/n each. One that is not filled by its own thing is topped up by one that has
	// too much.
	left := make([]float64, n)
	var poor, rich []uint32
	for i, w := range weights {
		left[i] = float64(w / sum * float64(n))
		if left[i] < 1 {
			poor = append(poor, uint32(i))
		} else {
			rich = append(rich, uint32(i))
		}
	}
	columns := make([]column, n)
	for len(poor) > 0 && len(rich) > 0 {
		p, r := poor[len(poor)-1], rich[len(rich)-1]
		poor = poor[:len(poor)-1]
		columns[p] = column{own: uint64(int64(left[p]*0x1p63)) << 1, other: r}
		left[r] -= 1 - left[p]
		if left[r] < 1 {
			rich = rich[:len(rich)-1]
			poor = append(poor, r)
		}
	}
	// What remains is full, but for rounding.
	for _, i := range append(poor, rich...) {
		columns[i] = column{own: math.MaxUint64, other: i}
	}
	return &Weights{columns}
}

// Draw is the number, from 0, of one of them. It takes one number of the stream; each probability
// is within about n/2^52 of its weight's part, in the worst case; a weight of 0 is never drawn.
func (w *Weights) Draw(r *Stream) int {
	i, place := bits.Mul64(r.Uint64(), uint64(len(w.columns)))
	c := &w.columns[i]
	if place < c.own {
		return int(i)
	}
	return int(c.other)
}
