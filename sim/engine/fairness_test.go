package engine

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestALateProcessHasAShareOfItsOwnTime(t *testing.T) {
	for _, scale := range []string{
		"count: 10, scale: [{at: 5s, count: 200}]",
		"count: 200, scale: [{at: 5s, count: 10}]",
		"count: 10, scale: [{at: 3s, count: 200}, {at: 6s, count: 40}, {at: 9s, count: 10, kill: true}]",
		"count: 20, restarts: {every: 2s, for: 1s}",
	} {
		// Given a fleet of equal processes that grows or shrinks under overload,
		run := simulate(t, scene(t, `duration: 10s, limits: [20000/s], workload: {load: 2}, groups: [{%s}],
			rivals: [central]`, scale))
		// when all is counted, then those that were there alike have had alike: in one
		// central bucket, and nearly in the fleet, where leases of former times go on for a while,
		o := run.outcome()
		for name, jain := range map[string][2]float64{
			"yuzhi": {o.Figures.Jain.Mean, 0.96}, "central": {o.Rivals[0].Jain.Mean, 0.99},
		} {
			testkit.Check(t, jain[0] >= jain[1], "%s: %s has Jain's index %v, want %v", scale, name, jain[0], jain[1])
		}
		// and the shares are all that was admitted.
		total := 0.0
		for _, m := range o.Members {
			total += m.Share
		}
		testkit.Check(t, total > 0.9999*o.Figures.Admitted.Mean && total < 1.0001*o.Figures.Admitted.Mean,
			"%s: the shares add up to %v of %v", scale, total, o.Figures.Admitted.Mean)
	}
}
