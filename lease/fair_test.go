package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// maxMin is the fair division of rate: nobody gets more than it demands, and what is left goes to
// the others by weight.
func maxMin(rate float64, demand, weight []float64) []float64 {
	share := make([]float64, len(demand))
	open := make([]int, len(demand))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		total := 0.0
		for _, i := range open {
			total += weight[i]
		}
		met := slices.IndexFunc(open, func(i int) bool { return demand[i] <= rate*weight[i]/total })
		if met < 0 {
			for _, i := range open {
				share[i] = rate * weight[i] / total
			}
			break
		}
		i := open[met]
		share[i] = demand[i]
		rate -= demand[i]
		open = slices.Delete(open, met, met+1)
	}
	return share
}

func TestOverloadIsSharedByWeight(t *testing.T) {
	for _, weights := range [][]float64{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 1, 2, 1, 2, 1, 4}} {
		// given twice the demand that the limit admits, most of it from a few processes
		l := PerSecond(1000).WithBurst(400)
		demands := []float64{20, 50, 100, 150, 280, 300, 500, 600}
		d := newDriver(t, l)
		for i, demand := range demands {
			d.client(Policy{Weight: int64(weights[i])}, l, random(demand, uint64(i)))
		}
		// when it has settled
		d.run(20 * time.Second)
		var before []int64
		for _, n := range d.nodes {
			before = append(before, n.admitted)
		}
		d.run(40 * time.Second)
		// then everybody gets its max-min share, and little is lost
		share := maxMin(1000, demands, weights)
		var got, relative []float64
		total := 0.0
		for i, n := range d.nodes {
			got = append(got, float64(n.admitted-before[i])/40)
			relative = append(relative, got[i]/share[i])
			total += got[i]
		}
		if j := testkit.Jain(relative); j < 0.999 || slices.Min(relative) < 0.95 {
			t.Errorf("weights %v: Jain's index %.4f\n got %.1f\nfair %.1f", weights, j, got, share)
		}
		if total < 995 {
			t.Errorf("weights %v: %.1f of 1000/s admitted", weights, total)
		}
	}
}

func TestLoneHolderGetsEverything(t *testing.T) {
	l := PerSecond(1000).WithBurst(400)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, random(2000, 1))
	d.run(20 * time.Second)
	if h.admitted < 20_400*995/1000 {
		t.Errorf("%d of 20,400", h.admitted)
	}
}
