package report

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/combin"
)

// Change is how one figure differs between two reports.
type Change struct {
	Name       string     `json:"figure"` // its JSON key
	Before     float64    `json:"before"` // means over the replications
	After      float64    `json:"after"`
	Difference Difference `json:"difference"` // After less Before
	// BeyondNoise: other seeds would show a difference of this sign too, as far as Confidence goes.
	BeyondNoise bool   `json:"beyond_noise"`
	reps        [2]int // of before and after
}

// Paired reports whether the replications of two reports have the same seeds, so that their
// differences may be taken one by one.
func Paired(before, after *Report) bool {
	return before.Seed == after.Seed && len(before.Offered.Values) > 1 &&
		len(before.Offered.Values) == len(after.Offered.Values)
}

// Changes are those of figures that two reports have alike, such as Figures.All of each.
func Changes(before, after []Named, paired bool, confidence float64) (all []Change) {
	reps := func(figures []Named) (n int) { // a figure that was 0 in all may have been left out
		for _, f := range figures {
			n = max(n, len(f.Values))
		}
		return n
	}
	for _, b := range before {
		i := slices.IndexFunc(after, func(a Named) bool { return a.Name == b.Name })
		if i < 0 {
			continue
		}
		c := Change{Name: b.Name, Before: b.Mean, After: after[i].Mean, reps: [2]int{reps(before), reps(after)}}
		c.compare(*b.Figure, *after[i].Figure, paired, confidence)
		all = append(all, c)
	}
	return all
}

// signsMin is of how many pairs all must differ in one direction to be no luck: for 6 coins to fall
// alike is a chance of 3 %.
const signsMin = 6

// ordersMin is in how many ways the values of two sides can be mixed for it to be no luck that all
// of one side are above all of the other, which two of these ways are.
const ordersMin = 40

// TellNoise reports whether n and m replications are enough to tell any difference from noise.
func TellNoise(n, m int, paired bool) bool {
	if paired {
		return n >= signsMin
	}
	return min(n, m) > 1 && orders(n, m) >= ordersMin
}

// orders is in how many ways n and m values can be mixed, as far as ordersMin.
func orders(n, m int) int { return combin.Binomial(min(n, 10)+min(m, 10), min(n, 10)) }

func (c *Change) compare(b, a Figure, paired bool, confidence float64) {
	off := a.Mean - b.Mean
	switch ranged := b.Range || a.Range; {
	case paired:
		pairs := max(len(b.Values), len(a.Values))
		c.Difference = a.Over(b, confidence)
		c.BeyondNoise = c.Difference.Certain() && (!c.Difference.Range || TellNoise(pairs, pairs, true))
	case ranged:
		c.Difference = Difference{Mean: off, Low: a.Low - b.High, High: a.High - b.Low, Range: true}
		c.BeyondNoise = c.Difference.Certain() && TellNoise(c.reps[0], c.reps[1], false)
	default: // two means, each with its own noise
		half := math.Hypot(a.High-a.Mean, b.High-b.Mean)
		c.Difference = Difference{Mean: off, Low: off - half, High: off + half}
		// One replication says nothing of its noise.
		c.BeyondNoise = half > 0 && c.Difference.Certain() && min(c.reps[0], c.reps[1]) > 1
	}
}

// Over is how far f is above g, replication by replication: with the interval of Minus where both
// have one, else with the extremes of the differences.
func (f Figure) Over(g Figure, confidence float64) Difference {
	off := make([]float64, max(len(f.Values), len(g.Values)))
	if len(off) == 0 {
		return f.Minus(g, confidence)
	}
	for i := range off {
		off[i] = valueAt(f, i) - valueAt(g, i)
	}
	d := meanOf(off, confidence)
	if f.Range || g.Range {
		d.Range, d.Low, d.High = true, slices.Min(off), slices.Max(off)
	}
	return d
}

// valueAt returns the value of a replication. A figure that was 0 in all may be left out of JSON.
func valueAt(f Figure, i int) float64 {
	if i < len(f.Values) {
		return f.Values[i]
	}
	return 0
}
