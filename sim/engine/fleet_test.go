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
			Duration: 3 * time.Second, Limits: []lease.Limit{lease.PerSecond(5000)},
			Groups:   []scenario.Group{{Count: 20, Scale: []scenario.Step{{At: end, Kill: kill}}}},
			Workload: scenario.Workload{Load: 0.8},
		})
		held, burnt := int64(0), int64(0)
		for len(run.time.heap) > 0 {
			if next := run.time.heap[0].at; run.time.now < int64(end) && next >= int64(end) {
				for _, e := range run.fleet.entries.all {
					held += e.client.Account().Held + e.last.granted // what is on the way is lost too
				}
				burnt = run.books.burnt(run.fleet.entries.all)
			}
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
	for _, c := range []struct {
		name      string
		policy    lease.Policy
		never     bool // the network never worked
		low, high float64
		members   []int64 // what each process is admitted, to a token
	}{
		// From five seconds on, when the local bursts have been used up, for ten: R is 1000/s, and
		// the load is three times that. A local bucket gives whole tokens.
		{"deny", lease.Policy{Fallback: lease.FallbackDeny}, false, 0, 0, nil},
		{"local share", lease.Policy{Fallback: lease.FallbackLocalShare}, false, 10_000 - fleet, 10_000 + fleet,
			[]int64{2000, 2000, 2000, 4000}},
		{"allow all", lease.Policy{Fallback: lease.FallbackAllowAll}, false, 30_000 - fleet, 30_000 + fleet, nil},
		// Who has never heard of the bucket has no share of it.
		{"deny, cold", lease.Policy{Fallback: lease.FallbackDeny}, true, 0, 0, nil},
		{"local share, cold", lease.Policy{Fallback: lease.FallbackLocalShare}, true, 0, 0, nil},
		{"allow all, cold", lease.Policy{Fallback: lease.FallbackAllowAll}, true, 0, 0, nil},
		{"cold start allowed", lease.Policy{Fallback: lease.FallbackDeny, ColdStart: lease.ColdStartAllow}, true,
			30_000 - fleet, 30_000 + fleet, nil},
	} {
		s := scenario.Scenario{
			Duration: 15 * time.Second, Warmup: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Policy:   c.policy,
			Groups:   []scenario.Group{{Name: "a", Count: fleet - 1}, {Name: "b", Weight: 2}},
			Workload: scenario.Workload{Kind: scenario.Constant, Load: 3},
			Network:  scenario.Network{Partitions: []scenario.Partition{{At: time.Second, For: time.Hour}}},
		}
		if c.never {
			s.Network = scenario.Network{Loss: 1}
		}
		run := simulate(t, s)
		if got := figure(run, "admitted"); got < c.low || got > c.high || got != figure(run, "degraded") {
			t.Errorf("%s: %v admitted, %v of them without the store, want %v to %v", c.name, got,
				figure(run, "degraded"), c.low, c.high)
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
		Duration: 2000 * time.Second / testkit.Slowdown, Limits: []lease.Limit{lease.PerSecond(100)},
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
