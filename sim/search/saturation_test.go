package search

import (
	"context"
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// TestNamedShardsEndTheSaturation in all replications.
func TestNamedShardsEndTheSaturation(t *testing.T) {
	testkit.OneGoroutine(t)
	for name, service := range map[string]string{"busy": "200us", "busier": "300us"} {
		// Given a Redis that is busy all the time,
		s, err := scenfile.Parse("busy", []byte(`{limits: [100/s], keys: {count: 300}, groups: [{count: 5}],
			workload: {load: 1}, redis: {service_time: `+service+`}, duration: 3s, reps: 3,
			policy: {fallback: deny}}`))
		testkit.NoErr(t, err)
		run := func(s sim.Scenario) *sim.Figures {
			r, err := sim.Run(t.Context(), s)
			testkit.NoErr(t, err)
			return &r.Figures
		}
		busy := run(s)
		testkit.Check(t, Saturated(busy), "%s: Redis is busy for %v", name, busy.RedisCPU)
		// when it gets the shards that are named,
		relief, err := Lab{Run: sim.Run}.Relieve(t.Context(), s)
		testkit.NoErr(t, err)
		testkit.Must(t, relief != nil, "%s", name)
		s.Redis.Shards = relief.Shards
		// then it is not any more, and with half of them it would not have been enough.
		after := run(s)
		testkit.Check(t, !Saturated(after) && after.RedisCPU.Mean < 0.75,
			"%s, %+v: Redis is busy for %v", name, relief, after.RedisCPU)
		// The relief states the calls that they cost.
		testkit.Check(t, math.Abs(relief.CallsPerS/after.CallsPerS.Mean-1) < 0.05,
			"%s, %+v: %v calls/s", name, relief, after.CallsPerS)
		t.Logf("%s: %v, then with %+v %v", name, busy.RedisCPU, relief, after.RedisCPU)
	}
}

func TestWhereNoNumberOfShardsHelpsNoneIsNamed(t *testing.T) {
	// Given a simulator in which Redis is always busy,
	lab := Lab{Run: func(_ context.Context, s sim.Scenario) (r sim.Report, err error) {
		r.RedisCPU.Worst = 1
		return r, nil
	}}
	s, err := scenfile.Parse("busy", []byte("limits: [100/s]"))
	testkit.NoErr(t, err)
	relief, err := lab.Relieve(t.Context(), s)
	testkit.Check(t, relief == nil && err == nil, "%+v, %v", relief, err)
}
