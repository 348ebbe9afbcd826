package random

import (
	"math"
	"math/bits"
)

// Exp returns an exponential number with mean 1, by the ziggurat of Marsaglia and Tsang (2000) with 256
// layers, in a quarter of the time of -Log(1-r.Float64()). Every simulated request calls Exp.
func (r *Stream) Exp() float64 {
	n := r.Uint64()
	// The lowest 8 bits of n choose the layer, and the highest 53 bits the place in the layer.
	l := &layers[n&0xff]
	if place := n >> 11; place < l.inside {
		return float64(float64(int64(place)) * l.scale)
	}
	return r.rim(n)
}

// rim completes Exp if n is not inside its layer.
func (r *Stream) rim(n uint64) float64 {
	for {
		l := &layers[n&0xff]
		place := n >> 11
		x := float64(float64(int64(place)) * l.scale)
		switch {
		case place < l.inside:
			return x
		case n&0xff == 0: // beyond tail, x - tail has the same distribution as x
			return tail + r.Exp()
		case l.low+float64(r.Float64()*l.height) < Exp(-x):
			return x
		}
		n = r.Uint64()
	}
}

// layer is a horizontal strip under the curve e^-x. All layers have the same area, if the area under the
// curve beyond tail counts as a piece of the lowest layer.
type layer struct {
	inside uint64  // places below inside are under the curve at any height of the strip
	scale  float64 // width per place; a strip has 2^53 places
	low    float64 // lower edge of the strip
	height float64
}

const tail = 7.69711747013104972 // the value for 256 layers, from Marsaglia and Tsang

// layers lists the 256 layers, the lowest first.
var layers = func() (all [256]layer) {
	area := float64((tail + 1) * Exp(-tail))
	// The width of the lowest layer counts the layer's tail as part of the rectangle.
	width, next := area/Exp(-tail), tail
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

// Normal returns a normal number with mean 0 and standard deviation 1, by Box and Muller (1958).
func (r *Stream) Normal() float64 {
	radius := math.Sqrt(2 * r.Exp())
	return float64(radius * Sin(r.Float64()))
}

// Weights draws one of n items with given probabilities, in a time that does not depend on n: by the alias
// method of Walker (1977), with the table of Vose (1991). A Weights never changes.
type Weights struct{ columns []column }

// column i of the table is divided between item i and one other item.
type column struct {
	own   uint64 // the share of item i in the column, in units of 2^-64
	other uint32
}

// NewWeights makes the table for probabilities proportional to weights, which must not be negative. Their sum
// must be positive and finite, and need not be 1.
func NewWeights(weights []float64) *Weights {
	n, sum := len(weights), 0.0
	for _, w := range weights {
		sum += w
	}

	// Each column holds a probability of 1/n. A column that its own item does not fill is topped up from an
	// item whose probability exceeds 1/n.
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
	// The columns that remain are full, except for rounding errors.
	for _, i := range append(poor, rich...) {
		columns[i] = column{own: math.MaxUint64, other: i}
	}
	return &Weights{columns}
}

// Draw returns the number of an item, counted from 0. Each item's probability differs from its exact value by
// at most about n/2^52. An item of weight 0 is never drawn.
func (w *Weights) Draw(r *Stream) int {
	i, place := bits.Mul64(r.Uint64(), uint64(len(w.columns)))
	c := &w.columns[i]
	if place < c.own {
		return int(i)
	}
	return int(c.other)
}
