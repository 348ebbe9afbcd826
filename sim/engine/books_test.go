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
		"a grant that the books do not know":     func(run *replication, _ *entry) { run.books.ended.Granted++ },
		"a request that the books do not know":   func(run *replication, _ *entry) { run.books.ended.Admitted++ },
		"a charge that its client does not tell": func(_ *replication, e *entry) { e.charged++; e.call(protocol.Never) },
		"a charge that nobody has made":          func(_ *replication, e *entry) { e.paid++; e.call(protocol.Never) },
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
				e.client.Line.Waiters(func(x *protocol.Waiter) { waiting += x.N })
				if d := e.state.UnderWay(); d != nil {
					waiting += d.For.N
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

func TestARequestWithinTheLimitIsAdmitted(t *testing.T) {
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
