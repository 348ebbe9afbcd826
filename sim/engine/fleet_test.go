package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestWhoIsKilledBurnsWhatHeHolds(t *testing.T) {
	for _, kill := range []bool{true, false} {
		// Given a fleet that is killed, or shuts down, in the middle of its work,
		end := time.Duration(1234567891)
		run := newRun(t, scenario.Scenario{
			Duration: 3 * time.Second, Limits: limits(lease.PerSecond(5000)),
			Groups:   []scenario.Group{{Count: 20, Scale: []scenario.Step{{At: end, Kill: kill}}}},
			Workload: scenario.Workload{Load: 0.8},
		})
		for run.time.heap[0].at < int64(end) {
			run.step()
		}
		held, burnt := int64(0), run.books.burnt(run.fleet.entries.all)
		for _, e := range run.fleet.entries.all {
			held += e.client.Account().Held + e.last.granted // what is on the way is lost too
		}
		for len(run.time.heap) > 0 {
			run.step()
		}
		// then what the processes held is burnt, or given back.
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
	allowAll := lease.Policy{Fallback: lease.FallbackAllowAll}
	for _, c := range []struct {
		name      string
		policy    lease.Policy
		never     bool // the network never worked
		low, high float64
		members   []int64 // what each process is admitted, to a token
	}{
		// From five seconds on, when the local bursts have been used up, for ten: R is 1000/s, and
		// the load is three times that. A local bucket gives whole tokens.
		{"deny", deny, false, 0, 0, nil},
		{"local share", lease.Policy{}, false, 10_000 - fleet, 10_000 + fleet, []int64{2000, 2000, 2000, 4000}},
		{"allow all", allowAll, false, 30_000 - fleet, 30_000 + fleet, nil},
		// Who has never heard of the bucket has no share of it.
		{"deny, cold", deny, true, 0, 0, nil},
		{"local share, cold", lease.Policy{}, true, 0, 0, nil},
		{"allow all, cold", allowAll, true, 0, 0, nil},
		{"cold start allowed", lease.Policy{Fallback: lease.FallbackDeny, ColdStart: lease.ColdStartAllow}, true,
			30_000 - fleet, 30_000 + fleet, nil},
	} {
		s := scenario.Scenario{
			Duration: 15 * time.Second, Warmup: 5 * time.Second, Limits: limits(lease.PerSecond(1000)),
			Policy:   c.policy,
			Groups:   []scenario.Group{{Name: "a", Count: fleet - 1}, {Name: "b", Weight: 2}},
			Workload: scenario.Workload{Kind: scenario.Constant, Load: 3},
			Network:  scenario.Network{Partitions: []scenario.Partition{{At: time.Second, For: time.Hour}}},
		}
		if c.never {
			s.Network = scenario.Network{Loss: 1}
		}
		run := simulate(t, s)
		f := figures(run)
		if got := f.Admitted.Mean; got < c.low || got > c.high || got != f.Degraded.Mean {
			t.Errorf("%s: %v admitted, %v of them without the store, want %v to %v", c.name, got, f.Degraded.Mean,
				c.low, c.high)
		}
		for i, want := range c.members { // the local share is by weight
			if got := run.books.tally.ByProcess[i]; got < want-1 || got > want+1 {
				t.Errorf("%s: process %d admits %d, want %d", c.name, i, got, want)
			}
		}
	}
}

func TestWhatRestsIsForgottenInTime(t *testing.T) {
	// Given a long run in which each of many keys is used once in a while,
	run := simulate(t, scenario.Scenario{
		Duration: 2000 * time.Second / testkit.Slowdown, Limits: limits(lease.PerSecond(100)),
		Keys: scenario.Keys{Count: 50_000}, Workload: scenario.Workload{Rate: 50},
	})
	p := run.fleet.processes[0]
	live := 0
	for _, m := range p.resting {
		if p.local(run.time.now) < m.until {
			live++
		}
	}
	// then most of what is remembered is still worth it.
	if live < 20 || len(p.resting) > 2*live+64 {
		t.Errorf("of %d keys that are remembered %d matter", len(p.resting), live)
	}
}

func TestUsersOfARestartedProcessBeginAnew(t *testing.T) {
	// Given ten users who think for a second, and a process that is killed after half of one and
	// comes back soon,
	run := simulate(t, scenario.Scenario{
		Duration: 10 * time.Second, Limits: limits(lease.PerSecond(1000)),
		Groups: []scenario.Group{{Scale: []scenario.Step{
			{At: 500 * time.Millisecond, Kill: true}, {At: 600 * time.Millisecond, Count: 1}}}},
		Workload: scenario.Workload{Kind: scenario.Closed, Clients: 10, Think: scenario.Constantly(time.Second)},
	})
	// when they ask at 1.6 s, 2.6 s and so on, then each has asked 9 times.
	if run.books.requests != 90 {
		t.Errorf("ten users have asked %d times, want 90", run.books.requests)
	}
}

func TestGroupsShareOneTrace(t *testing.T) {
	// Given a trace of ten requests of ten processes, and two groups of five that share it,
	run := simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: limits(lease.PerSecond(100)),
		Groups: []scenario.Group{{Name: "a", Count: 5}, {Name: "b", Count: 5}},
		Workload: replay(10, func(i int) scenario.TraceRequest {
			return scenario.TraceRequest{At: time.Second, Process: i, Cost: int64(i + 1)}
		}),
	})
	// when it is replayed, then each request comes once, to its own process.
	for i := range run.fleet.processes {
		if n := run.books.offeredBy[i]; n != int64(i+1) {
			t.Errorf("process %d is asked for %d tokens, want %d", i, n, i+1)
		}
	}
}

func TestAnAdversaryWithAFastClockSpendsBeforeTheEnd(t *testing.T) {
	// Given adversaries whose clocks skip a nanosecond now and then,
	run := simulate(t, scenario.Scenario{
		Duration: 2 * time.Second, Limits: limits(lease.PerSecond(10_000)),
		Groups:   []scenario.Group{{Count: 100, Clock: drifting(300_000)}},
		Workload: scenario.Workload{Kind: scenario.Adversary},
	})
	spending := 0
	for _, e := range run.time.heap {
		if e.kind != evSpend || run.time.obsolete(e) {
			continue
		}
		spending++
		// then the moment at which they spend what is left is the last before the lease ends.
		x := run.fleet.entries.all[e.who]
		if end := x.client.Deadline(); x.p.local(e.at) >= end || x.p.local(e.at+1) < end {
			t.Errorf("process %d spends at %d, its lease ends at %d", x.p.index, x.p.local(e.at), end)
		}
	}
	if spending < 90 {
		t.Errorf("%d of 100 spend at all", spending)
	}
}
