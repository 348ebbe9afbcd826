//go:build !race

package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
)

// TestRequestsThatWaitAreComparedWithALine: a central bucket that did not wait had admitted less than the
// fleet.
func TestRequestsThatWaitAreComparedWithALine(t *testing.T) {
	for _, cost := range []string{"1", "pareto(1,100,1.2)"} {
		s := fleet(t, "5000/s burst 500", 40, `reps: 1,
			workload: {load: 1.1, verb: wait, deadline: 500ms, cost: "%s"}`, cost)
		r := run(t, s)
		part := r.AdmittedVsCentral.Mean
		testkit.Check(t, part > 0.93 && part <= 1, "cost %s: %v of one central bucket", cost, part)
		testkit.Check(t, r.FalseRejectRatio.Mean < 0.06, "cost %s: %v are rejected wrongly", cost,
			r.FalseRejectRatio.Mean)
	}
}

// TestAWindowIsJudgedAlikeForAnyLength: by whole windows, in runs that say of themselves that they are long
// enough.
func TestAWindowIsJudgedAlikeForAnyLength(t *testing.T) {
	s := fleet(t, "3000 in 5s", 10, "workload: {load: 1.2}, reps: 2")
	s.Duration = 30 * time.Second
	least := s.Defaults().Enough()
	testkit.Check(t, least > 100*time.Second, "30 s are enough, or %v", least)
	s.Duration = 0
	testkit.Check(t, s.Defaults().Enough() == 0, "the default is too short")
	var parts []float64
	for _, d := range []time.Duration{least, least + 3*time.Second, 3 * least} {
		s.Duration = d
		parts = append(parts, run(t, s).AdmittedVsCentral.Mean)
	}
	for _, part := range parts {
		testkit.Check(t, math.Abs(part-parts[2]) < 0.005, "%v of one central bucket", parts)
	}
}

// TestACallPerRequestPaysForEachExchange: with few connections a server is idle before most exchanges,
// so a call for each request keeps it busier than leases do; where it is never idle, leases save nothing
// here.
func TestACallPerRequestPaysForEachExchange(t *testing.T) {
	for _, wake := range []time.Duration{39 * time.Microsecond, 0} {
		s := fleet(t, "5000/s burst 500", 40, `reps: 1, rivals: [central],
			workload: {load: 1.1, verb: wait, deadline: 500ms}, network: {round_trip: "lognormal(600us,4ms)"}`)
		s.Redis.WakeTime, s.Duration = sim.Constantly(wake), 10*time.Second
		r := run(t, s)
		ratio := r.RedisCPU.Mean / r.Rivals[0].RedisCPU.Mean
		if wake > 0 {
			testkit.Check(t, ratio < 0.7, "leases keep Redis busy for %v of a call for each request", ratio)
		} else {
			testkit.Check(t, ratio > 0.9, "leases keep Redis busy for %v of a call for each request", ratio)
		}
	}
}
