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
	const long = "-525600h" // sixty years
	for _, redis := range []string{"faults: [{kind: clock_step, at: 1s, by: " + long + "}]", "client_time: true"} {
		run := simulate(t, scene(t, `duration: 2s, limits: [100/s], redis: {%s},
			clock: {offset: "uniform(%s,%s)"}`, redis, long, long))
		if run.books.tally.Admitted == 0 {
			t.Errorf("%s: nothing is admitted", redis)
		}
	}
}

func TestALeaseIsRenewedByTheHoldersClock(t *testing.T) {
	// Given a process whose clock is wrong by so much, and next to no network,
	calls := func(ppm float64) float64 {
		run := simulate(t, scene(t, `duration: 21s, warmup: 1s, limits: [20000/s], network: {round_trip: 10us},
			workload: {kind: constant, load: 0.5}, clock: {drift: "uniform(%[1]vppm,%[1]vppm)"}`, ppm))
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
		// Given a lease of 25 tokens, asked for at 0, of which as many are spent as keeps the
		// holder from giving the rest back, and nothing that is heard after it,
		speed := 1 + ppm/1e6
		s := scene(t, `duration: 10s, limits: [1000/s], policy: {min_batch: 25, ttl: 400ms},
			clock: {drift: "uniform(%[1]vppm,%[1]vppm)"}, network: {partitions: [{at: 2ms, for: 1h}]}`, ppm)
		s.Workload = regularly(time.Duration(20e6/speed), 10*time.Second)
		run := newRun(t, s)
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
