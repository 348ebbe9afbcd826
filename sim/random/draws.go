package random

import (
	"fmt"
	"math"
	"math/bits"
)

// Exp is exponential with mean 1, by the ziggurat of Marsaglia and Tsang (2000) with 256 layers.
// 97.8 % of the draws cost one number, one product and one comparison, a quarter of the time of
// -Log(1-r.Float64()): every simulated request draws one.
func (r *Stream) Exp() float64 {
	n := r.Uint64()
	// The lowest 8 bits choose the layer, the highest 53 the place in it.
	l := &layers[n&0xff]
	if place := n >> 11; place < l.inside {
		return float64(float64(int64(place)) * l.scale)
	}
	return r.rim(n)
}

// rim is the rest of Exp where n did not fall inside its layer.
func (r *Stream) rim(n uint64) float64 {
	for {
		l := &layers[n&0xff]
		place := n >> 11
		x := float64(float64(int64(place)) * l.scale)
		switch {
		case place < l.inside:
			return x
		case n&0xff == 0: // beyond tail, the distribution is that of the whole, moved
			return tail + r.Exp()
		case l.low+float64(r.Float64()*l.height) < Exp(-x):
			return x
		}
		n = r.Uint64()
	}
}

// layer is a horizontal strip under e^-x; all have the same area, if what is beyond tail counts as
// part of the lowest.
type layer struct {
	inside uint64  // places below it are under the curve, whatever the height
	scale  float64 // the strip's width per place; 2^53 places are its width
	low    float64 // the strip is from this height
	height float64
}

const tail = 7.69711747013104972 // for 256 layers, from Marsaglia and Tsang

// layers starts with the lowest.
var layers = func() (all [256]layer) {
	area := float64((tail + 1) * Exp(-tail))
	width, next := area/Exp(-tail), tail // of the lowest: as if its tail, too, were a part of the rectangle
	for i := range all {
		all[i].inside = uint64(math.Floor(float64(next/width) * 0x1p53))
		all[i].scale = float64(width * 0x1p-53)
		all[i].low = Exp(-width)
		all[i].height = Exp(-next) - all[i].low
		width, next = next, 0
		if i < len(all)-2 {
			next = -Log(area/width + Exp(-width))
		}
	}
	return all
}()

// Normal is normal with mean 0 and standard deviation 1: the height of a random point of a circle
// whose radius is that of a two-dimensional normal distribution (Box and Muller, 1958).
func (r *Stream) Normal() float64 {
	radius := math.Sqrt(2 * r.Exp())
	return float64(radius * Sin(r.Float64()))
}

// Pareto is at least 1 and above x with probability x^-shape. The mean is shape/(shape-1), and
// infinite for a shape up to 1. The shape must be positive.
func (r *Stream) Pareto(shape float64) float64 { return Exp(r.Exp() / shape) }

// Weights draws one of n things with given probabilities, in the same time whatever n is: the alias method of
// Walker (1977), its table built as Vose (1991) did. It does not change, so that any number of goroutines may
// share it. The zero Weights has nothing to draw; NewWeights makes a good one.
type Weights struct{ columns []column }

// column i of the table is split between i and another.
type column struct {
	own   uint64 // the part that is i's, in 2^-64
	other uint32
}

// NewWeights makes the table for probabilities proportional to weights. They need not sum to 1. It panics
// unless there are 1 to 2^32-1 of them, all finite and not negative, with a finite sum above 0.
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

	// Columns hold 1/n each. One that is not filled by its own thing is topped up by one that has too much.
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
	// The rest is full, but for rounding.
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
