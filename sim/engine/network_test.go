package engine

import (
	"testing"

	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

func TestKeysWhoseNodeIsNotKnownTravelTogether(t *testing.T) {
	// Given a process that asks for a hundred new keys, which are on two shards in turn, at one
	// instant,
	s := scene(t, "duration: 20ms, limits: [10/h], keys: {count: 100}, redis: {shards: 2}")
	s.Workload = replay(100, func(i int) scenario.TraceRequest { return scenario.TraceRequest{Key: i, Cost: 1} })
	run := simulate(t, s)
	// then it calls each shard once.
	if run.network.calls() != 100 || run.network.trips != 2 {
		t.Errorf("%d calls take %d round trips, want 100 and 2", run.network.calls(), run.network.trips)
	}
}

func TestTokensInLostAnswersAreBurnt(t *testing.T) {
	// Given a network that loses every answer,
	run := simulate(t, scene(t, `duration: 5s, limits: [1000/s], policy: {fallback: deny},
		network: {lost_replies: 100%%}`))
	// then all that was granted is lost, but for what the last call was granted, which is asked
	// again.
	want := run.books.granted - run.fleet.entries.all[0].last.granted
	if got := figures(run).Burnt.Mean; got < 1000 || got != float64(want) {
		t.Errorf("%v tokens are burnt, want %d", got, want)
	}
}

// TestWhatIsDrawnInVainBuysNothing: tokens that were drawn for a request which then gave up are
// worth only what has not been refilled in their place since. Credited in full they exceed the
// bound by what is said here, with no fault of any server.
func TestWhatIsDrawnInVainBuysNothing(t *testing.T) {
	// A request for the whole burst, of a caller who cancels it after 2.5 seconds and asks again.
	const impatient = "clients: 1, cost: 1000, patience: 2.5s, think: 1ms"
	for _, c := range []struct {
		what        string
		seed, count int
		trip, load  string
	}{
		{"four processes, answers after 106 ms, of which their callers wait for 100: 929 tokens", 11, 4, "106ms",
			`clients: 15, cost: "uniform(100,500)", patience: 100ms, think: 10ms`},
		{"six processes that wait for the burst: 1,830", 1, 6, "1ms", impatient},
		{"22 of them: 1,839", 1, 22, "1ms", impatient},
	} {
		// Given a limit of 1,000 tokens a second and a burst of as many, and requests that give up,
		unused := int64(0)
		run := simulate(t, scene(t, `duration: 30s, limits: [1000/s], policy: {fallback: deny}, seed: %d,
			groups: [{count: %d}], network: {round_trip: %s},
			workload: {kind: closed, verb: wait, deadline: 1m, %s}`, c.seed, c.count, c.trip, c.load),
			func(_ *replication, c *call) { unused += c.request.Unused })
		// then thousands of tokens come back, and the bound holds.
		if x := run.books.audit.ExceededBy(); x != 0 || unused < 3000 {
			t.Errorf("%s: (1) is exceeded by %d, with %d tokens that came back", c.what, x, unused)
		}
	}
}

// TestWhoIsGoneBeforeTheAnswerIsNotDrawnFor: over a network that is slower than CallTimeout, what
// is drawn goes to those who ask when the answer comes.
func TestWhoIsGoneBeforeTheAnswerIsNotDrawnFor(t *testing.T) {
	for count, load := range map[int]string{
		1: "load: 3", 4: `kind: closed, clients: 15, cost: "uniform(34,62)", think: 62ms`,
	} {
		// Given answers that come after 106 ms, of which a request waits for 100,
		run := simulate(t, scene(t, `duration: 30s, limits: [1000/s], policy: {fallback: deny},
			groups: [{count: %d}], workload: {%s}, network: {round_trip: 106ms}`, count, load))
		// then they are 98 % of what one central bucket admits.
		if got, want := run.books.tally.Admitted, run.books.centralAdmitted; got < want*98/100 {
			t.Errorf("%s: %d are admitted, one central bucket admits %d", load, got, want)
		}
	}
}
