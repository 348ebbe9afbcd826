package lease

import (
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
)

func TestALoweredLimitTakesBackWhatItWouldNotHaveGranted(t *testing.T) {
	// given a holder with half of a burst of 10,000
	store := new(Bucket)
	now := clock.Instant(time.Hour)
	us := func() int64 { return int64(now) / 1000 }
	h, err := NewHolder(now, HolderConfig{ID: "a", Limits: []Limit{PerSecond(10_000)}})
	if err != nil {
		t.Fatal(err)
	}
	h.demand.fast = 1e6
	h.replied = true
	exchange := func(seq int64) Request {
		r := *h.Build(now, seq, Input{})
		var g Grant
		if err := store.Call(us(), &r, &g); err != nil {
			t.Fatal(err)
		}
		if _, ok := h.Accept(now, &g); !ok {
			t.Fatal("not accepted")
		}
		return r
	}
	h.level = 10_000
	exchange(1)
	if held := h.Pool.Held(); held < 1000 {
		t.Fatalf("only %d held", held)
	}
	// when somebody lowers the limit to 10/s
	low := h.config
	low.Limits = []Limit{PerSecond(10)}
	if _, err := store.Configure(us(), OpSet, low); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Millisecond)
	exchange(2) // it hears of the change
	now = now.Add(time.Millisecond)
	r := exchange(3)
	// then its next call gives back what is more than the new burst, instead of renewing it for ever
	if r.Returned == 0 || h.Pool.Held() > 10 {
		t.Errorf("returned %d, still holds %d under a burst of 10", r.Returned, h.Pool.Held())
	}
	if a := h.Account(); !a.Conserved() {
		t.Errorf("%+v", a)
	}
}

func TestNothingFillsWhileALossIsWaitedOut(t *testing.T) {
	// given a bucket that was lost, as its first caller proves
	limit := PerSecond(100)
	c := Policy{}.ConfigFor([]Limit{limit}, 0, 0)
	var b Bucket
	var g Grant
	r := Request{Holder: "a", Seq: 9, Config: c, Weight: 1, Epoch: 5, Counter: 7, HeardTTL: c.TTL, Want: 100, Need: 1}
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
