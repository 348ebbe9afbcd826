package search

import (
	"math"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim"
	scenfile "github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// TestNamedShardsEndTheSaturation in all replications.
func TestNamedShardsEndTheSaturation(t *testing.T) {
	testkit.OneGoroutine(t)
	// Given a Redis that is busy all the time,
	s, err := scenfile.Parse("busy", []byte(`{limits: [100/s], keys: {count: 300}, groups: [{count: 5}],
		workload: {load: 1}, redis: {service_time: 300us}, duration: 3s, reps: 3, policy: {fallback: deny}}`))
	testkit.NoErr(t, err)
	run := func(s sim.Scenario) *sim.Figures {
		r, err := sim.Run(t.Context(), s)
		testkit.NoErr(t, err)
		return &r.Figures
	}
	busy := run(s)
	testkit.Check(t, Saturated(busy.RedisCPU), "Redis is busy for %v", busy.RedisCPU)
	// when it gets the shards that a plan for it names,
	report, err := sim.Run(t.Context(), s)
	testkit.NoErr(t, err)
	p := planning{work: &work{Lab: Lab{Run: sim.Run}}}
	needs, err := p.needsOf(t.Context(), &trial{scenario: s, report: &report})
	testkit.Must(t, err == nil && needs.Least > 1, "%+v, %v", needs, err)
	s.Redis.Shards = needs.Least
	// then it is not any more, and the calls that they cost are stated.
	after := run(s)
	testkit.Check(t, !Saturated(after.RedisCPU) && after.RedisCPU.Mean < 0.75 &&
		math.Abs(needs.CallsPerS/after.CallsPerS.Mean-1) < 0.05, "%+v: %v, %v calls/s", needs, after.RedisCPU,
		after.CallsPerS)
}
