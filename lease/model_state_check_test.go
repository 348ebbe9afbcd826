package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWhatIsDescribedAlikeGoesOnAlike walks at random through every model and keeps one world of
// each description. Another world that comes to the same description must be able to do the same,
// with the same result.
func TestWhatIsDescribedAlikeGoesOnAlike(t *testing.T) {
	for _, m := range models {
		rnd := rand.New(rand.NewPCG(7, 7))
		m.flush = false // two buckets made in the same microsecond have the same epoch
		known, alike := map[string]*world{}, 0
		for range 100 {
			w := newWorld(m)
			for range 60 {
				events := w.events(nil)
				w.apply(events[rnd.IntN(len(events))])
				var d describer
				text := string(d.describe(nil, w))
				first := known[text]
				if first == nil {
					known[text] = new(world)
					w.copyTo(known[text])
					continue
				}
				alike++
				if a, b := first.futures(), w.futures(); !slices.Equal(a, b) {
					t.Fatalf("%s: two worlds of one description have different futures:\n%s\n%s", m.name,
						first.sketch(), w.sketch())
				}
			}
		}
		if alike < 100 {
			t.Errorf("%s: only %d worlds came to a known description", m.name, alike)
		}
	}
}

// futures are the descriptions of all that w may become by one event or none, and what is wrong
// then.
func (w *world) futures() []string {
	var d describer
	all := []string{string(d.describe(nil, w))}
	for _, e := range w.events(nil) {
		after := new(world)
		w.copyTo(after)
		violation := after.apply(e)
		all = append(all, string(d.describe([]byte(violation), after)))
	}
	slices.Sort(all)
	return slices.Compact(all)
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
			t.Fatalf("%v from %+v\nat once to %d: %+v\nby way of %d: %+v", l, b.state, end, once.state, mid,
				twice.state)
		}
	}
}
