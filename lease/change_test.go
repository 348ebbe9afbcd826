package lease

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

// TestLeasesOfALoweredLimitEndWithinT: holders that keep what they have and renew it in time would
// spend it under the new limit, however long after the change.
func TestLeasesOfALoweredLimitEndWithinT(t *testing.T) {
	// given two holders with half of a burst of 10 each
	s := newScene(t, PerSecond(1).WithBurst(10), 100*time.Microsecond)
	a, b := s.holder("a"), s.holder("b")
	s.calls(a, Ask{Want: 5})
	s.calls(b, Ask{Want: 5})
	// when the burst is lowered to 2, and both go on renewing what they hold
	low := s.config
	low.Limits = []Limit{PerSecond(1).WithBurst(2)}
	s.sets(low)
	for range 5 {
		s.now += 40
		s.calls(a, Ask{})
		s.calls(b, Ask{})
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

func TestNothingFillsWhileALossIsWaitedOut(t *testing.T) {
	// given a bucket that was lost, as its first caller proves
	limit := PerSecond(100)
	c := Policy{}.ConfigFor([]Limit{limit}, 0, 0)
	var b Bucket
	var g Grant
	r := Request{Holder: "a", Seq: 9, Config: c, Weight: 1, Epoch: 5, Counter: 7, LeaseMax: c.TTL, HeardAt: 1_000_000, Want: 100, Need: 1}
	now := int64(1_000_000)
	if err := b.Call(now, &r, &g); err != nil || g.Granted != 0 {
		t.Fatal(g.Granted, err)
	}
	// when it is reset, and when a second limit is added, before the lost leases have ended
	if st, err := b.Configure(now+1, OpReset, Config{}); err != nil || st.Levels[0] != 0 {
		t.Errorf("reset: level %d, %v", st.Levels[0], err)
	}
	c.Limits = []Limit{limit, PerMinute(1000)}
	st, err := b.Configure(now+2, OpSet, c)
	if err != nil || st.Levels[0] != 0 || st.Levels[1] != 0 {
		t.Errorf("new limit: levels %v, %v", st.Levels, err)
	}
	// then they fill from the end of the wait on
	st, _ = b.Configure(now+micros(c.TTL)+1_000_000, OpInspect, Config{})
	if st.Levels[0] != 100 || st.Levels[1] != 16 {
		t.Errorf("a second after the wait: levels %v", st.Levels)
	}
}

func TestTheBucketOutlivesLeasesOfALongerTTL(t *testing.T) {
	// given a process that leased the whole burst for ten seconds,
	c := clock.NewManual(0)
	store := NewMemoryStore(c)
	config := Config{Limits: []Limit{PerSecond(1000).WithBurst(100)}, Target: time.Millisecond, TTL: 10 * time.Second}
	call := func(holder string, config Config, want int64) Grant {
		call := &Call{Key: "k", Request: Request{Holder: holder, Seq: 1, Config: config, Want: want, Weight: 1}}
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

func TestAStoreThatFailsNowAndThenGivesOneLocalBurst(t *testing.T) {
	// given a process alone on 10/s with a burst of 100, whose every second call fails
	limit := PerSecond(10).WithBurst(100)
	d := newDriver(t, limit)
	now := d.now
	h := &d.client(Policy{}, limit, nil).Holder
	var store Bucket
	admitted, began := int64(0), now
	for seq := int64(1); now.Sub(began) < 20*time.Second; seq += 2 {
		r := *h.Build(now, seq, Input{})
		var g Grant
		if err := store.Call(int64(now)/1000, &r, &g); err != nil {
			t.Fatal(err)
		}
		h.Accept(now, &g, 0)
		h.Build(now, seq+1, Input{})
		h.Fail(now, ErrUnavailable)
		// when it takes all that the fallback gives, each time
		for h.TakeFallback(now, 1) {
			admitted++
		}
		now = now.Add(100 * time.Millisecond)
	}
	// then that is one local burst and the rate, not a burst for every failure
	if most := int64(100 + 10*20); admitted > most || admitted < most*9/10 {
		t.Errorf("the fallback admitted %d in 20 s, want about %d", admitted, most)
	}
}
