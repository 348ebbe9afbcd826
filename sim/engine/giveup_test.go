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
		Kind: scenario.Closed, Clients: 1, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: 1000, Max: 1000}, Deadline: time.Minute,
		Patience: scenario.Constantly(2500 * time.Millisecond), Think: scenario.Constantly(time.Millisecond),
	}
	for _, c := range []struct {
		what string
		seed uint64
		scenario.Group
		trip scenario.DurationDist
	}{
		{"four processes, answers after 106 ms, of which their callers wait for 100: 929 tokens", 11, scenario.Group{
			Count: 4, Workload: &scenario.Workload{
				Kind: scenario.Closed, Clients: 15, Verb: scenario.VerbWait, Cost: scenario.Cost{Min: 100, Max: 500}, Deadline: time.Minute,
				Patience: scenario.Constantly(100 * time.Millisecond), Think: scenario.Constantly(10 * time.Millisecond),
			},
		}, scenario.Constantly(106 * time.Millisecond)},
		{"six processes that wait for the burst: 1,830", 1, scenario.Group{Count: 6, Workload: &impatient}, scenario.Constantly(time.Millisecond)},
		{"22 of them: 1,839", 1, scenario.Group{Count: 22, Workload: &impatient}, scenario.Constantly(time.Millisecond)},
	} {
		// Given a limit of 1,000 tokens a second and a burst of as many, and requests that give up,
		w := newRun(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Seed: c.seed, Groups: []scenario.Group{c.Group}, Network: scenario.Network{RoundTrip: c.trip},
		})
		unused := int64(0)
		watch(w, func(c *call) { unused += c.request.Unused })
		if err := w.run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		// then thousands of tokens come back, and the bound holds.
		if x := w.books.audit.exceeded(); x != 0 || unused < 3000 {
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
		{4, scenario.Workload{Kind: scenario.Closed, Clients: 15, Cost: scenario.Cost{Min: 34, Max: 62}, Think: scenario.Constantly(62 * time.Millisecond)}},
	} {
		w := simulate(t, scenario.Scenario{
			Duration: 30 * time.Second, Limits: []lease.Limit{lease.PerSecond(1000)}, Policy: lease.Policy{Fallback: lease.FallbackDeny},
			Groups: []scenario.Group{{Count: c.processes, Workload: &c.Workload}}, Network: scenario.Network{RoundTrip: scenario.Constantly(106 * time.Millisecond)},
		})
		// then they are as many as one central bucket admits, almost.
		if got, want := w.books.tally.Admitted, w.books.centralAdmitted; got < want*95/100 {
			t.Errorf("%s: %d are admitted, one central bucket admits %d", c.Kind, got, want)
		}
	}
}

// TestTheAuditFollowsDrawsToTheirEnd: a token counts at the moment at which it was drawn for a
// request that waited, if that was admitted, and not at all otherwise.
func TestTheAuditFollowsDrawsToTheirEnd(t *testing.T) {
	// Given an auditor of 10 tokens a second and a burst of 5,
	const second = int64(time.Second)
	a := newAuditor([]lease.Limit{lease.PerSecond(10).WithBurst(5)}, 0, 1)
	expect := func(when string, admitted, exceeded int64) {
		t.Helper()
		if a.admitted != admitted || a.exceeded() != exceeded {
			t.Errorf("%s: %d admitted, exceeded by %d, want %d and %d", when, a.admitted, a.exceeded(), admitted, exceeded)
		}
	}
	// when five tokens are drawn for two requests, and five are taken from a pool at once,
	d := a.open(second, 0, 5)
	a.admit(second, 0, 5)
	expect("with an open draw", 0, 0)
	// then nothing is exceeded if the first request gives up,
	a.close(0, drawn{d.draw, 4}, false)
	a.admit(second+second/10, 0, 1)
	expect("with one token open", 0, 0)
	// and a late admission of the other counts at the moment of the draw.
	a.close(0, drawn{d.draw, 1}, true)
	expect("when all is known", 7, 1)
	// What is open at the end counts.
	a.open(2*second, 0, 6)
	if open := a.end(); open != 6 {
		t.Errorf("%d are open", open)
	}
	expect("at the end", 13, 1)
}
