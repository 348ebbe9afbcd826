package engine

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// TestWhatIsDrawnInVainBuysNothing: tokens that were drawn for a request which then gave up are
// worth only what has not been refilled in their place since. Credited in full they exceed the
// bound by what is said here, with no fault of any server.
func TestWhatIsDrawnInVainBuysNothing(t *testing.T) {
	// A request for the whole burst, of a caller who cancels it after 2.5 seconds and asks again.
	impatient := scenario.Workload{
		Kind: scenario.Closed, Clients: 1, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: 1000, Max: 1000},
		Deadline: time.Minute,
		Patience: scenario.Constantly(2500 * time.Millisecond), Think: scenario.Constantly(time.Millisecond),
	}
	for _, c := range []struct {
		what string
		seed uint64
		scenario.Group
		trip scenario.DurationDist
	}{
		{"four processes, answers after 106 ms, of which their callers wait for 100: 929 tokens", 11,
			scenario.Group{
				Count: 4, Workload: &scenario.Workload{
					Kind: scenario.Closed, Clients: 15, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: 100, Max: 500},
					Deadline: time.Minute,
					Patience: scenario.Constantly(100 * time.Millisecond), Think: scenario.Constantly(10 * time.Millisecond),
				},
			}, scenario.Constantly(106 * time.Millisecond)},
		{"six processes that wait for the burst: 1,830", 1, scenario.Group{Count: 6, Workload: &impatient},
			scenario.Constantly(time.Millisecond)},
		{"22 of them: 1,839", 1, scenario.Group{Count: 22, Workload: &impatient},
			scenario.Constantly(time.Millisecond)},
	} {
		// Given a limit of 1,000 tokens a second and a burst of as many, and requests that give up,
		unused := int64(0)
		run := simulate(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Seed:   c.seed, Groups: []scenario.Group{c.Group}, Network: scenario.Network{RoundTrip: c.trip},
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
	// Given answers that come after 106 ms, of which a request waits for 100,
	for _, c := range []struct {
		processes int
		scenario.Workload
	}{
		{1, scenario.Workload{Load: 3}},
		{4, scenario.Workload{Kind: scenario.Closed, Clients: 15, Cost: scenario.Cost{Min: 34, Max: 62},
			Think: scenario.Constantly(62 * time.Millisecond)}},
	} {
		run := simulate(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)},
			Policy:  lease.Policy{Fallback: lease.FallbackDeny},
			Groups:  []scenario.Group{{Count: c.processes, Workload: &c.Workload}},
			Network: scenario.Network{RoundTrip: scenario.Constantly(106 * time.Millisecond)},
		})
		// then they are 98 % of what one central bucket admits.
		if got, want := run.books.tally.Admitted, run.books.centralAdmitted; got < want*98/100 {
			t.Errorf("%s: %d are admitted, one central bucket admits %d", c.Kind, got, want)
		}
	}
}
