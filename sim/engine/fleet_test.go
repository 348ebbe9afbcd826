package engine

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestAKilledProcessBurnsItsTokens(t *testing.T) {
	for _, kill := range []bool{true, false} {
		// Given a fleet that is killed, or shuts down, in the middle of its work,
		end := time.Duration(1234567891)
		run := newRun(t, scene(t, `duration: 3s, limits: [5000/s], workload: {load: 0.8},
			groups: [{count: 20, scale: [{at: %v, count: 0, kill: %v}]}]`, end, kill))
		for run.time.heap[0].at < int64(end) {
			run.step()
		}
		held, burnt := int64(0), run.books.burnt(run.fleet.entries.all)
		for _, e := range run.fleet.entries.all {
			held += e.client.Holder.Account().Held + e.last.granted // grants on the way are lost too
		}
		for len(run.time.heap) > 0 {
			run.step()
		}
		// then the processes' holdings are burnt, or given back.
		want := int64(0)
		if kill {
			want = held
		}
		if got := run.books.burnt(run.fleet.entries.all) - burnt; got != want || held < 100 {
			t.Errorf("killed %v: %d are burnt, want %d; they held %d", kill, got, want, held)
		}
		if err := run.books.balance(run.fleet.entries.all); err != nil {
			t.Error(err)
		}
	}
}

func TestWithoutANetworkTheFallbackDecides(t *testing.T) {
	const fleet = 4
	// The network fails after a second, or it never worked.
	const fails, never = "partitions: [{at: 1s, for: 1h}]", "loss: 100%"
	for _, c := range []struct {
		policy, network string
		low, high       float64
		members         []int64 // what each process is admitted, to a token
	}{
		// From five seconds on, when the local bursts have been used up, for ten: R is 1000/s, and
		// the load is three times that. A local bucket gives whole tokens.
		{"fallback: deny", fails, 0, 0, nil},
		{"fallback: local_share", fails, 10_000 - fleet, 10_000 + fleet, []int64{2000, 2000, 2000, 4000}},
		{"fallback: allow_all", fails, 30_000 - fleet, 30_000 + fleet, nil},
		// A process that has never heard of the bucket has no share of it.
		{"fallback: deny", never, 0, 0, nil},
		{"fallback: local_share", never, 0, 0, nil},
		{"fallback: allow_all", never, 0, 0, nil},
		{"fallback: deny, cold_start: allow", never, 30_000 - fleet, 30_000 + fleet, nil},
	} {
		run := simulate(t, scene(t, `duration: 15s, warmup: 5s, limits: [1000/s], policy: {%s}, network: {%s},
			groups: [{name: a, count: %d}, {name: b, weight: 2}], workload: {kind: constant, load: 3}`,
			c.policy, c.network, fleet-1))
		f := figures(run)
		if got := f.Admitted.Mean; got < c.low || got > c.high || got != f.Degraded.Mean {
			t.Errorf("%s, %s: %v admitted, %v of them without the store, want %v to %v", c.policy, c.network, got,
				f.Degraded.Mean, c.low, c.high)
		}
		for i, want := range c.members { // the local share is by weight
			if got := run.books.tally.ByProcess[i]; got < want-1 || got > want+1 {
				t.Errorf("%s: process %d admits %d, want %d", c.policy, i, got, want)
			}
		}
	}
}

func TestAKeyAtRestIsForgottenInTime(t *testing.T) {
	// Given a long run in which each of many keys is used once in a while,
	run := simulate(t, scene(t, "duration: %ds, limits: [100/s], keys: {count: 50000}, workload: {rate: 50/s}",
		testkit.ShortOrLong(t, 400, 2000/testkit.Slowdown, "seconds")))
	p := run.fleet.processes[0]
	live := 0
	for _, m := range p.resting {
		if p.local(run.time.now) < m.until {
			live++
		}
	}
	// then most memories are still valid.
	testkit.Check(t, live >= 20 && len(p.resting) <= 2*live+64,
		"of %d keys that are remembered %d matter", len(p.resting), live)
}

func TestGroupsShareOneTrace(t *testing.T) {
	// Given a trace of ten requests of ten processes, and two groups of five that share it,
	s := scene(t, "duration: 5s, limits: [100/s], groups: [{name: a, count: 5}, {name: b, count: 5}]")
	s.Workload = replay(10, func(i int) scenario.TraceRequest {
		return scenario.TraceRequest{At: time.Second, Process: i, Cost: int64(i + 1)}
	})
	run := simulate(t, s)
	// when it is replayed, then each request comes once, to its own process.
	for i := range run.fleet.processes {
		n := run.books.offeredBy[i]
		testkit.Check(t, n == int64(i+1), "process %d is asked for %d tokens, want %d", i, n, i+1)
	}
}

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
		// An instant beyond the end of time never comes. On a clock that hardly moves, that end is near.
		if got := p.when(0, protocol.Never); got < int64(scenario.DurationMax) {
			t.Fatalf("drift %d: the end of time comes at %v", drift, time.Duration(got))
		}
	}
}

func TestClocksMayShowWhatComesBeforeTheEpoch(t *testing.T) {
	const long = "-525600h" // sixty years
	run := simulate(t, scene(t, `duration: 2s, limits: [100/s], rivals: [central_client],
		clock: {offset: "uniform(%[1]s,%[1]s)"}`, long))
	testkit.Check(t, run.books.tally.Admitted != 0, "nothing is admitted")
}

func TestALeaseEndsByTheHoldersClock(t *testing.T) {
	for _, ppm := range []float64{0, 1, 1_000, 50_000, 999_999, -1, -1_000, -50_000, -900_000} {
		// Given a lease of 25 tokens, asked for at 0, of which enough are spent that the holder gives
		// nothing back, and no later answer,
		speed := 1 + ppm/1e6
		s := scene(t, `duration: 10s, limits: [1000/s], policy: {min_batch: 25, ttl: 400ms},
			clock: {drift: "uniform(%[1]vppm,%[1]vppm)"}, network: {partitions: [{at: 2ms, for: 1h}]}`, ppm)
		s.Workload = regularly(time.Duration(20e6/speed), 10*time.Second)
		run := connected(t, s)
		leased := false
		for run.books.burnt(run.fleet.entries.all) == 0 && len(run.time.heap) > 0 {
			run.step()
			leased = leased || run.fleet.entries.all[0].client.Holder.Pool.Held() > 20
		}
		// then it ends when its clock shows 15/16 of the TTL.
		slack := 1 + 1/speed // a nanosecond of either clock
		if want := 375e6 / speed; !leased || math.Abs(float64(run.time.now)-want) > slack {
			t.Errorf("drift %v ppm: leased %v, it ends at %v ns, want %v", ppm, leased, run.time.now, want)
		}
	}
}

func TestAStopAtANamedTimeIsOneStopOfOneProcess(t *testing.T) {
	// Given three processes with a request every 10 ms each, of which the first stops for a second,
	s := scene(t, "duration: 5s, limits: [100000/s], groups: [{count: 3, pauses: {at: 2s, for: 1s}}]")
	s.Workload = replay(1500, func(i int) scenario.TraceRequest {
		return scenario.TraceRequest{At: time.Duration(i/3) * 10 * time.Millisecond, Process: i % 3, Cost: 1}
	})
	s.Workload.Trace.Processes = 3
	run, asked := newRun(t, s), map[time.Duration][3]int64{}
	for _, at := range []time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second} {
		for run.goesOn() && run.time.heap[0].at < int64(at) {
			run.step()
		}
		asked[at] = [3]int64(run.books.offeredBy)
	}
	// then it asks for nothing meanwhile, catches up afterwards, and then asks like the others.
	testkit.Check(t, asked[2*time.Second] == [3]int64{200, 200, 200} &&
		asked[3*time.Second] == [3]int64{200, 300, 300} &&
		asked[4*time.Second] == [3]int64{400, 400, 400} &&
		asked[5*time.Second] == [3]int64{500, 500, 500}, "%v", asked)

	// If it is killed instead, then it comes back once, with another id.
	s = scene(t, "duration: 5s, limits: [1000/s], groups: [{count: 3, restarts: {at: 2s, for: 1s}}]")
	run = simulate(t, s)
	var lives []int32
	for _, p := range run.fleet.processes {
		lives = append(lives, p.life)
	}
	down := 0
	for _, n := range run.recorder.Series.Running {
		if n == 2 {
			down++
		}
	}
	testkit.Check(t, slices.Equal(lives, []int32{2, 1, 1}) && down == len(run.recorder.Series.Running)/5,
		"lives %v, down at %d of %d points",
		lives, down, len(run.recorder.Series.Running))
}

func TestAnAdversaryWithAFastClockSpendsBeforeTheEnd(t *testing.T) {
	// Given adversaries whose clocks skip a nanosecond now and then,
	run := simulate(t, scene(t, `duration: 2s, limits: [10000/s], workload: {kind: adversary},
		groups: [{count: 100}], clock: {drift: "uniform(300000ppm,300000ppm)"}`))
	spending := 0
	for _, e := range run.time.heap {
		if e.kind != evSpend || run.time.obsolete(e) {
			continue
		}
		spending++
		// then they spend the rest in the last moment before the lease ends.
		x := run.fleet.entries.all[e.id]
		if end := x.client.Holder.Deadline(); x.p.local(e.at) >= end || x.p.local(e.at+1) < end {
			t.Errorf("process %d spends at %d, its lease ends at %d", x.p.index, x.p.local(e.at), end)
		}
	}
	testkit.Check(t, spending >= 90, "%d of 100 spend at all", spending)
}
