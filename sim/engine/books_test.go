package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/rival"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestTheBooksDoNotBalance(t *testing.T) {
	limits := []lease.Limit{lease.PerSecond(100)}
	grant := func(e *entry, seq, n int64) *call {
		return &call{entry: e, request: lease.Request{Seq: seq}, grant: lease.Grant{Seq: seq, Granted: n}}
	}
	for what, wrong := range map[string]func(*replication, *entry){
		"a grant that no bucket made": func(w *replication, e *entry) { w.books.accepted(grant(e, 1<<40, 3)) },
		"a grant twice":               func(w *replication, e *entry) { w.books.accepted(grant(e, e.executed.seq, 0)) },
		"more than was granted": func(w *replication, e *entry) {
			w.books.executed(grant(e, 1<<40, 3), false)
			w.books.accepted(grant(e, 1<<40, 4))
			w.books.granted -= 4
		},
	} {
		// Given a run that is well, and an entry whose last call was answered,
		w := simulate(t, scenario.Scenario{Duration: time.Second, Limits: limits})
		if err := w.books.balance(w.fleet.entries); err != nil {
			t.Fatal(err)
		}
		// when it accepts what it must not, then the books say so, even if the sums are right.
		wrong(w, w.fleet.entries[0])
		if err := w.books.balance(w.fleet.entries); !errors.Is(err, ErrNotConserved) {
			t.Errorf("%s is accepted, and the books say %v", what, err)
		}
	}
}

func TestRivalsAreToldHowManyProcessesRunAtTheStart(t *testing.T) {
	// Given a fleet of one that grows to ten at the very end, in two groups, and twice the load,
	w := simulate(t, scenario.Scenario{
		Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000).WithBurst(100)},
		Groups: []scenario.Group{
			{Name: "a", Workload: &scenario.Workload{Kind: scenario.Constant, Rate: 2000}, Scale: []scenario.Step{{At: 9990 * time.Millisecond, Count: 10}}},
			{Name: "b", Weight: 3, Workload: &scenario.Workload{Kind: scenario.Constant, Rate: 6000}},
		},
		Rivals: []string{"static_split"},
	})
	// then a static split is one by what runs at the start, which uses the limit up: a quarter and
	// three quarters.
	if got := w.books.rivals[0].tally.Admitted; got < 10_000 || got > 10_200 {
		t.Errorf("a static split admits %d of 10,100", got)
	}
}

func TestRatiosAreOfWhatTheCentralBucketAdmits(t *testing.T) {
	w := newRun(t, scenario.Scenario{Limits: []lease.Limit{lease.PerSecond(1)}})
	if got := figure(w, "false_reject_ratio") + figure(w, "swapped_ratio"); got != 0 {
		t.Errorf("of nothing %v is rejected", got)
	}
	w.books.centralAdmitted, w.books.tally.FalseRejects, w.books.tally.Swapped, w.books.tally.Admitted = 200, 3, 5, 198
	if a, b, c := figure(w, "false_reject_ratio"), figure(w, "swapped_ratio"), figure(w, "admitted_vs_central"); a != 0.015 || b != 0.025 || c != 0.99 {
		t.Errorf("the ratios are %v, %v and %v, want 0.015, 0.025 and 0.99", a, b, c)
	}
}

func TestEachRequestIsAnsweredOnce(t *testing.T) {
	seed := testkit.Seed(t)
	for i := range uint64(100 / testkit.Slowdown) {
		// Given a random scenario, and a central bucket that has room for everything,
		w := newRun(t, newChaos(seed+i).Scenario)
		boundless, err := rival.NewCentral([]lease.Limit{lease.PerSecond(1e9).WithBurst(1e12)})
		if err != nil {
			t.Fatal(err)
		}
		for k := range w.books.central {
			w.books.central[k] = boundless
		}
		for w.goesOn() {
			if w.time.heap[0].at < w.time.now {
				t.Fatalf("seed %d: after %d comes an event at %d", seed+i, w.time.now, w.time.heap[0].at)
			}
			w.step()
		}
		// then every token that was asked for is admitted, or rejected although it was there, or
		// its request still waits.
		waiting := int64(0)
		for _, e := range w.fleet.entries {
			if e.alive {
				e.client.Waiters(func(x *lease.Waiter) { waiting += x.N })
			}
		}
		if w.books.offered != w.books.centralAdmitted || w.books.offered != w.books.tally.Admitted+w.books.tally.FalseRejects+waiting || w.books.tally.Swapped != 0 {
			t.Fatalf("seed %d: %d tokens are asked for, %d admitted, %d rejected, and %d waited for\n%+v", seed+i, w.books.offered, w.books.tally.Admitted, w.books.tally.FalseRejects, waiting, w.s)
		}
	}
}
