package engine

import (
	"errors"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
)

func TestTheBooksDoNotBalance(t *testing.T) {
	grant := func(e *entry, seq, n int64) *call {
		return &call{entry: e, request: lease.Request{Seq: seq}, grant: lease.Grant{Seq: seq, Granted: n}}
	}
	for what, wrong := range map[string]func(*replication, *entry){
		"a grant that no bucket made": func(run *replication, e *entry) { run.books.accepted(grant(e, 1<<40, 3)) },
		"a grant twice":               func(run *replication, e *entry) { run.books.accepted(grant(e, e.last.seq, 0)) },
		"more than was granted": func(run *replication, e *entry) {
			run.books.executed(grant(e, 1<<40, 3), false)
			run.books.accepted(grant(e, 1<<40, 4))
		},
		"a grant that the books do not know":   func(run *replication, _ *entry) { run.books.ended.Granted++ },
		"a request that the books do not know": func(run *replication, _ *entry) { run.books.ended.Admitted++ },
	} {
		// Given a run that is well, and an entry whose last call was answered,
		run := simulate(t, scene(t, "duration: 1s, limits: [100/s]"))
		if err := run.books.balance(run.fleet.entries.all); err != nil {
			t.Fatal(err)
		}
		// when it accepts what it must not, then the books say so, even if the sums are right.
		taken := run.books.taken
		wrong(run, run.fleet.entries.all[0])
		run.books.taken = taken
		if err := run.books.balance(run.fleet.entries.all); !errors.Is(err, ErrNotConserved) {
			t.Errorf("%s is accepted, and the books say %v", what, err)
		}
	}
}

func TestRivalsAreToldHowManyProcessesRunAtTheStart(t *testing.T) {
	// Given a fleet of one that grows to ten at the very end, in two groups, and twice the load,
	run := simulate(t, scene(t, `duration: 10s, limits: [1000/s burst 100], rivals: [static_split], groups: [
		{name: a, workload: {kind: constant, rate: 2000/s}, scale: [{at: 9.99s, count: 10}]},
		{name: b, workload: {kind: constant, rate: 6000/s}, weight: 3}]`))
	// then a static split is one by what runs at the start, which uses the limit up: a quarter and
	// three quarters.
	if got := run.books.rivals[0].tally.Admitted; got < 10_000 || got > 10_200 {
		t.Errorf("a static split admits %d of 10,100", got)
	}
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
	if a != 0.015 || b != 0.025 || c != 0.99 {
		t.Errorf("the ratios are %v, %v and %v, want 0.015, 0.025 and 0.99", a, b, c)
	}
}

func TestEachRequestIsAnsweredOnce(t *testing.T) {
	boundless, err := rival.NewCentral([]lease.Limit{lease.PerSecond(1e9).WithBurst(1e12)})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range testkit.Seeds(t, 100/testkit.Slowdown) {
		// Given a random scenario, and a central bucket that has room for everything,
		run := newRun(t, newChaos(seed).Scenario)
		for k := range run.books.central {
			run.books.central[k] = boundless
		}
		for run.goesOn() {
			if run.time.heap[0].at < run.time.now {
				t.Fatalf("after %d comes an event at %d", run.time.now, run.time.heap[0].at)
			}
			run.step()
		}
		// then every token that was asked for is admitted, or rejected although it was there, or
		// its request still waits.
		waiting := int64(0)
		for _, e := range run.fleet.entries.all {
			if e.alive {
				e.client.Waiters(func(x *lease.Waiter) { waiting += x.N })
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
