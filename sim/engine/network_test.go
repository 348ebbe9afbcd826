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
	s := scenario.Scenario{
		Duration: 20 * time.Millisecond, Limits: []lease.Limit{lease.PerHour(10)},
		Keys: scenario.Keys{Count: 100}, Redis: scenario.Redis{Shards: 2},
		Workload: replay(100, func(i int) scenario.TraceRequest { return scenario.TraceRequest{Key: i, Cost: 1} }),
	}
	run := simulate(t, s)
	// then it calls each shard once.
	if run.network.calls() != 100 || run.network.trips != 2 {
		t.Errorf("%d calls take %d round trips, want 100 and 2", run.network.calls(), run.network.trips)
	}
}

func TestTokensInLostAnswersAreBurnt(t *testing.T) {
	// Given a network that loses every answer,
	run := simulate(t, scenario.Scenario{
		Duration: 5 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
		Policy:  lease.Policy{Fallback: lease.FallbackDeny},
		Network: scenario.Network{LostReplies: 1},
	})
	// then all that was granted is lost, but for what the last call was granted, which is asked
	// again.
	want := run.books.granted - run.fleet.entries.all[0].last.granted
	if got := figure(run, "burnt"); got < 1000 || got != float64(want) {
		t.Errorf("%v tokens are burnt, want %d", got, want)
	}
}
