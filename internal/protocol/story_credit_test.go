package protocol

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Stories of what comes back to a bucket: step 6 of docs/protocol.md section 4. Each is a schedule
// that breaks the promise without the rule it is about, or once did.

func TestUnusedTokensAreWorthWhatWasNotRefilledSince(t *testing.T) {
	for _, late := range []time.Duration{0, 106 * time.Millisecond, 2500 * time.Millisecond} {
		// given 1000 tokens a second and a burst of 1000, all drawn for requests that give up
		// before the reply comes
		s, a, b := pair(t, lease.PerSecond(1000), 4*time.Second)
		s.calls(a, ask{})
		s.now++
		g := s.executes(s.opens(a, ask{Want: 1000, Waiting: 1000}))
		s.now += exact.Micros(late)
		s.givesUp(a, g)
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
func TestReturnedTokensAreWorthWhatTheOldestDrawIs(t *testing.T) {
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
	// given some reports since
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
	testkit.Check(t, len(first.Late) == 0 && Reported(second.Late, lease.LateUnused) == 7,
		"%v and %v came back", first.Late, second.Late)
	testkit.Check(t, a.Account().Returned == 7 && a.Account().Burnt == 0, "%+v", a.Account())
	// then they are there
	n := s.draws(b, 10)
	testkit.Check(t, n == 10, "%d are there, want 10", n)
	s.audits()
}

func TestFractionOfATickIsNotKeptBeyondTheBrim(t *testing.T) {
	// given a limit so fine that its level grows in ticks of a millisecond: many tokens a tick
	l := lease.Limit{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 5_000_000}
	sc, err := ScaleOf(l, 0), l.Validate()
	testkit.Must(t, err == nil && sc.Tick == 1000, "%v: %+v, %v", l, sc, err)
	// The meter, of another limit, is not what this looks at.
	s, a, _ := pair(t, lease.PerSecond(1).WithBurst(l.Burst), 100*time.Millisecond)
	s.config.Limits = []lease.Limit{l}
	// when some is drawn and half a tick has passed
	s.draws(a, 100_000)
	s.now += 500
	// and a refund brings the level to its room, and some is drawn again
	a.Refund(100_000, nil)
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
		// given a call for 5 tokens, 2 of them for requests that wait, and a store that answers nonsense
		h := s.holder(c.name)
		g := s.executes(s.opens(h, ask{Want: 5, Waiting: 2}))
		c.lie(&g)
		// when the answer comes
		got, ok := h.accept(s.instant(), &g, 0, false)
		// then no more is accepted than was asked for, and a number that no bucket gives is refused
		testkit.Check(t, ok == c.ok && got.Waited <= 2 && got.Waited+h.Pool.Held() <= 5 &&
			h.Account().Conserved(), "%s: accepted %v %+v, holds %d, %+v", c.name, ok, got, h.Pool.Held(), h.Account())
	}
}

// slow is n tokens in 1000 seconds, which the meter counts exactly.
func slow(n int64) lease.Limit { return lease.Limit{Tokens: n, Per: 1000 * time.Second} }

// Stories of what is used beyond what was reserved, and of what a caller leaves to others: charge
// (step 6) and headroom (step 7) of docs/protocol.md section 4.

// charges has h call with a charge of n tokens, and ask for everything.
func (s *scene) charges(h *holder, n int64) lease.Grant {
	s.t.Helper()
	h.charge.add(n, int64(s.instant()), usedBy(s.instant(), s.now, s.config.Limits))
	return s.calls(h, ask{Want: 10, Waiting: 10})
}

func TestAChargeIsPaidBeforeAnythingIsGranted(t *testing.T) {
	// given 10 a second, burst 10, of which a holder has used 25 more than it had
	s, a, b := pair(t, lease.PerSecond(10), 100*time.Millisecond)
	g := s.charges(a, 25)
	testkit.Check(t, g.Granted == 0 && g.Levels[0] == -15 && g.RetryAfter == 1600*time.Millisecond &&
		g.Next[0] == 100*time.Millisecond, "%+v", g)
	// when a fallback's debt is reported on top, which asks for no more than there is
	g = s.executes(lease.Request{Holder: "c", Seq: 1, Config: s.config, Late: oneLate(lease.LateDebt, 5), Weight: 1, Want: 1, Need: 1})
	testkit.Check(t, g.Levels[0] == -15, "a debt moved a level below 0 to %d", g.Levels[0])
	// and no holder is granted anything for a second and a half, known or not
	for range 15 {
		s.now += 100_000
		n := s.draws(b, 10)
		testkit.Must(t, n == 0, "%d granted at %d µs, while tokens are owed", n, s.now)
	}
	// then there is a token as soon as the debt is paid and one has refilled
	s.now += 100_000
	n := s.draws(b, 10)
	testkit.Check(t, n == 1, "%d granted", n)
	// A void call's charge counts too, and a retry's once.
	r := lease.Request{Holder: "d", Seq: 1, Config: s.config, Late: oneLate(lease.LateCharge, 3), Weight: 1, Returned: 4}
	g = s.executes(r)
	again := s.executes(r)
	testkit.Check(t, g.Void && g.Levels[0] == -3 && again.Levels[0] == -3, "%+v, again %+v", g, again)
}

// TestAChargeIsNoMoreThanCanBePaid: what a buggy caller charges does not end a bucket for ever, nor
// break the arithmetic.
func TestAChargeIsNoMoreThanCanBePaid(t *testing.T) {
	for _, l := range []lease.Limit{lease.PerSecond(10), lease.Every(24 * time.Hour), lease.Blocked,
		lease.Unlimited,
		{Tokens: 1 << 51, Per: time.Microsecond, Burst: 1<<52 - 1},
		{Tokens: 1_000_000_007, Per: 1_000_033 * time.Second, Burst: 4_000_000_000}} {
		s := newScene(t, lease.PerSecond(10), 100*time.Millisecond)
		s.config.Limits = []lease.Limit{l}
		a := s.holder("a")
		// when, twice, as much is charged as a request can say
		var g lease.Grant
		for range 2 {
			g = s.charges(a, lease.WaitingMax)
		}
		// then the bucket is full again within 100 years
		sc := s.bucket.levelOf(0)
		full := sc.wait(s.bucket.at(), sc.Capacity)
		testkit.Check(t, (g.Granted == 0 || l.Equal(lease.Unlimited)) && full <= exact.Micros(exact.MaxTime) &&
			full <= exact.Micros(g.Expiry)+exact.Micros(exact.MaxTime)*flags(sc.startsEmpty()),
			"%v: full in %v, remembered for %v", l, exact.Duration(full), g.Expiry)
		// and a debt is as deep as the arithmetic allows: one tick more would not be exact, or would
		// take longer
		deepest := sc.deepest()
		fits := deepest+sc.Capacity*sc.Unit+sc.Step < 1<<53
		most := deepest+sc.Capacity*sc.Unit+2*sc.Step >= 1<<53 || full+sc.Tick > exact.Micros(exact.MaxTime)
		testkit.Check(t, sc.units == -deepest && fits && most, "%v owes %d of %d units", l, -sc.units, deepest)
	}
}

func TestADebtOfCenturiesFitsTheReply(t *testing.T) {
	// given a token a year with an overcommit of 99, and 90 that are owed
	s := newScene(t, lease.PerSecond(10), 100*time.Millisecond)
	s.config.Limits, s.config.Overcommit = []lease.Limit{lease.Every(365 * 24 * time.Hour)}, 99
	a := s.holder("a")
	s.charges(a, 91)
	// when the holder calls again, then it may repeat what it heard
	g := s.calls(a, ask{Want: 1})
	testkit.Check(t, g.Granted == 0 && exact.Micros(g.Expiry) == lease.WaitingMax, "%+v", g)
	s.calls(a, ask{})
}

func TestALossDoesNotPayWhatIsOwed(t *testing.T) {
	// given a bucket that was lost and started again by b, which did not know; b then used 20 of 10
	s, a, b := pair(t, lease.PerSecond(10), time.Second)
	s.calls(a, ask{})
	s.now += 100_000
	s.bucket = Bucket{}
	s.charges(b, 20)
	// when a proves the loss
	g := s.charges(a, 0)
	// then b's debt stands until it is paid, from the end of the wait on
	testkit.Check(t, s.bucket.frozen > s.now && g.Levels[0] == -20+10, "level %d", g.Levels[0])
	s.now = s.bucket.frozen + 1_000_000
	n := s.draws(b, 10)
	testkit.Check(t, n == 0, "granted %d", n)
	s.now += 100_000
	n = s.draws(b, 10)
	testkit.Check(t, n == 1, "granted %d", n)
}

func TestABucketIsRememberedUntilWhatIsOwedIsPaid(t *testing.T) {
	// given 10 a second that owes a minute's worth
	s := newScene(t, lease.PerSecond(10), 100*time.Millisecond)
	g := s.charges(s.holder("a"), 610)
	// then it outlives the time to full from there
	full := exact.Duration(s.bucket.waitFor(10, 0))
	testkit.Check(t, full == 61*time.Second && g.Expiry >= full, "full in %v, remembered for %v", full, g.Expiry)
}

func TestHeadroomIsLeftToOthers(t *testing.T) {
	// given a burst of 10 of which a leaves three tenths, rounded up, to others
	s, a, b := pair(t, lease.PerSecond(10).WithBurst(11), 100*time.Millisecond)
	low := ask{Want: 10, Need: 1, Waiting: 10, Headroom: 0.3}
	g := s.calls(a, low)
	testkit.Check(t, g.Granted == 7 && g.Levels[0] == 0 && s.bucket.Level() == 4, "%+v", g)
	// when it asks again, it sees nothing, and hears when there will be a token for it
	g = s.calls(a, low)
	testkit.Check(t, g.Granted == 0 && g.Levels[0] == 0 && g.Next[0] == 100*time.Millisecond &&
		g.RetryAfter == 100*time.Millisecond && g.Delay <= 200*time.Millisecond, "%+v", g)
	// then b, which leaves nothing, draws all of it,
	g = s.calls(b, ask{Want: 10, Waiting: 10})
	testkit.Check(t, g.Granted == 4 && g.Levels[0] == 0, "%+v", g)
	// and a waits for what was left to refill too.
	g = s.calls(a, low)
	testkit.Check(t, g.Granted == 0 && g.Levels[0] == -4 && g.RetryAfter == 500*time.Millisecond, "%+v", g)
	s.now += exact.Micros(g.RetryAfter)
	g = s.calls(a, low)
	testkit.Check(t, g.Granted == 1 && s.bucket.Level() == 4, "%+v", g)
	// A request for more than it may ever have waits for a full bucket.
	low.Need = 8
	g = s.calls(a, low)
	testkit.Check(t, g.Granted == 0 && g.RetryAfter == 700*time.Millisecond, "%+v", g)
}

// TestHeadroomDoesNotStarveOthersOfTheirShare: calls that see nothing do not pull the fair share
// down, by which the others are served.
func TestHeadroomDoesNotStarveOthersOfTheirShare(t *testing.T) {
	// given 1000 a second, of which a greedy holder would take all and a modest one needs 400, and
	// twenty that leave nine tenths of the burst to them, and ask all the time
	s := newScene(t, lease.PerSecond(1000).WithBurst(100), time.Second)
	s.fair, s.config.Target, s.config.CallsPerSecond = true, 10*time.Millisecond, (&lease.Config{}).CallBudget()
	greedy, modest := s.holder("greedy"), s.holder("modest")
	var others []*holder
	for i := range 20 {
		others = append(others, s.holder(string(rune('a'+i))))
	}
	granted, low := int64(0), int64(0)
	for i := range 2000 {
		s.now += 1000
		for _, h := range others {
			low += s.calls(h, ask{Want: 5, Waiting: 5, Headroom: 0.9}).Granted
		}
		s.calls(greedy, ask{Want: 50, Waiting: 50})
		if i%10 == 0 {
			granted += s.calls(modest, ask{Want: 4, Waiting: 4, Need: 4}).Granted
		}
	}
	// then the modest one is granted what it would be granted without them
	testkit.Check(t, granted >= 600 && low <= 20, "granted %d of 800, and %d to the others", granted, low)
}
