package lease

import (
	"testing"
	"time"
)

func everything(held int64) int64 { return held }

func TestRetryAfterTheTTLGrewBackKeepsNothingThatTheBucketForgot(t *testing.T) {
	// given a ring with wide slices, which holds an entry, and then a shorter T
	s := newScene(t, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 700*time.Microsecond)
	a, b := s.holder("a"), s.holder("b")
	s.calls(b, Ask{})
	short := s.config
	short.TTL = 70 * time.Microsecond
	s.sets(short)
	s.config.TTL = short.TTL
	// when a draws under the shorter T, the reply is lost, T grows back, and a retries
	r := s.opens(a, Ask{Want: 2})
	s.executes(r)
	s.now += 10
	long := s.config
	long.TTL = 700 * time.Microsecond
	s.calls(b, Ask{Config: long})
	again := a.Resend(s.instant())
	if again == nil {
		t.Fatal("the call is too old to be sent again")
	}
	s.accepts(a, s.executes(*again))
	// then what a may still spend, however late, is what the bucket still knows of
	for range 50 {
		s.now += 10
		s.draws(b, 2)
	}
	s.spends(a)
}

func TestRefundIsNotCreditedWhileLostHoldingsMayLive(t *testing.T) {
	// given a replica that has not heard of a's grant
	s := newScene(t, Limit{Tokens: 1, Per: time.Second, Burst: 10}, 100*time.Millisecond)
	a, b := s.holder("a"), s.holder("b")
	s.draws(b, 5)
	s.now += 10_000_000
	s.calls(b, Ask{})
	replica := s.bucket.Clone()
	s.calls(a, Ask{Want: 10})
	s.calls(b, Ask{})
	// when it is promoted, and b, who knows of the loss, reports a refund
	s.bucket = *replica
	s.calls(b, Ask{})
	b.Refund(5)
	g := s.calls(b, Ask{Want: 5})
	// then nothing can be drawn from it while a still holds everything
	if g.Granted > 0 {
		t.Errorf("granted %d while the old holdings live", g.Granted)
	}
	s.spends(b)
	s.spends(a)
}

func TestReturnIsNotCreditedTwiceAcrossAFailover(t *testing.T) {
	for _, wait := range []int64{0, 50_000, 99_000, 100_500, 104_000, 114_000} {
		// given a replica that has not heard that a gave everything back and b drew it
		s := newScene(t, Limit{Tokens: 1, Per: 1000 * time.Second, Burst: 10}, 100*time.Millisecond)
		a, b, c := s.holder("a"), s.holder("b"), s.holder("c")
		s.calls(b, Ask{})
		s.calls(a, Ask{Want: 10})
		replica := s.bucket.Clone()
		r := s.opens(a, Ask{Return: everything})
		s.executes(r)
		s.calls(b, Ask{Want: 10})
		// when it is promoted, b calls first, and a's request arrives once more
		s.bucket = *replica
		r2 := s.opens(b, Ask{})
		s.executes(r2)
		s.now += wait
		s.spends(b)
		if wait > 90_000 {
			s.meter.admit(s.now, 10) // b spent its holding just before its end
		}
		s.executes(r)
		g := s.calls(c, Ask{Want: 10})
		// then the tokens that b has are not there a second time
		if g.Granted > 0 {
			t.Errorf("after %d µs: granted %d", wait, g.Granted)
		}
		s.spends(c)
	}
}

func TestFractionOfATickIsNotKeptBeyondTheBrim(t *testing.T) {
	// given a limit so fine that its level grows in ticks of a millisecond: many tokens a tick
	l := Limit{Tokens: 1_000_000_007, Per: 1_000_033 * time.Millisecond, Burst: 5_000_000}
	sc, err := newScale(l, 0)
	if err != nil || sc.Tick != 1000 {
		t.Fatalf("%v: %+v, %v", l, sc, err)
	}
	s := &scene{t: t, now: 1_000_100, config: Config{Limits: []Limit{l}, TTL: 100 * time.Millisecond, Target: time.Microsecond}}
	s.meter = newMeter(PerSecond(1), l.Burst, s.now) // not what this looks at
	a := s.holder("a")
	// when some is drawn and half a tick has passed
	s.draws(a, 100_000)
	s.now += 500
	// and a refund brings the level to the brim, and some is drawn again
	a.Refund(100_000)
	g := s.calls(a, Ask{})
	if g.Levels[0] != l.Burst {
		t.Fatalf("the level is %d of %d", g.Levels[0], l.Burst)
	}
	g = s.calls(a, Ask{Want: 1000, Waiting: 1000})
	// then the next half tick brings half a tick's tokens
	s.now += 500
	g = s.calls(a, Ask{})
	if most := l.Burst - 1000 + 500; g.Levels[0] > most {
		t.Errorf("the level is %d, one central bucket has %d at most", g.Levels[0], most)
	}
}

// TestClipIsNeeded: without the clip a lower Overcommit leaves a full level beside full holdings,
// for as long as they are renewed.
func TestClipIsNeeded(t *testing.T) {
	s := newScene(t, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 70*time.Microsecond)
	// given E = 2, and a holder with as much as B while the level is full
	s.config.Overcommit = 2
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{Want: 2})
	s.now += 10
	s.calls(a, Ask{})
	// when E becomes 0, the holder renews, and everything that the old limit admitted has drained
	s.config.Overcommit = 0
	s.sets(s.config)
	for range 10 {
		s.now += 20
		s.calls(a, Ask{})
	}
	s.meter.advance(s.now)
	// then the level and the holding are not there at once
	s.draws(b, 2)
	s.spends(a)
	s.audits()
}

// TestVoidReportMayNotReturn: a record that knows of less than the holder reports is from another
// life of it. What it gives back has run out already, and the time since was refilled.
func TestVoidReportMayNotReturn(t *testing.T) {
	s := newScene(t, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 70*time.Microsecond)
	// given a holder with everything, which sends two calls shortly before its deadline; both are
	// slow
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{Want: 2})
	s.now += 60
	asks := s.opens(a, Ask{})
	gives := s.opens(a, Ask{Return: everything})
	// when its entry has run out, somebody draws what was refilled, and then the calls arrive
	s.now += 60
	s.draws(b, 2)
	s.executes(asks)
	s.executes(gives)
	// then what was given back is not there a second time
	s.draws(b, 2)
	s.audits()
}
