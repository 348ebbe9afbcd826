package lease

import (
	"testing"
	"time"
)

// The local share is there when FallbackAt says so, also after the holder has taken another id:
// whoever asks again at that time would otherwise ask for ever.
func TestTheLocalShareIsThereAtTheTimeThatItNames(t *testing.T) {
	// given a holder that is alone, and a store that is away
	l := PerSecond(1000)
	d := newDriver(t, l)
	h := d.client(Policy{}, l, nil)
	h.request()
	h.ask()
	d.run(50 * time.Millisecond)
	d.down = true
	d.run(2 * time.Second)
	h.Refuse(1)
	h.ask()
	d.run(10 * time.Millisecond)
	if !h.Degraded() || !h.takeFallback(d.now, 100) {
		t.Fatal("the fallback gives nothing")
	}
	// when it goes on under another id and wants nearly all of the share
	h.rename("other")
	for asked := 0; !h.takeFallback(d.now, 990); asked++ {
		at, ok := h.fallbackAt(d.now, 990)
		if !ok || at <= d.now || asked > 2 {
			t.Fatalf("refused, and the time to ask again is %v from now (%v), the %d. time", at.Sub(d.now),
				ok, asked+1)
		}
		d.now = at
	}
	// then it has waited for what was missing
	if more, ok := h.fallbackAt(d.now, 1001); ok {
		t.Errorf("more than the burst is there at %v", more)
	}
}

func TestAStoreThatFailsNowAndThenGivesOneLocalBurst(t *testing.T) {
	// given a process alone on 10/s with a burst of 100, whose every second call fails
	limit := PerSecond(10).WithBurst(100)
	d := newDriver(t, limit)
	now := d.now
	h := d.client(Policy{}, limit, nil)
	var store Bucket
	admitted, began := int64(0), now
	for seq := int64(1); now.Sub(began) < 20*time.Second; seq += 2 {
		r := *h.Build(now, seq, 0)
		var g Grant
		if err := store.Call(int64(now)/1000, &r, &g); err != nil {
			t.Fatal(err)
		}
		h.Accept(now, &g)
		h.Build(now, seq+1, 0)
		h.Fail(now, ErrUnavailable)
		// when it takes all that the fallback gives, each time
		for h.takeFallback(now, 1) {
			admitted++
		}
		now = now.Add(100 * time.Millisecond)
	}
	// then that is one local burst and the rate, not a burst for every failure
	if most := int64(100 + 10*20); admitted > most || admitted < most*9/10 {
		t.Errorf("the fallback admitted %d in 20 s, want about %d", admitted, most)
	}
}
