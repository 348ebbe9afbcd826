package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestKeysWhoseNodeIsNotKnownTravelTogether(t *testing.T) {
	// Given a process that asks for a hundred new keys, which are on two shards in turn, at one
	// instant,
	run := simulate(t, scenario.Scenario{
		Duration: 20 * time.Millisecond, Limits: limits(lease.PerHour(10)),
		Keys: scenario.Keys{Count: 100}, Redis: scenario.Redis{Shards: 2},
		Workload: replay(100, func(i int) scenario.TraceRequest { return scenario.TraceRequest{Key: i, Cost: 1} }),
	})
	// then it calls each shard once.
	if run.network.calls() != 100 || run.network.trips != 2 {
		t.Errorf("%d calls take %d round trips, want 100 and 2", run.network.calls(), run.network.trips)
	}
}

func TestTokensInLostAnswersAreBurnt(t *testing.T) {
	// Given a network that loses every answer,
	run := simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: limits(lease.PerSecond(1000)), Policy: deny,
		Network: scenario.Network{LostReplies: 1},
	})
	// then all that was granted is lost, but for what the last call was granted, which is asked
	// again.
	want := run.books.granted - run.fleet.entries.all[0].last.granted
	if got := figures(run).Burnt.Mean; got < 1000 || got != float64(want) {
		t.Errorf("%v tokens are burnt, want %d", got, want)
	}
}

// waits are users of a closed loop who wait in line for a minute, if they have the patience.
func waits(clients int, low, high int64, patience, think time.Duration) *scenario.Workload {
	return &scenario.Workload{
		Kind: scenario.Closed, Clients: clients, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: low, Max: high},
		Deadline: time.Minute, Patience: scenario.Constantly(patience), Think: scenario.Constantly(think),
	}
}

// TestWhatIsDrawnInVainBuysNothing: tokens that were drawn for a request which then gave up are
// worth only what has not been refilled in their place since. Credited in full they exceed the
// bound by what is said here, with no fault of any server.
func TestWhatIsDrawnInVainBuysNothing(t *testing.T) {
	// A request for the whole burst, of a caller who cancels it after 2.5 seconds and asks again.
	impatient := waits(1, 1000, 1000, 2500*time.Millisecond, time.Millisecond)
	for _, c := range []struct {
		what  string
		seed  uint64
		count int
		load  *scenario.Workload
		trip  time.Duration
	}{
		{"four processes, answers after 106 ms, of which their callers wait for 100: 929 tokens", 11, 4,
			waits(15, 100, 500, 100*time.Millisecond, 10*time.Millisecond), 106 * time.Millisecond},
		{"six processes that wait for the burst: 1,830", 1, 6, impatient, time.Millisecond},
		{"22 of them: 1,839", 1, 22, impatient, time.Millisecond},
	} {
		// Given a limit of 1,000 tokens a second and a burst of as many, and requests that give up,
		unused := int64(0)
		run := simulate(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: limits(lease.PerSecond(1000)), Policy: deny,
			Seed: c.seed, Groups: []scenario.Group{{Count: c.count, Workload: c.load}},
			Network: scenario.Network{RoundTrip: scenario.Constantly(c.trip)},
		}, func(_ *replication, c *call) { unused += c.request.Unused })
		// then thousands of tokens come back, and the bound holds.
		if x := run.books.audit.ExceededBy(); x != 0 || unused < 3000 {
			t.Errorf("%s: (1) is exceeded by %d, with %d tokens that came back", c.what, x, unused)
		}
	}
}

// TestWhoIsGoneBeforeTheAnswerIsNotDrawnFor: over a network that is slower than CallTimeout, what
// is drawn goes to those who ask when the answer comes.
func TestWhoIsGoneBeforeTheAnswerIsNotDrawnFor(t *testing.T) {
	closed := scenario.Workload{Kind: scenario.Closed, Clients: 15, Cost: scenario.Cost{Min: 34, Max: 62},
		Think: scenario.Constantly(62 * time.Millisecond)}
	for count, load := range map[int]scenario.Workload{1: {Load: 3}, 4: closed} {
		// Given answers that come after 106 ms, of which a request waits for 100,
		run := simulate(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: limits(lease.PerSecond(1000)), Policy: deny,
			Groups: alike(count), Workload: load,
			Network: scenario.Network{RoundTrip: scenario.Constantly(106 * time.Millisecond)},
		})
		// then they are 98 % of what one central bucket admits.
		if got, want := run.books.tally.Admitted, run.books.centralAdmitted; got < want*98/100 {
			t.Errorf("%s: %d are admitted, one central bucket admits %d", load.Kind, got, want)
		}
	}
}
