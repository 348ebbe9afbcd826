package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestUsersOfARestartedProcessBeginAnew(t *testing.T) {
	// Given ten users who think for a second, and a process that is killed after half of one and
	// comes back soon,
	run := simulate(t, scenario.Scenario{
		Duration: 10 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
		Groups: []scenario.Group{{Scale: []scenario.Step{{At: 500 * time.Millisecond, Kill: true},
			{At: 600 * time.Millisecond, Count: 1}}}},
		Workload: scenario.Workload{Kind: scenario.Closed, Clients: 10, Think: scenario.Constantly(time.Second)},
	})
	// when they ask at 1.6 s, 2.6 s and so on, then each has asked 9 times.
	if run.books.requests != 90 {
		t.Errorf("ten users have asked %d times, want 90", run.books.requests)
	}
}

func TestGroupsShareOneTrace(t *testing.T) {
	// Given a trace of ten requests of ten processes, and two groups of five that share it,
	s := scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(100)},
		Groups: []scenario.Group{{Name: "a", Count: 5}, {Name: "b", Count: 5}},
		Workload: replay(10, func(i int) scenario.TraceRequest {
			return scenario.TraceRequest{At: time.Second, Process: i, Cost: int64(i + 1)}
		}),
	}
	// when it is replayed,
	run := simulate(t, s)
	// then each request comes once, to its own process.
	for i := range run.fleet.processes {
		if n := run.books.offeredBy[i]; n != int64(i+1) {
			t.Errorf("process %d is asked for %d tokens, want %d", i, n, i+1)
		}
	}
}

func TestAnAdversaryWithAFastClockSpendsBeforeTheEnd(t *testing.T) {
	// Given adversaries whose clocks skip a nanosecond now and then,
	run := simulate(t, scenario.Scenario{
		Duration: 2 * time.Second, Limits: []lease.Limit{lease.PerSecond(10_000)},
		Groups:   []scenario.Group{{Count: 100, Clock: drifting(300_000)}},
		Workload: scenario.Workload{Kind: scenario.Adversary},
	})
	spending := 0
	for _, e := range run.time.heap {
		if x := run.fleet.entries.all[max(e.who, 0)%int32(len(run.fleet.entries.all))]; e.kind == evSpend && !run.time.obsolete(e) {
			// then the moment at which they spend what is left is the last before the lease ends.
			run.time.now = e.at
			before := x.p.local(run.time.now)
			run.time.now++
			if spending++; before >= x.client.Deadline() || x.p.local(run.time.now) < x.client.Deadline() {
				t.Errorf("process %d spends at %d, its lease ends at %d", x.p.index, before, x.client.Deadline())
			}
		}
	}
	if spending < 90 {
		t.Errorf("%d of 100 spend at all", spending)
	}
}
