//go:build !race

// Like accuracy_test.go, whose helpers it uses: nothing here for the race detector.

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestAKeyWithShardsIsSharedLikeOne: few processes or many, 16 shards admit what one bucket does,
// in equal parts, and no shard is called more often than one bucket would be.
func TestAKeyWithShardsIsSharedLikeOne(t *testing.T) {
	const shards = 16
	fleets := []int{3, 100, 2000}
	for _, processes := range fleets[:testkit.ShortOrLong(t, 1, len(fleets), "sizes of the fleet")] {
		for _, load := range []float64{0.9, 2} {
			s := fleet(t, "32000/s", processes, "workload: {load: %v}, redis: {shards: %d}",
				load, shards)
			s.Policy.Shards, s.Reps, s.Duration, s.Warmup = shards, 1, 8*time.Second, 2*time.Second
			if processes > 1000 && load > 1 {
				s.Duration = 22 * time.Second // each is admitted 16/s: in 6 s luck would count
			}
			r := run(t, s)
			what := fmt.Sprintf("%d processes, load %v", processes, load)
			t.Logf("%s: Jain %.4f, %.0f calls/s of each shard", what, r.Jain.Mean, r.CallsPerS.Mean/shards)
			reaches(t, what, r, 0.99)
			testkit.Check(t, load < 1 || r.Jain.Mean >= 0.99, "%s: Jain's index is %.4f", what, r.Jain.Mean)
			testkit.Check(t, r.CallsPerS.Mean/shards <= 6000, "%s: %.0f calls/s of each shard", what, r.CallsPerS.Mean/shards)
		}
	}
}
