//go:build !race

package sim_test

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim"
)

// TestClientTimeWithClocksThatDisagree: with Redis.ClientTime a bucket goes by the clocks of its
// callers. Up to a second between them it follows the one that is furthest ahead, so nothing is
// lost; and the first call of that one refills what would have flowed in meanwhile, once.
func TestClientTimeWithClocksThatDisagree(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
		// given four processes whose clocks are up to so much apart, at twice 10,000/s with a burst
		// of 2,000
		s := accuracy{rate: 10_000, burst: 2000, n: 4, workload: sim.Workload{Load: 2}}.scenario()
		s.Redis.ClientTime = true
		s.Clock.Offset = sim.DurationDist{Dist: sim.Dist{Kind: sim.DistUniform, P: -float64(apart) / 2, Q: float64(apart) / 2}}
		// when they run
		r, err := sim.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v apart: %.2f %% of one bucket, exceeded by %v", apart, 100*r.AdmittedVsCentral.Mean, r.BoundExceededBy.Worst)
		// then they are admitted what one bucket admits
		if r.AdmittedVsCentral.Mean < 0.98 {
			t.Errorf("%v apart: admitted %.4f of one central bucket", apart, r.AdmittedVsCentral.Mean)
		}
		if most := min(2000, 10_000*apart.Seconds()); r.BoundExceededBy.Worst > most+1 {
			t.Errorf("%v apart: exceeded by %v, at most %v flows in between the clocks", apart, r.BoundExceededBy.Worst, most)
		}
	}
}
