package engine

import (
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestTrueTimeIsTheFirstMomentAtWhichAClockShowsATime(t *testing.T) {
	for _, drift := range []int64{0, 1, 50, 60_000, 333_333, 999_999, -1, -50, -60_000, -333_333, -999_990,
		-999_999} {
		p := clocks{drift: drift}
		for _, ticks := range []int64{1, 2, 3, 999, 1000, 12_345, 999_999, 1_000_000, 1_000_001, 123_456_789,
			int64(time.Hour), int64(24 * time.Hour)} {
			got := p.when(0, clock.Instant(localStart+ticks))
			if got == never && p.ticks(never) < ticks {
				continue // time ends before
			}
			if p.ticks(got) < ticks || p.ticks(got-1) >= ticks {
				t.Fatalf("drift %d: %d is shown at %d, which shows %d, and %d before", drift, ticks, got, p.ticks(got),
					p.ticks(got-1))
			}
		}
		// What is further than time goes never comes; on a clock that hardly moves, that is soon.
		if got := p.when(0, lease.Never); got < int64(scenario.DurationMax) {
			t.Fatalf("drift %d: the end of time comes at %v", drift, time.Duration(got))
		}
	}
}

func TestClocksMayShowWhatComesBeforeTheEpoch(t *testing.T) {
	long := 60 * 365 * 24 * time.Hour
	for _, r := range []scenario.Redis{
		{Faults: []scenario.RedisFault{{Kind: scenario.FaultClockStep, At: time.Second, By: -long}}},
		{ClientTime: true},
	} {
		run := simulate(t, scenario.Scenario{
			Duration: 2 * time.Second, Limits: limits(lease.PerSecond(100)), Redis: r,
			Clock: scenario.Clock{Offset: scenario.DurationDist{Dist: uniform(-float64(long), -float64(long))}},
		})
		if run.books.tally.Admitted == 0 {
			t.Errorf("%+v: nothing is admitted", r)
		}
	}
}

func TestALeaseIsRenewedByTheHoldersClock(t *testing.T) {
	// Given a process whose clock is wrong by so much, and next to no network,
	calls := func(ppm float64) float64 {
		run := simulate(t, scenario.Scenario{
			Duration: 21 * time.Second, Warmup: time.Second, Limits: limits(lease.PerSecond(20_000)),
			Workload: scenario.Workload{Kind: scenario.Constant, Load: 0.5},
			Network:  scenario.Network{RoundTrip: scenario.Constantly(10 * time.Microsecond)},
			Groups:   []scenario.Group{{Clock: drifting(ppm)}},
		})
		if run.books.tally.Admitted != run.books.offered {
			t.Errorf("drift %v: %d of %d admitted", ppm, run.books.tally.Admitted, run.books.offered)
		}
		return float64(run.network.calls())
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
		speed := 1 + ppm/1e6
		// Given a lease of 25 tokens, asked for at 0, of which as many are spent as keeps the
		// holder from giving the rest back, and nothing that is heard after it,
		run := newRun(t, scenario.Scenario{
			Duration: 10 * time.Second, Limits: limits(lease.PerSecond(1000)),
			Policy:   lease.Policy{MinBatch: 25, TTL: 400 * time.Millisecond},
			Workload: regularly(time.Duration(20e6/speed), 10*time.Second),
			Groups:   []scenario.Group{{Clock: drifting(ppm)}},
			Network:  scenario.Network{Partitions: []scenario.Partition{{At: 2 * time.Millisecond, For: time.Hour}}},
		})
		leased := false
		for run.books.burnt(run.fleet.entries.all) == 0 && len(run.time.heap) > 0 {
			run.step()
			leased = leased || run.fleet.entries.all[0].client.Pool.Held() > 20
		}
		// then it ends when its clock shows 15/16 of the TTL.
		slack := 1 + 1/speed // a nanosecond of either clock
		if want := 375e6 / speed; !leased || math.Abs(float64(run.time.now)-want) > slack {
			t.Errorf("drift %v ppm: leased %v, it ends at %v ns, want %v", ppm, leased, run.time.now, want)
		}
	}
}
