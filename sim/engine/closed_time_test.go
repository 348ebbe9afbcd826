package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Closed forms of what takes time: round trips, leases on clocks that are wrong, and a queue.

func TestTheFirstRequestWaitsForARoundTripAndTheService(t *testing.T) {
	for _, c := range []struct{ trip, service time.Duration }{{time.Millisecond, 15 * time.Microsecond}, {40 * time.Millisecond, 0}, {10 * time.Microsecond, 100 * time.Microsecond}} {
		s := scenario.Scenario{
			Duration: time.Second, Limits: []lease.Limit{lease.PerSecond(100)}, CallTimeout: time.Second, Network: scenario.Network{RoundTrip: scenario.Constantly(c.trip)},
			Redis:    scenario.Redis{ServiceTime: scenario.Constantly(c.service)},
			Workload: scenario.Workload{Kind: scenario.Replay, Trace: &scenario.Trace{Requests: []scenario.TraceRequest{{At: time.Millisecond, Cost: 1}}}},
		}
		if c.service == 0 {
			s.Redis.ServiceTime = scenario.DurationDist{Dist: scenario.Dist{Kind: scenario.DistUniform}}
		}
		w := simulate(t, s)
		want := float64(c.trip+c.service) / 1e6
		if got := figure(w, "wait_ms_max"); math.Abs(got-want) > want/1000 || w.books.tally.Admitted != 1 { // the histogram has three digits
			t.Errorf("round trip %v, service %v: the wait is %v ms, want %v", c.trip, c.service, got, want)
		}
	}
}

func TestALeaseIsRenewedByTheHoldersClock(t *testing.T) {
	// Given a process whose clock is wrong by so much, and next to no network,
	calls := func(ppm float64) float64 {
		w := simulate(t, scenario.Scenario{
			Duration: 21 * time.Second, Warmup: time.Second, Limits: []lease.Limit{lease.PerSecond(20_000)},
			Workload: scenario.Workload{Kind: scenario.Constant, Load: 0.5}, Network: scenario.Network{RoundTrip: scenario.Constantly(10 * time.Microsecond)},
			Groups: []scenario.Group{{Clock: &scenario.Clock{Drift: scenario.DriftDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: ppm, Q: ppm}}}}},
		})
		if w.books.tally.Admitted != w.books.offered {
			t.Errorf("drift %v: %d of %d admitted", ppm, w.books.tally.Admitted, w.books.offered)
		}
		return float64(w.network.calls())
	}
	right := calls(0)
	for _, ppm := range []float64{-40_000, 50_000, 100_000, 300_000} {
		// then a lease lasts for a Target of its own time, and is renewed as many times more often:
		// but for a twentieth, because the round trip does not depend on its clock, and for a call
		// at either end.
		drift := ppm / 1e6
		if got, want := calls(ppm)/right, 1+drift; math.Abs(got-want) > math.Abs(drift)/20+2/right {
			t.Errorf("drift %v ppm: %v times as many calls, want %v", ppm, got, want)
		}
	}
}

func TestALeaseEndsByTheHoldersClock(t *testing.T) {
	for _, ppm := range []float64{0, 1, 1_000, 50_000, 999_999, -1, -1_000, -50_000, -900_000} {
		// Given a lease of 25 tokens, asked for at 0, of which as many are spent as keeps the
		// holder from giving the rest back, and nothing that is heard after it,
		w := newRun(t, scenario.Scenario{
			Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Policy: lease.Policy{MinBatch: 25, TTL: 400 * time.Millisecond},
			Workload: scenario.Workload{Kind: scenario.Replay, Trace: regularly(time.Duration(20e6/(1+ppm/1e6)), 10*time.Second)},
			Groups:   []scenario.Group{{Clock: &scenario.Clock{Drift: scenario.DriftDist{Dist: scenario.Dist{Kind: scenario.DistUniform, P: ppm, Q: ppm}}}}},
			Network:  scenario.Network{Partitions: []scenario.Partition{{At: 2 * time.Millisecond, For: time.Hour}}},
		})
		leased := false
		for w.books.burnt(w.fleet.entries) == 0 && len(w.time.heap) > 0 {
			w.step()
			leased = leased || w.fleet.entries[0].client.Pool.Held() > 20
		}
		// then it ends when its clock shows 15/16 of the TTL.
		speed := 1 + ppm/1e6
		if want := 375e6 / speed; !leased || math.Abs(float64(w.time.now)-want) > 1+1/speed { // a nanosecond of either clock
			t.Errorf("drift %v ppm: leased %v, it ends at %v, want %v", ppm, leased, time.Duration(w.time.now), time.Duration(want))
		}
	}
}

func TestWaitingForTokensOneByOneIsAQueue(t *testing.T) {
	// Given Poisson arrivals in one process who wait in line for a bucket of one token, which is an
	// M/D/1 queue, first in first out: the next is served 1/R after the one before, or at once
	// where nobody was for so long,
	const rate, runs = 10, 8
	for _, load := range []float64{0.3, 0.6, 0.8}[:3/min(testkit.Slowdown, 3)] {
		sum, squares := 0.0, 0.0
		for seed := range uint64(runs) {
			w := simulate(t, scenario.Scenario{
				Duration: time.Hour, Seed: seed + 100, Limits: []lease.Limit{lease.PerSecond(rate).WithBurst(1)},
				Workload: scenario.Workload{Verb: scenario.VerbWait, Load: load, Deadline: time.Hour},
				Network:  scenario.Network{RoundTrip: scenario.Constantly(2 * time.Microsecond)}, Redis: scenario.Redis{ServiceTime: scenario.Constantly(time.Microsecond)},
			})
			mean := w.books.waits.Mean().Seconds()
			sum += mean
			squares += mean * mean
		}
		// then the mean wait is Pollaczek's and Khinchine's, within four standard errors and the
		// 0.1 ms by which a call may come late.
		mean := sum / runs
		want := load / (2 * rate * (1 - load))
		slack := 4*math.Sqrt((squares/runs-mean*mean)/(runs-1)) + 1e-4
		if math.Abs(mean-want) > slack || slack > want/5 {
			t.Errorf("load %v: the mean wait is %.4f s, want %.4f +- %.4f", load, mean, want, slack)
		}
	}
}
