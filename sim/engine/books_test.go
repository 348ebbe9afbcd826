package engine

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

func TestTheBooksDoNotBalance(t *testing.T) {
	accept := func(run *replication, e *entry, seq, n int64) {
		run.books.accepted(&call{entry: e, grant: lease.Grant{Seq: seq, Granted: n}, time: 1})
	}
	for what, wrong := range map[string]func(*replication, *entry){
		"a grant that no bucket made": func(run *replication, e *entry) {
			e.last.accepted = false
			accept(run, e, 1<<40, 0)
		},
		"a grant twice": func(run *replication, e *entry) { accept(run, e, e.last.seq, 0) },
		"more than was granted": func(run *replication, e *entry) {
			e.last.accepted = false
			accept(run, e, e.last.seq, 1)
		},
		"a grant that the books do not know":   func(run *replication, _ *entry) { run.books.ended.Granted++ },
		"a request that the books do not know": func(run *replication, _ *entry) { run.books.ended.Admitted++ },
	} {
		// Given a correct run, and an entry whose last call was answered,
		run := simulate(t, scene(t, "duration: 1s, limits: [100/s]"))
		testkit.NoErr(t, run.books.balance(run.fleet.entries.all))
		// when it accepts a wrong grant, then the books report it, even if the sums are right.
		taken, e := run.books.taken, run.fleet.entries.all[0]
		e.last.drawn = make([]audit.Drawn, 1)
		wrong(run, e)
		run.books.taken = taken
		err := run.books.balance(run.fleet.entries.all)
		testkit.Check(t, errors.Is(err, ErrNotConserved), "%s is accepted, and the books say %v", what, err)
	}
}

func TestRivalsAreToldHowManyProcessesRunAtTheStart(t *testing.T) {
	// Given a fleet of one that grows to ten at the very end, in two groups, and twice the load,
	run := simulate(t, scene(t, `duration: 10s, limits: [1000/s burst 100], rivals: [static_split], groups: [
		{name: a, workload: {kind: constant, rate: 2000/s}, scale: [{at: 9.99s, count: 10}]},
		{name: b, workload: {kind: constant, rate: 6000/s}, weight: 3}]`))
	// then a static split is one by what runs at the start, which uses the limit up: a quarter and
	// three quarters.
	got := run.books.rivals[0].tally.Admitted
	testkit.Check(t, got >= 10_000 && got <= 10_200, "a static split admits %d of 10,100", got)
}

func TestRatiosAreOfWhatTheCentralBucketAdmits(t *testing.T) {
	run := newRun(t, scene(t, "limits: [1/s]"))
	if f := figures(run); f.FalseRejectRatio.Mean != 0 || f.SwappedRatio.Mean != 0 {
		t.Errorf("of nothing %v is rejected and %v swapped", f.FalseRejectRatio.Mean, f.SwappedRatio.Mean)
	}
	tally := &run.books.tally
	run.books.centralAdmitted, tally.FalseRejects, tally.Swapped, tally.Admitted = 200, 3, 5, 198
	f := figures(run)
	a, b, c := f.FalseRejectRatio.Mean, f.SwappedRatio.Mean, f.AdmittedVsCentral.Mean
	testkit.Check(t, a == 0.015 && b == 0.025 && c == 0.99,
		"the ratios are %v, %v and %v, want 0.015, 0.025 and 0.99", a, b, c)
}

func TestEachRequestIsAnsweredOnce(t *testing.T) {
	boundless, err := rival.NewCentral([]lease.Limit{lease.PerSecond(1e9).WithBurst(1e12)})
	testkit.NoErr(t, err)
	n := testkit.ShortOrLong(t, 12, 100, "random scenarios")
	for seed := range testkit.Seeds(t, n/testkit.Slowdown) {
		// Given a random scenario, and a central bucket that has room for everything,
		run := newRun(t, newChaos(seed).Scenario)
		for k := range run.books.central {
			run.books.central[k] = boundless
		}
		for run.goesOn() {
			testkit.Must(t, run.time.heap[0].at >= run.time.now,
				"after %d comes an event at %d", run.time.now, run.time.heap[0].at)
			run.step()
		}
		// then every requested token is admitted, or rejected although the bucket had it, or its request
		// still waits.
		waiting := int64(0)
		for _, e := range run.fleet.entries.all {
			if e.alive {
				e.client.Waiters(func(x *protocol.Waiter) { waiting += x.N })
				if e.draw != nil {
					waiting += e.draw.N
				}
			}
		}
		b := &run.books
		accounted := b.tally.Admitted + b.tally.FalseRejects + waiting
		if b.offered != b.centralAdmitted || b.offered != accounted || b.tally.Swapped != 0 {
			t.Fatalf("%d tokens are asked for, %d admitted, %d rejected, and %d waited for\n%+v", b.offered,
				b.tally.Admitted, b.tally.FalseRejects, waiting, run.s)
		}
	}
}

// Closed forms: runs whose outcome can be computed.

func TestWhatTheLimitHasRoomForIsAdmitted(t *testing.T) {
	// Given one process with half as many requests as the limit admits, evenly spread,
	s := scene(t, "duration: 20s, limits: [1000/s], workload: {kind: constant, rate: 500/s}")
	run := simulate(t, s)
	// then all of them are admitted, and nothing is lost or rejected,
	b, f := &run.books, figures(run)
	if b.offered < 9999 || b.offered > 10_000 || b.tally.Admitted != b.offered ||
		b.centralAdmitted != b.offered {
		t.Errorf("%d offered, %d admitted, %d by one central bucket; want 10,000 of each", b.offered,
			b.tally.Admitted, b.centralAdmitted)
	}
	if f.Burnt.Mean+f.BoundExceededBy.Mean+f.FalseRejectRatio.Mean+f.SwappedRatio.Mean+f.Degraded.Mean != 0 {
		t.Errorf("something is burnt, rejected, swapped, degraded or exceeded: %+v", f)
	}
	// for about 1/Target calls a second, and at most 2/Target.
	target := s.Policy.TargetFor(s.Limits).Seconds()
	if x := f.CallsPerS.Mean; x < 0.5/target || x > 2/target || x != f.RoundTripsPerS.Mean {
		t.Errorf("%v calls/s of one key take %v round trips/s, 1/Target is %v", x, f.RoundTripsPerS.Mean, 1/target)
	}
}

func TestOverloadAdmitsBurstAndRate(t *testing.T) {
	for _, c := range []struct {
		rate, burst int64
		n           int
	}{{1000, 1000, 1}, {1000, 300, 5}, {20_000, 8000, 10}, {50, 10, 1}} {
		// Given three times the limit's load, for ten seconds,
		limit := lease.PerSecond(c.rate).WithBurst(c.burst)
		s := scene(t, `duration: 10s, limits: [%v], policy: {fallback: deny}, groups: [{count: %d}],
			workload: {kind: constant, load: 3}`, limit, c.n)
		run := simulate(t, s)
		// then the burst and ten seconds of the rate are admitted, except three stocks: the bucket, which
		// the sharing keeps at R*Target (half the burst, if that is less, and a token at least); the
		// pools, which are meant for a Target and a round trip; and the tokens that did not flow in while
		// the bucket was full on paper, because the spending of the first leases was not reported before
		// a Target was over.
		most := c.burst + 10*c.rate
		held := limit.Rate() * (s.Policy.TargetFor(s.Limits) + 2*time.Millisecond).Seconds()
		stock := 3 * max(1, int64(math.Ceil(held)))
		if got := run.books.tally.Admitted; got > most || got < most-stock {
			t.Errorf("%v, %d processes: %d admitted, want %d to %d", limit, c.n, got, most-stock, most)
		}
		x := run.books.audit.ExceededBy()
		testkit.Check(t, x == 0, "%v: the bound is exceeded by %d", limit, x)
	}
}

func TestABurstOfOneIsEnoughForWhoComesInTime(t *testing.T) {
	// Given a bucket that can hold one token, and a request whenever there is one again,
	s := scene(t, "duration: 20s, limits: [1/100ms], policy: {fallback: deny}")
	s.Workload = regularly(102*time.Millisecond, 20*time.Second)
	run := toTheEnd(t, connected(t, s))
	// then each is admitted, and each takes a call.
	n, admitted, calls := run.books.requests, run.books.tally.Admitted, run.network.calls()
	testkit.Check(t, n == 197 && admitted == n && calls == n,
		"%d of %d are admitted, with %d calls", admitted, n, calls)
}

func TestOneCentralBucketAdmitsExactlyBurstAndRate(t *testing.T) {
	// Given a request every half millisecond and a bucket that makes a token in one, the first of
	// them at 0,
	for _, end := range []time.Duration{time.Second, 1234500 * time.Microsecond, 3 * time.Second} {
		s := scene(t, `duration: %v, limits: [1000/s burst 100], rivals: [central],
			network: {round_trip: 1us}, redis: {service_time: 1us}`, end)
		s.Workload = regularly(500*time.Microsecond, end)
		run := simulate(t, s)
		// then it has admitted, by the last one, the burst and a token for each whole millisecond.
		last := end - 500*time.Microsecond
		want := 100 + int64(last/time.Millisecond)
		rival := run.books.rivals[0].tally
		if run.books.centralAdmitted != want || rival.Admitted != want {
			t.Errorf("%v: %d are admitted, %d by the rival of that name, want %d", end, run.books.centralAdmitted,
				rival.Admitted, want)
		}
		testkit.Check(t, rival.FalseRejects == 0 && rival.Swapped == 0,
			"%v: the rival central rejects %d falsely and swaps %d", end, rival.FalseRejects, rival.Swapped)
	}
}

func TestTheFirstRequestWaitsForAConnectionARoundTripAndTheService(t *testing.T) {
	for _, c := range []struct{ trip, service time.Duration }{{time.Millisecond, 15 * time.Microsecond},
		{40 * time.Millisecond, 0}, {10 * time.Microsecond, 100 * time.Microsecond}} {
		// The service time is not a constant: a constant 0 would mean the default.
		s := scene(t, `duration: 1s, limits: [100/s], call_timeout: 1s, network: {round_trip: %v},
			redis: {service_time: "uniform(%v,%v)"}`, c.trip, c.service, c.service)
		s.Workload = regularly(time.Hour, 1)
		run := simulate(t, s)
		want, got := float64((handshakeFirst+1)*c.trip+c.service)/1e6, figures(run).WaitMsMax.Mean
		if math.Abs(got-want) > want/1000 || run.books.tally.Admitted != 1 { // the histogram has three digits
			t.Errorf("round trip %v, service %v: the wait is %v ms, want %v", c.trip, c.service, got, want)
		}
	}
}

func TestWaitingForTokensOneByOneIsAQueue(t *testing.T) {
	testkit.OneGoroutine(t)
	// Given Poisson arrivals in one process that wait in line for a bucket of one token. That is an
	// M/D/1 queue, first in first out: each is served 1/R after the one before, or at once if the
	// queue has been empty for that time,
	const rate, runs = 10, 8
	loads := []float64{0.6, 0.3, 0.8}
	for _, load := range loads[:testkit.ShortOrLong(t, 1, 3/min(testkit.Slowdown, 3), "loads")] {
		sum, squares := 0.0, 0.0
		for seed := range runs {
			run := simulate(t, scene(t, `duration: 1h, seed: %d, limits: [%d/s burst 1],
				workload: {verb: wait, load: %v, deadline: 1h}, network: {round_trip: 2us}, redis: {service_time: 1us}`,
				seed+100, rate, load))
			mean := run.books.waits.Mean().Seconds()
			sum += mean
			squares += mean * mean
		}
		// then the mean wait is that of the Pollaczek-Khinchine formula, within four standard errors and
		// the 0.1 ms by which a call may come late.
		mean := sum / runs
		want := load / (2 * rate * (1 - load))
		slack := 4*math.Sqrt((squares/runs-mean*mean)/(runs-1)) + 1e-4
		testkit.Check(t, math.Abs(mean-want) <= slack && slack <= want/5,
			"load %v: the mean wait is %.4f s, want %.4f +- %.4f", load, mean, want, slack)
	}
}
