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
	if !h.Degraded() || !h.TakeFallback(d.now, 100) {
		t.Fatal("the fallback gives nothing")
	}
	// when it goes on under another id and wants nearly all of the share
	h.Rename("other")
	for asked := 0; !h.TakeFallback(d.now, 990); asked++ {
		at, ok := h.FallbackAt(d.now, 990)
		if !ok || at <= d.now || asked > 2 {
			t.Fatalf("refused, and the time to ask again is %v from now (%v), the %d. time", at.Sub(d.now), ok, asked+1)
		}
		d.now = at
	}
	// then it has waited for what was missing
	if more, ok := h.FallbackAt(d.now, 1001); ok {
		t.Errorf("more than the burst is there at %v", more)
	}
}
