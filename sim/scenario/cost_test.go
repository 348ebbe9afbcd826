package scenario

import (
	"math"
	"slices"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/random"
)

// costs that are heavy-tailed, from nearly even to all alike.
var tails = []Cost{
	{1, 500, 1.3}, {1, 1_000_000, 1.3}, {1, 1_000_000_000, 0.01}, {3, 20_000, 1}, {7, 5000, 0.5}, {1, 900, 2.5},
	{1, 1 << 40, 100}, {40, 40, 1.5}, {1, 2, 1.1},
}

// TestAHeavyTailIsWhatItSays: each cost comes as often as the bounded Pareto distribution has it, and
// the mean is that of the probabilities.
func TestAHeavyTailIsWhatItSays(t *testing.T) {
	const n = 200_000
	seed := testkit.Seed(t)
	for i, c := range tails {
		r := random.New(seed, uint64(i))
		// Given the share of a continuous one above x,
		above := func(x float64) float64 {
			end := math.Pow(float64(c.Min)/float64(c.Max), c.Shape)
			return (math.Pow(float64(c.Min)/x, c.Shape) - end) / (1 - end)
		}
		if c.Max < 2_000_000 { // which are not too many to add up
			want := float64(c.Min)
			for k := c.Min + 1; k <= c.Max; k++ {
				want += above(float64(k) - 0.5)
			}
			testkit.Check(t, math.Abs(c.Mean()/want-1) < 1e-6, "%+v: the mean is %v, want %v", c, c.Mean(), want)
		}
		// when many are drawn,
		least, most, total := int64(math.MaxInt64), int64(0), 0.0
		beyond := map[int64]int{}
		marks := []int64{c.Min + 1, 2*c.Min + 1, 10 * c.Min, c.Max / 2, c.Max}
		slices.Sort(marks)
		marks = slices.Compact(marks)
		for range n {
			x := c.Sample(&r)
			least, most, total = min(least, x), max(most, x), total+float64(x)
			for _, m := range marks {
				if x >= m {
					beyond[m]++
				}
			}
		}
		// then they are within the bounds,
		testkit.Check(t, least >= c.Min && most <= c.Max, "%+v: from %d to %d", c, least, most)
		// as many as should are above each mark, being rounded to the nearest,
		for _, m := range marks {
			if m <= c.Min || m > c.Max {
				continue
			}
			want := above(float64(m) - 0.5)
			sigma := math.Sqrt(want * (1 - want) / n)
			got := float64(beyond[m]) / n
			// Three more, as what hardly ever happens is not normal.
			testkit.Check(t, math.Abs(got-want) < 5*sigma+3.5/n, "%+v: %v cost %d and more, want %v", c, got, m, want)
		}
	}
}
