package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestALargeFleetKeepsItsBudgetOfCallsOnRedis: two hundred limiters whose leases last as long as
// Policy.CallsPerSecond wants them. The server counts the calls, and its own time; one bucket
// is asked what the fleet was asked, so a slow machine changes little.
func TestALargeFleetKeepsItsBudgetOfCallsOnRedis(t *testing.T) {
	t.Parallel()
	// Given two hundred limiters that may make 100 calls a second, and a burst that allows it,
	const processes, budget, rate, burst = 200, 100, 1000, 4400
	limit := hybrid.PerSecond(rate).WithBurst(burst)
	policy := strict
	policy.CallsPerSecond = budget
	cfg := with(limit, policy)
	cfg.CallTimeout = 10 * time.Second
	s := start(t)
	f := s.fleet(processes, cfg)
	// when they ask for twice the limit until each has admitted as much as the bucket had at first,
	load := f.load(key, 2*rate/processes)
	testkit.Eventually(t, "the use of the burst", func() bool { return f.stats().Admitted >= 3*burst })
	calls, admitted, at, from := s.scriptCalls(), f.stats().Admitted, s.time(), f.now()
	// and then until as much has been admitted again,
	testkit.Eventually(t, "admissions", func() bool { return f.stats().Admitted >= admitted+3*burst })
	calls = s.scriptCalls() - calls
	took := s.time().Sub(at).Seconds()
	load.stop()
	// then the calls are those of the budget and a fifth,
	perSecond := float64(calls) / took
	testkit.Check(t, perSecond <= 1.2*budget, "%.0f calls/s, want %d and a fifth at most", perSecond, budget)
	// the bound holds over all windows,
	f.checkBound(key, limit, 0)
	// and as much was admitted as one bucket would have, of the requests that there were.
	got, central := f.seen(key, from, f.now()).admitted, f.centralBucket(limit)
	f.decisions[key] = slices.DeleteFunc(f.decisions[key], func(d decision) bool { return d.before >= from })
	central -= f.centralBucket(limit)
	part := float64(got) / float64(central)
	t.Logf("in %.1f s %.0f calls/s, %.3f of one bucket", took, perSecond, part)
	testkit.Check(t, part >= 0.97, "%.3f of one bucket was admitted", part)
}

// scriptCalls is how many calls of scripts the server has executed.
func (s *site) scriptCalls() (n int64) {
	s.t.Helper()
	for line := range strings.Lines(s.ctl.Info(s.t.Context(), "commandstats").Val()) {
		var calls int64
		name, rest, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(rest, "calls=%d", &calls); err == nil && strings.HasPrefix(name, "cmdstat_evalsha") {
			n += calls
		}
	}
	return n
}
