package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of what comes back to a bucket: step 6 of docs/protocol.md section 4. Each is a schedule
// that breaks the promise without the rule it is about, or once did.

func TestWhatWasDrawnAndNotUsedIsWorthWhatWasNotRefilledSince(t *testing.T) {
	for _, late := range []time.Duration{0, 106 * time.Millisecond, 2500 * time.Millisecond} {
		// given 1000 tokens a second and a burst of 1000, all drawn for requests that give up
		// before the reply comes
		s, a, b := pair(t, lease.PerSecond(1000), 4*time.Second)
		s.calls(a, ask{})
		s.now++
		s.drawsForNobody(a, 1000, late)
		// when another process takes what has been refilled, and they come back
		refilled := s.draws(b, 1000)
		s.calls(a, ask{})
		back := s.draws(b, 1000)
		// then they are worth as much as is missing to the burst, and no more
		testkit.Check(t, refilled+back == 1000, "%v late: %d were refilled and %d came back", late, refilled, back)
		s.audits()
	}
}

func TestRetriedGrantIsDrawnWhenItWasFirstExecuted(t *testing.T) {
	// given a grant for a request that gives up, whose first reply is lost
	s, a, b := pair(t, lease.PerSecond(1000), time.Second)
	s.calls(a, ask{})
	s.now++
	s.executes(s.opens(a, ask{Want: 1000, Waiting: 1000}))
	s.now += 100_000
	s.draws(b, 100)
	// when the retry is answered, and the tokens come back
	s.givesUp(a, s.executes(*a.resend(s.instant())))
	s.calls(a, ask{})
	// then their age counts from the draw, not from the answer
	n := s.draws(b, 1000)
	testkit.Check(t, n == 900, "%d came back, want 900", n)
	s.audits()
}

// Tokens that come back in one call have one date. If that was any but the oldest, a token would come back
// that has been refilled since it was drawn.
func TestWhatIsGivenBackIsWorthWhatTheOldestDrawIs(t *testing.T) {
	// given half of the burst, drawn by a request that gives up much later, and refilled since
	s, a, b := pair(t, lease.PerSecond(1000), 4*time.Second)
	s.calls(a, ask{})
	s.now++
	first := s.executes(s.opens(a, ask{Want: 500, Waiting: 500}))
	early := s.accepts(a, first)
	s.now += 500_000
	// when one token more is drawn so, and all others by another process
	late := s.accepts(a, s.executes(s.opens(a, ask{Want: 1, Waiting: 1})))
	drawn := s.draws(b, 1000)
	testkit.Must(t, drawn == 999, "%d were drawn, want 999", drawn)
	// then of all that the two give back, that one is there again
	a.sendBack(early.Waited, early.draw)
	a.sendBack(late.Waited, late.draw)
	s.calls(a, ask{})
	back := s.draws(b, 1000)
	testkit.Check(t, back == 1, "%d came back", back)
	s.audits()
}

// The numbers of report intervals begin anew after 16 million reports. Tokens of the one that had
// the same number before do not go into the pool: they were reported as spent.
func TestAnIntervalWithTheSameNumberIsNotTheSame(t *testing.T) {
	s, a, b := pair(t, slow(10), time.Second)
	s.calls(a, ask{Want: 5})
	d := a.Pool.Drawn()
	a.Pool.TakeN(5)
	// given so many reports since
	for range 2 {
		s.now++
		s.calls(a, ask{})
	}
	for a.Pool.Interval() != d.Interval {
		a.Pool.Report(nil)
	}
	// when they come back, they go to the bucket, which gives them to another process
	a.putBack(s.instant(), 5, d)
	s.calls(a, ask{})
	n := s.draws(b, 10)
	testkit.Check(t, n >= 9 && a.Pool.Held() == 0, "%d are in the bucket, %d in the pool", n, a.Pool.Held())
	s.spends(a)
}

// Tokens that were not used come back also when their lease has ended long ago: with the second
// call, because the bucket does not know the holder before.
func TestUnusedWaitsForALeaseThatTheBucketKnows(t *testing.T) {
	// given 7 of 10 tokens in 1000 s, drawn for a request that takes longer than a T to give up
	s, a, b := pair(t, slow(10), time.Second)
	s.calls(a, ask{})
	s.now++
	got := s.accepts(a, s.executes(s.opens(a, ask{Want: 7, Waiting: 7})))
	s.now += 5_000_000
	a.sendBack(got.Waited, got.draw)
	// when the holder calls, the first call brings nothing back, as it would be void
	first := s.opens(a, ask{})
	s.accepts(a, s.executes(first))
	second := s.opens(a, ask{})
	s.accepts(a, s.executes(second))
	testkit.Check(t, first.Unused == 0 && second.Unused == 7, "%d and %d came back", first.Unused, second.Unused)
	testkit.Check(t, a.Account().Returned == 7 && a.Account().Burnt == 0, "%+v", a.Account())
	// then they are there
	n := s.draws(b, 10)
	testkit.Check(t, n == 10, "%d are there, want 10", n)
	s.audits()
}

func TestFractionOfATickIsNotKeptBeyondTheBrim(t *testing.T) {
	// given a limit so fine that its level grows in ticks of a millisecond: many tokens a tick
	l := lease.Limit{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 5_000_000}
	sc, err := l.Scale(0)
	testkit.Must(t, err == nil && sc.Tick == 1000, "%v: %+v, %v", l, sc, err)
	// The meter, of another limit, is not what this looks at.
	s, a, _ := pair(t, lease.PerSecond(1).WithBurst(l.Burst), 100*time.Millisecond)
	s.config.Limits = []lease.Limit{l}
	// when some is drawn and half a tick has passed
	s.draws(a, 100_000)
	s.now += 500
	// and a refund brings the level to the brim, and some is drawn again
	a.Refund(100_000)
	g := s.calls(a, ask{})
	testkit.Must(t, g.Levels[0] == l.Burst, "the level is %d of %d", g.Levels[0], l.Burst)
	s.draws(a, 1000)
	// then the next half tick brings half a tick's tokens
	s.now += 500
	g = s.calls(a, ask{})
	most := l.Burst - 1000 + 500
	testkit.Check(t, g.Levels[0] <= most, "the level is %d, one central bucket has %d at most", g.Levels[0],
		most)
}

func TestHolderAcceptsNoMoreThanItAskedFor(t *testing.T) {
	s := newScene(t, lease.PerSecond(100), time.Second)
	for _, c := range []struct {
		name string
		lie  func(g *lease.Grant)
		ok   bool
	}{
		{"more than was asked for", func(g *lease.Grant) { g.Granted, g.Waited = 1000, 1000 }, true},
		{"more for those who wait than was granted", func(g *lease.Grant) { g.Granted, g.Waited = 1, 3 }, true},
		{"a negative grant", func(g *lease.Grant) { g.Granted = -1 }, false},
		{"a negative number of those who wait", func(g *lease.Grant) { g.Waited = -5 }, false},
		{"no T", func(g *lease.Grant) { g.Config.TTL = 0 }, false},
	} {
		// given a call for 5 tokens, 2 of them for requests that wait, and a store that answers
		// nonsense
		h := s.holder(c.name)
		g := s.executes(s.opens(h, ask{Want: 5, Waiting: 2}))
		c.lie(&g)
		// when the answer comes
		got, ok := h.accept(s.instant(), &g, 0)
		// then no more is accepted than was asked for, and a number that no bucket gives is refused
		testkit.Check(t, ok == c.ok && got.Waited <= 2 && got.Waited+h.Pool.Held() <= 5 &&
			h.Account().Conserved(), "%s: accepted %v %+v, holds %d, %+v", c.name, ok, got, h.Pool.Held(), h.Account())
	}
}

func everything(held int64) int64 { return held }

// slow is n tokens in 1000 seconds, which the meter counts exactly.
func slow(n int64) lease.Limit { return lease.Limit{Tokens: n, Per: 1000 * time.Second} }
