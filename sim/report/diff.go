package report

import (
	"math"
	"slices"
)

// Change is how one figure differs between two reports.
type Change struct {
	Name       string     `json:"figure"` // its JSON key
	Before     float64    `json:"before"` // means over the replications
	After      float64    `json:"after"`
	Difference Difference `json:"difference"` // After less Before
	// Range: Low and High of the difference are its extremes over the replications, as of a Figure
	// whose interval would not hold the mean as often as it says.
	Range bool `json:"range,omitempty"`
	// BeyondNoise: other seeds would show a difference of this sign too, as far as Confidence goes.
	BeyondNoise bool `json:"beyond_noise"`
}

// Paired reports whether the replications of two reports have the same seeds, so that their
// differences may be taken one by one.
func Paired(before, after *Report) bool {
	return before.Seed == after.Seed && len(before.Offered.Values) > 1 && len(before.Offered.Values) == len(after.Offered.Values)
}

// Changes are those of figures that two reports have alike, such as Figures.All of each.
func Changes(before, after []Named, paired bool, confidence float64) (all []Change) {
	for _, b := range before {
		i := slices.IndexFunc(after, func(a Named) bool { return a.Name == b.Name })
		if i < 0 {
			continue
		}
		c := Change{Name: b.Name, Before: b.Mean, After: after[i].Mean, Range: b.Range || after[i].Range}
		c.compare(*b.Figure, *after[i].Figure, paired, confidence)
		all = append(all, c)
	}
	return all
}

// signsMin is of how many pairs all must differ in one direction to be no luck: for 6 coins to fall
// alike is a chance of 3 %.
const signsMin = 6

func (c *Change) compare(b, a Figure, paired bool, confidence float64) {
	switch {
	case paired && c.Range:
		pairs := max(len(b.Values), len(a.Values))
		lows, highs := math.Inf(1), math.Inf(-1)
		for i := range pairs {
			off := valueAt(a, i) - valueAt(b, i)
			lows, highs = min(lows, off), max(highs, off)
		}
		if pairs == 0 { // 0 in all replications of both
			lows, highs = 0, 0
		}
		c.Difference = Difference{a.Mean - b.Mean, lows, highs}
		c.BeyondNoise = pairs >= signsMin && c.Difference.Certain()
	case paired && len(a.Values) == len(b.Values):
		c.Difference = a.Minus(b, confidence)
		c.BeyondNoise = c.Difference.Certain()
	case c.Range:
		c.Difference = Difference{a.Mean - b.Mean, a.Low - b.High, a.High - b.Low}
		c.BeyondNoise = c.Difference.Certain()
	default: // two means, each with its own noise
		half := math.Hypot(a.High-a.Mean, b.High-b.Mean)
		off := a.Mean - b.Mean
		c.Difference = Difference{off, off - half, off + half}
		c.BeyondNoise = half > 0 && c.Difference.Certain()
	}
}

// valueAt is what a replication showed. A figure that was 0 in all may be left out of JSON.
func valueAt(f Figure, i int) float64 {
	if i < len(f.Values) {
		return f.Values[i]
	}
	return 0
}
