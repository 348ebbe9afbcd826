package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// Stories of limits, versions and T that change: docs/protocol.md sections 6.7 to 6.14.

// TestClipIsNeeded: without the clip a lower Overcommit leaves a full level beside full holdings,
// for as long as they are renewed.
func TestClipIsNeeded(t *testing.T) {
	s := newScene(t, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 70*time.Microsecond)
	// given E = 2, and a holder with as much as B while the level is full
	s.config.Overcommit = 2
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, ask{Want: 2})
	s.now += 10
	s.calls(a, ask{})
	// when E becomes 0, the holder renews, and everything that the old limit admitted has drained
	s.config.Overcommit = 0
	s.sets(s.config)
	for range 10 {
		s.now += 20
		s.calls(a, ask{})
	}
	s.meter.advance(s.now)
	// then the level and the holding are not there at once
	s.draws(b, 2)
	s.spends(a)
	s.audits()
}

// TestLeasesOfALoweredLimitEndWithinT: holders that keep what they have and renew it in time would
// spend it under the new limit, however long after the change.
func TestLeasesOfALoweredLimitEndWithinT(t *testing.T) {
	// given two holders with half of a burst of 10 each
	s := newScene(t, PerSecond(1).WithBurst(10), 100*time.Microsecond)
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, ask{Want: 5})
	s.calls(b, ask{Want: 5})
	// when the burst is lowered to 2, and both go on renewing what they hold
	low := s.config
	low.Limits = []Limit{PerSecond(1).WithBurst(2)}
	s.sets(low)
	for range 5 {
		s.now += 40
		s.calls(a, ask{})
		s.calls(b, ask{})
	}
	// then T later nothing of it is left to spend: the burst was used when it was lowered
	spent := s.spends(a) + s.spends(b) + s.draws(a, 10)
	if spent != 0 {
		t.Errorf("%d tokens are spent after the change", spent)
	}
	if !a.Account().Conserved() || !b.Account().Conserved() {
		t.Errorf("%+v %+v", a.Account(), b.Account())
	}
}

func TestLimitThatDoesNotChangeKeepsItsLevel(t *testing.T) {
	scarce, fast := slow(100), PerSecond(1000)
	for _, c := range []struct {
		name    string
		configs [][]Limit
	}{
		{"one is put in front and taken away", [][]Limit{{scarce}, {fast, scarce}, {scarce}, {fast, scarce},
			{scarce}}},
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

func TestRevisionsEnd(t *testing.T) {
	// given limits at the last revision there is
	s := newScene(t, PerSecond(10), time.Second)
	s.config.Version.Revision = maxUnits - 1
	s.calls(s.holder("a"), ask{})
	before := s.bucket.Dump()
	// when they are set once more
	_, err := s.bucket.Configure(s.now, OpSet, s.config)
	// then that is refused, and nothing has changed
	if !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("%v", err)
	}
	if after := s.bucket.Dump(); after.Config.Version != before.Config.Version ||
		after.Counter != before.Counter {
		t.Errorf("before %+v\nafter %+v", before, after)
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
		if g := s.calls(a, ask{Config: old, Want: 100, Waiting: 100}); g.Config.Version == old.Version {
			total += g.Waited
		}
		g := s.calls(b, ask{Config: newer})
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

func TestTheBucketOutlivesLeasesOfALongerTTL(t *testing.T) {
	// given a process that leased the whole burst for ten seconds,
	c := clock.NewManual(0)
	store := NewMemoryStore(c)
	config := Config{Limits: []Limit{PerSecond(1000).WithBurst(100)}, Target: time.Millisecond,
		TTL: 10 * time.Second}
	call := func(holder string, config Config, want int64) Grant {
		call := &Call{Key: "k", Request: Request{Holder: holder, Seq: 1, Config: config, Want: want,
			Weight: 1}}
		store.Exchange(t.Context(), []*Call{call}, func([]*Call) {})
		if call.Err != nil {
			t.Fatal(call.Err)
		}
		return call.Grant
	}
	if g := call("a", config, 100); g.Granted != 100 {
		t.Fatalf("granted %d", g.Granted)
	}
	// and a new version that makes T 20 ms,
	config.TTL, config.Version.Deploy = 20*time.Millisecond, 1
	call("b", config, 0)
	// when nobody calls for two seconds, and then somebody who knows nothing does,
	c.Advance(2 * time.Second)
	// then the bucket has not been forgotten, for the first lease is still alive.
	if g := call("c", config, 100); g.Granted != 0 {
		t.Errorf("granted %d while 100 of 100 are held", g.Granted)
	}
}

// Given a network that gets slower with every call, so that each call proposes a longer T, then T
// follows, and no faster than time passes.
func TestTFollowsANetworkThatGetsSlowerAndSlower(t *testing.T) {
	b := new(Bucket)
	c := Config{Limits: []Limit{PerSecond(100).WithBurst(10)}, TTL: 400 * time.Millisecond,
		Target: 100 * time.Millisecond}
	start := int64(1_700_000_000_000_000)
	for i := range int64(100) {
		passed := time.Duration(i) * 10 * time.Millisecond
		c.TTL = 400*time.Millisecond + time.Duration(i)*5*time.Millisecond
		var g Grant
		r := Request{Holder: "a", Seq: i + 1, Config: c, Weight: 1}
		if err := b.Call(start+micros(passed), &r, &g); err != nil {
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
		s.calls(a, ask{Config: stretched})
		s.now += 100_000
	}
	if g := s.calls(b, ask{}); g.Config.TTL != stretched.TTL {
		t.Fatalf("T is %v while %v is proposed", g.Config.TTL, stretched.TTL)
	}
	// when everybody proposes the usual one again, for 7 seconds
	for range 70 {
		s.calls(a, ask{})
		s.calls(b, ask{})
		s.now += 100_000
	}
	// then it is that, and nobody was void
	if g := s.calls(a, ask{}); g.Config.TTL != s.config.TTL || g.Void {
		t.Errorf("T is %v, want %v; void %v", g.Config.TTL, s.config.TTL, g.Void)
	}
}

func TestRetryAfterTheTTLGrewBackKeepsNothingThatTheBucketForgot(t *testing.T) {
	// given a ring with wide slices, which holds an entry, and then a shorter T
	s := newScene(t, Limit{Tokens: 1, Per: time.Microsecond, Burst: 2}, 700*time.Microsecond)
	a, b := s.holder("a"), s.holder("b")
	s.calls(b, ask{})
	short := s.config
	short.TTL = 70 * time.Microsecond
	s.sets(short)
	s.config.TTL = short.TTL
	// when a draws under the shorter T, the reply is lost, T grows back, and a retries
	r := s.opens(a, ask{Want: 2})
	s.executes(r)
	s.now += 10
	long := s.config
	long.TTL = 700 * time.Microsecond
	s.calls(b, ask{Config: long})
	again := a.resend(s.instant())
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
