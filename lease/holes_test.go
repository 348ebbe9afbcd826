package lease

import (
	"errors"
	"testing"
	"time"
)

// The schedules that once broke promise (1), each told step by step. Random schedules and the model
// checker have the same moves; TestEveryRuleIsNeeded switches each rule off.

func TestWhatWasDrawnAndNotUsedIsWorthWhatWasNotRefilledSince(t *testing.T) {
	for _, late := range []time.Duration{0, 106 * time.Millisecond, 2500 * time.Millisecond} {
		// given 1000 tokens a second and a burst of 1000, all drawn for requests that give up
		// before the reply comes
		s := newScene(t, PerSecond(1000), 4*time.Second)
		a, b := s.holder("a"), s.holder("b")
		s.calls(a, Ask{})
		s.now++
		r := s.opens(a, Ask{Want: 1000, Waiting: 1000})
		g := s.executes(r)
		s.now += micros(late)
		got := s.accepts(a, g)
		a.Unused(got.Waited, got.Drawn)
		// when another process takes what has been refilled, and they come back
		refilled := s.draws(b, 1000)
		s.calls(a, Ask{})
		rest := s.draws(b, 1000)
		// then they are worth as much as is missing to the burst, and no more
		if refilled+rest != 1000 {
			t.Errorf("%v late: %d were refilled and %d came back", late, refilled, rest)
		}
		s.audits()
	}
}

func TestRetriedGrantIsDrawnWhenItWasFirstExecuted(t *testing.T) {
	// given a grant for a request that gives up, whose first reply is lost
	s := newScene(t, PerSecond(1000), time.Second)
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{})
	s.now++
	r := s.opens(a, Ask{Want: 1000, Waiting: 1000})
	s.executes(r)
	s.now += 100_000
	s.draws(b, 100)
	// when the retry is answered, and the tokens come back
	g := s.executes(*a.Resend(s.instant()))
	got := s.accepts(a, g)
	a.Unused(got.Waited, got.Drawn)
	s.calls(a, Ask{})
	// then their age counts from the draw, not from the answer
	if n := s.draws(b, 1000); n != 900 {
		t.Errorf("%d came back, want 900", g.Waited)
	}
	s.audits()
}

func TestRefundFillsWhatADrawHadLeft(t *testing.T) {
	// given 5 tokens drawn for requests that give up, and 5 of other requests
	s := newScene(t, slow(10), time.Second)
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{})
	s.draws(b, 5)
	s.now++
	r := s.opens(a, Ask{Want: 5, Waiting: 5})
	got := s.accepts(a, s.executes(r))
	// when those others are refunded, admitted again, and refunded again, and only then the first
	// come back
	for range 2 {
		b.Refund(5)
		s.refunds(5)
		s.draws(b, 5)
	}
	a.Unused(got.Waited, got.Drawn)
	s.calls(a, Ask{})
	// then they are there no more: the refunds have filled their place
	if n := s.draws(b, 10); n != 0 {
		t.Errorf("%d came back", n)
	}
}

func TestRefundIsCreditedOnceHoweverOftenItArrives(t *testing.T) {
	// given two limiters at 10 in 1000 s, the first of which was admitted 5, refunded, and was
	// silent for a T
	s := newScene(t, slow(10), 100*time.Millisecond)
	a, b := s.holder("a"), s.holder("b")
	first := s.opens(a, Ask{Want: 5, Waiting: 5})
	s.accepts(a, s.executes(first))
	s.meter.admit(s.now, 5)
	s.meter.admit(s.now, s.calls(b, Ask{Want: 5}).Granted)
	a.Refund(5)
	second := s.opens(a, Ask{})
	s.accepts(a, s.executes(second))
	s.refunds(5)
	s.draws(b, 5)
	s.now += 300_000
	// when the network delivers its calls a second time, in order
	s.executes(first)
	s.executes(second)
	// then nothing of them is credited
	if n := s.draws(b, 10); n != 0 {
		t.Errorf("%d were credited again", n)
	}
	s.audits()
}

func TestLimitThatDoesNotChangeKeepsItsLevel(t *testing.T) {
	scarce, fast := slow(100), PerSecond(1000)
	for _, c := range []struct {
		name    string
		configs [][]Limit
	}{
		{"one is put in front and taken away", [][]Limit{{scarce}, {fast, scarce}, {scarce}, {fast, scarce}, {scarce}}},
		{"they change places", [][]Limit{{scarce, fast}, {fast, scarce}, {scarce, fast}}},
		{"another is changed", [][]Limit{{fast, scarce}, {PerSecond(10), scarce}, {scarce, PerSecond(20)}}},
		{"it is written otherwise", [][]Limit{{scarce}, {fast, scarce.WithBurst(100)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given a limit of 100 in 1000 s that is exhausted
			s := newScene(t, scarce, 100*time.Millisecond)
			a := s.holder("a")
			total := int64(0)
			for version, limits := range c.configs {
				// when others come, go and change places
				s.config.Limits, s.config.Version.Deploy = limits, int64(version)
				for range 3 {
					total += s.draws(a, 100)
					s.now += 100_000
				}
			}
			// then it stays exhausted
			if total > 100 {
				t.Errorf("%d admitted within seconds against 100 in 1000 s", total)
			}
		})
	}
}

func TestLimitThatComesBackAfterALossIsNotFull(t *testing.T) {
	// given a newer version with 100 in 1000 s, which is exhausted, and a bucket that is lost then
	s := newScene(t, slow(100), 100*time.Millisecond)
	old := Config{Limits: []Limit{PerSecond(1000)}, TTL: s.config.TTL, Target: s.config.Target}
	s.config.Limits, s.config.Version.Deploy = []Limit{PerSecond(1000), slow(100)}, 1
	a, b := s.holder("a"), s.holder("b")
	s.calls(b, Ask{})
	s.draws(a, 100)
	s.bucket = Bucket{}
	// when a process with the older version starts the next one, knowing of the loss, and the newer
	// version comes after it
	s.calls(b, Ask{Config: old})
	s.now += 1_060_000
	g := s.calls(a, Ask{Want: 100, Waiting: 100})
	// then the limit is not full again
	if g.Waited > 1 {
		t.Errorf("%d more within 1.06 s", g.Waited)
	}
	s.audits()
}

func TestLossIsWaitedOutAsLongAsTheLongestLease(t *testing.T) {
	short, long := 100*time.Millisecond, 600*time.Millisecond
	for _, c := range []struct {
		name string
		// lease has b hold the whole bucket under a long lease; a hears of the bucket at a short T.
		lease func(s *scene, a, b *Holding)
	}{
		{"T has grown since", func(s *scene, a, b *Holding) {
			s.calls(a, Ask{})
			stretched := s.config
			stretched.TTL = long
			s.calls(b, Ask{Config: stretched})
			s.now += 550_000
			s.calls(b, Ask{Config: stretched, Want: 10})
		}},
		{"a version has shortened T", func(s *scene, a, b *Holding) {
			s.config.TTL = long
			s.calls(b, Ask{Want: 10})
			s.config.TTL, s.config.Version.Deploy = short, 1
			s.calls(a, Ask{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// given such leases
			s := newScene(t, PerSecond(10), short)
			a, b := s.holder("a"), s.holder("b")
			c.lease(s, a, b)
			if b.Pool.Held() != 10 || b.Deadline().Sub(s.instant()) < 500*time.Millisecond {
				t.Fatalf("b holds %d for %v", b.Pool.Held(), b.Deadline().Sub(s.instant()))
			}
			// when the bucket is lost, a knows of it, and asks for everything when b's lease is
			// about to end
			s.now += 10_000
			s.bucket = Bucket{}
			s.calls(a, Ask{})
			s.now = int64(b.Deadline())/1000 - 1
			s.draws(a, 10)
			s.spends(b)
			// then all of it together stays within the burst, and the wait ends soon after the
			// lease
			s.audits()
			if left := s.bucket.Dump().Frozen - s.now; left < 0 || left > 800_000 {
				t.Errorf("at the end of the lease nothing is refilled for %d µs more", left)
			}
		})
	}
}

func TestOldWordOfABucketFreezesTheNextOneForNoLongerThanALease(t *testing.T) {
	// given a bucket that somebody heard of a day ago, was lost, and was started again by somebody
	// else
	s := newScene(t, PerSecond(1000), 400*time.Millisecond)
	s.config.Version.Revision = 1 // remembered for a month
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{})
	s.now += micros(24 * time.Hour)
	s.bucket = Bucket{}
	s.calls(b, Ask{})
	// when that one calls, a while later
	for _, after := range []int64{400_000, 20_000_000} {
		s.now += after
		s.calls(a, Ask{})
	}
	// then nothing is waited out, as no lease of the lost bucket can last that long
	if n := s.draws(b, 100); n != 100 {
		t.Errorf("granted %d of 100", n)
	}
}

// Given a network that gets slower with every call, so that each call proposes a longer T, then T
// follows, and no faster than time passes.
func TestTFollowsANetworkThatGetsSlowerAndSlower(t *testing.T) {
	b := new(Bucket)
	c := Config{Limits: []Limit{PerSecond(100).WithBurst(10)}, TTL: 400 * time.Millisecond, Target: 100 * time.Millisecond}
	start := int64(1_700_000_000_000_000)
	for i := range int64(100) {
		passed := time.Duration(i) * 10 * time.Millisecond
		c.TTL = 400*time.Millisecond + time.Duration(i)*5*time.Millisecond
		var g Grant
		if err := b.Call(start+micros(passed), &Request{Holder: "a", Seq: i + 1, Config: c, Weight: 1}, &g); err != nil {
			t.Fatal(err)
		}
		if g.Config.TTL > 400*time.Millisecond+passed || g.Config.TTL < c.TTL-10*time.Millisecond {
			t.Fatalf("after %v %v is proposed and %v in force", passed, c.TTL, g.Config.TTL)
		}
	}
}

func TestTFollowsTheNetworkDown(t *testing.T) {
	// given a bucket whose T a slow network has made long
	s := newScene(t, PerSecond(1000), 400*time.Millisecond)
	a, b := s.holder("a"), s.holder("b")
	stretched := s.config
	stretched.TTL = 3200 * time.Millisecond
	for range 40 {
		s.calls(a, Ask{Config: stretched})
		s.now += 100_000
	}
	if g := s.calls(b, Ask{}); g.Config.TTL != stretched.TTL {
		t.Fatalf("T is %v while %v is proposed", g.Config.TTL, stretched.TTL)
	}
	// when everybody proposes the usual one again, for 7 seconds
	for range 70 {
		s.calls(a, Ask{})
		s.calls(b, Ask{})
		s.now += 100_000
	}
	// then it is that, and nobody was void
	if g := s.calls(a, Ask{}); g.Config.TTL != s.config.TTL || g.Void {
		t.Errorf("T is %v, want %v; void %v", g.Config.TTL, s.config.TTL, g.Void)
	}
}

func TestVersionOutlivesItsBucket(t *testing.T) {
	// given 100 in 1000 s, used up, and a newer version with 1000 a second, which takes a second to
	// fill
	s := newScene(t, slow(100), 100*time.Millisecond)
	old, newer := s.config, s.config
	newer.Limits, newer.Version.Deploy = []Limit{PerSecond(1000)}, 1
	total, expires := int64(0), int64(0)
	for round := range 10 {
		// when, again and again, a fresh process of the old version comes, and one of the newer,
		// and then nobody for so long that the bucket may expire
		if s.now >= expires {
			s.bucket = Bucket{}
		}
		a, b := s.holder("a"+string(rune('0'+round))), s.holder("b"+string(rune('0'+round)))
		if g := s.calls(a, Ask{Config: old, Want: 100, Waiting: 100}); g.Config.Version == old.Version {
			total += g.Waited
		}
		g := s.calls(b, Ask{Config: newer})
		if expires > s.now+micros(g.Expiry) {
			t.Errorf("round %d: the expiry moved earlier by %d µs", round, expires-s.now-micros(g.Expiry))
		}
		expires = s.now + micros(g.Expiry)
		s.now += 1_900_000
	}
	// then the old limit was full once
	if total > 100 {
		t.Errorf("%d admitted in 19 s against 100 in 1000 s", total)
	}
}

func TestClaimThatCannotBeTrueChangesNothing(t *testing.T) {
	for _, epoch := range []int64{0, WaitingMax} { // 0 stands for the bucket's own
		// given a bucket with a holder
		s := newScene(t, PerSecond(10), time.Second)
		a := s.holder("a")
		s.calls(a, Ask{})
		before := s.bucket.Dump()
		// when somebody claims to have heard what nobody can have heard
		r := Request{Holder: "x", Seq: 1, Config: s.config, Weight: 1, Epoch: epoch, Counter: WaitingMax, LeaseMax: time.Second}
		if epoch == 0 {
			r.Epoch = before.Epoch
		}
		s.executes(r)
		// then the bucket is as it was, but for one call more
		after := s.bucket.Dump()
		if after.Epoch != before.Epoch || after.Counter != before.Counter+1 || after.Frozen != 0 || after.Level != before.Level {
			t.Errorf("epoch %d: before %+v\nafter %+v", epoch, before, after)
		}
		if g := s.calls(a, Ask{Want: 1}); g.Void || g.Granted != 1 {
			t.Errorf("epoch %d: the holder is answered %+v", epoch, g)
		}
	}
}

func TestRevisionsEnd(t *testing.T) {
	// given limits at the last revision there is
	s := newScene(t, PerSecond(10), time.Second)
	s.config.Version.Revision = maxUnits - 1
	s.calls(s.holder("a"), Ask{})
	before := s.bucket.Dump()
	// when they are set once more
	_, err := s.bucket.Configure(s.now, OpSet, s.config)
	// then that is refused, and nothing has changed
	if !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("%v", err)
	}
	if after := s.bucket.Dump(); after.Config.Version != before.Config.Version || after.Counter != before.Counter {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

func TestHolderAcceptsNoMoreThanItAskedFor(t *testing.T) {
	s := newScene(t, PerSecond(100), time.Second)
	for _, c := range []struct {
		name string
		lie  func(g *Grant)
		ok   bool
	}{
		{"more than was asked for", func(g *Grant) { g.Granted, g.Waited = 1000, 1000 }, true},
		{"more for those who wait than was granted", func(g *Grant) { g.Granted, g.Waited = 1, 3 }, true},
		{"a negative grant", func(g *Grant) { g.Granted = -1 }, false},
		{"a negative number of those who wait", func(g *Grant) { g.Waited = -5 }, false},
		{"no T", func(g *Grant) { g.Config.TTL = 0 }, false},
	} {
		// given a call for 5 tokens, 2 of them for requests that wait, and a store that answers
		// nonsense
		h := s.holder(c.name)
		g := s.executes(s.opens(h, Ask{Want: 5, Waiting: 2}))
		c.lie(&g)
		// when the answer comes
		got, ok := h.Accept(s.instant(), &g, 0)
		// then no more is accepted than was asked for, and a number that no bucket gives is refused
		if ok != c.ok || got.Waited > 2 || got.Waited+got.Pooled > 5 || h.Pool.Held() > 5 || !h.Account().Conserved() {
			t.Errorf("%s: accepted %v %+v, holds %d, %+v", c.name, ok, got, h.Pool.Held(), h.Account())
		}
	}
}

// slow is n tokens in 1000 seconds, which the meter counts exactly.
func slow(n int64) Limit { return Limit{Tokens: n, Per: 1000 * time.Second} }
