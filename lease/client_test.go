package lease

import (
	"slices"
	"testing"
	"time"
)

// A client's states, in the order in which a key may go through them.
func TestStatesOfAClient(t *testing.T) {
	// given a new process, and a limit that one request a millisecond exhausts
	l := PerSecond(100).WithBurst(40)
	d := newDriver(t, l)
	n := d.client(Policy{Fallback: FallbackDeny}, l, nil)
	seen := []ClientState{n.State(d.now)}
	see := func() {
		if s := n.State(d.now); s != seen[len(seen)-1] {
			seen = append(seen, s)
		}
	}
	for range 100 {
		n.request()
		see()
		n.ask()
		d.run(time.Millisecond)
		see()
	}
	// when its store goes away, and in the end it leaves
	d.run(time.Second)
	d.down = true
	n.Refuse(1)
	d.run(100 * time.Millisecond)
	see()
	d.down = false
	d.run(5 * time.Second)
	see()
	n.Leave()
	see()
	d.run(time.Second)
	see()
	// then each of them could be seen.
	for _, want := range []ClientState{
		StateCold, StateActive, StateDry, StateDenied, StateDegraded, StateLeaving, StateClosed,
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("never %v: %v", want, seen)
		}
	}
	if first, last := seen[0], seen[len(seen)-1]; first != StateCold || last != StateClosed {
		t.Errorf("from %v to %v", first, last)
	}
}
