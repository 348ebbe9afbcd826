package faults

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestALargeFleetWithABudgetOfCallsKeepsTheBoundOnRedis: two hundred limiters whose leases last as
// long as Policy.CallsPerSecond wants them. How many calls they make, and how much of the limit
// they admit, is asserted in virtual time: TestALargeFleetCallsAsOftenAsItsBudgetSays.
func TestALargeFleetWithABudgetOfCallsKeepsTheBoundOnRedis(t *testing.T) {
	testkit.LongOnly(t)
	t.Parallel()
	// Given two hundred limiters that may make 100 calls a second, and a burst that allows it,
	const processes, budget, rate, burst = 200, 100, 1000, 4400
	limit := hybrid.PerSecond(rate).WithBurst(burst)
	policy := strict
	policy.CallsPerSecond = budget
	cfg := with(limit, policy)
	cfg.CallTimeout = 10 * time.Second
	f := start(t).fleet(processes, cfg)
	// when they ask for twice the limit until they have admitted the burst and as much again,
	load := f.load(key, 2*rate/processes)
	f.awaitAdmitted(key, 2*burst)
	load.stop()
	// then the bound holds over all windows.
	f.checkBound(key, limit, 0)
}
