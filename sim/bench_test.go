package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim"
)

// BenchmarkFleet has a target of 4,000,000 requests a second: 200 processes, the auditor on, rivals
// off, on one core.
func BenchmarkFleet(b *testing.B) {
	for _, load := range []struct {
		name string
		load float64
	}{{"load0.9", 0.9}, {"load2", 2}} {
		b.Run(load.name, func(b *testing.B) {
			s := sim.Scenario{Duration: 10 * time.Second, Reps: 1,
				Limits: []lease.Limit{lease.PerSecond(100_000).WithBurst(40_000)},
				Groups: []sim.Group{{Count: 200}}, Workload: sim.Workload{Load: load.load}}
			s.Policy.Fallback = lease.FallbackDeny
			requests := int64(0)
			for b.Loop() {
				r, err := sim.Runner{Parallel: 1}.Run(context.Background(), s)
				if err != nil {
					b.Fatal(err)
				}
				requests += r.Machine.Requests
			}
			b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
