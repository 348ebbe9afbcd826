package lease

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestCodecLosesNothing walks at random through every model in two worlds: one that lives on, and one that is encoded
// and decoded after every event. They must never differ.
func TestCodecLosesNothing(t *testing.T) {
	for _, m := range models {
		rnd := rand.New(rand.NewPCG(7, 7))
		// Two buckets made in the same microsecond would have the same epoch; decoded, they have two.
		m.flush = false
		for range 100 {
			kept, merged := newWorld(m), newWorld(m)
			start, _ := merged.encode(nil)
			merged.decode(start)
			for range 60 {
				events := kept.events(nil)
				e := events[rnd.IntN(len(events))]
				what := kept.describe(e, []string{"A", "B", "C"})
				kept.apply(e)
				a, _ := kept.encode(nil)
				other, found := same(merged, e, a)
				if !found {
					t.Fatalf("%s: after %s nothing that the decoded world can do leads to the same state", m.name, what)
				}
				merged.decode(other)
			}
		}
	}
}

// same looks for the event of the decoded world that is e under the names that the codec gave.
func same(w *world, e event, want []byte) ([]byte, bool) {
	state, _ := w.encode(nil)
	if bytes.Equal(state, want) {
		return state, true // it changed nothing that matters, such as the record of a holder that is forgotten
	}
	w.decode(state)
	for _, other := range w.events(nil) {
		if other.kind != e.kind {
			continue
		}
		w.decode(state)
		w.apply(other)
		if got, _ := w.encode(nil); bytes.Equal(got, want) {
			return got, true
		}
	}
	return nil, false
}

// TestSettlingTwiceIsSettlingOnce is why the codec may settle the bucket before it writes it down.
func TestSettlingTwiceIsSettlingOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		b := Bucket{}
		ttl := 1 + rnd.Int64N(50)
		l := perMicro(1+rnd.Int64N(3), 1+rnd.Int64N(5), 1+rnd.Int64N(20))
		b.install(1000, Config{Limits: []Limit{l}, Overcommit: rnd.Int64N(3), TTL: duration(ttl)})
		b.state.level[0] = rnd.Int64N(b.scales[0].Capacity*b.scales[0].Unit + 1)
		for s := range int64(ringSlices) {
			b.state.ring.add(b.state.ring.base+s, rnd.Int64N(4), 1)
		}
		b.clip()
		b.state.frozen = rnd.Int64N(2) * (1000 + rnd.Int64N(30))
		once, twice := b, b
		mid := 1000 + rnd.Int64N(100)
		end := mid + rnd.Int64N(100)
		once.settle(end)
		twice.settle(mid)
		twice.settle(end)
		if once.state != twice.state {
			t.Fatalf("%v from %+v\nat once to %d: %+v\nby way of %d: %+v", l, b.state, end, once.state, mid, twice.state)
		}
	}
}
