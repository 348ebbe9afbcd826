package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// take takes tokens one by one until there are none, and counts them.
func take(k *hybrid.Key) (n int64) {
	for k.Allow() {
		n++
	}
	return n
}

// A class gets what is above its share of the burst and nothing of what is below, in whichever
// process, while the classes before it go on; a larger request than that exceeds its burst.
func TestAClassStopsAtItsShareAndThoseBeforeGoOn(t *testing.T) {
	everywhere(t, func(t *world) {
		limit := hybrid.PerHour(1).WithBurst(100)
		ls := t.fleet(2, classes([]float64{0.3, 0.6}, limit))
		class := func(i, p int) *hybrid.Key { return ls[i].Key("k").Class(p) }
		sum := int64(0)
		stopsAt := func(p int, left int64) {
			t.Helper()
			r, err := class(0, p).Peek(t.Context())
			noErr(t, err)
			_, err = class(0, p).Take(t.Context(), limit.Burst-left+1)
			isErr(t, err, hybrid.ErrExceedsBurst)
			for i := range ls {
				sum += take(class(i, p))
			}
			check(t, sum <= 100-left && (!t.virtual() || sum == 100-left),
				"class %d had the bucket down to %d", p, 100-sum)
			check(t, !t.virtual() || r.OK && r.Remaining == 100-left-map[int]int64{2: 0, 1: 40, 0: 70}[p], "%+v", r)
			r, err = class(0, p).Peek(t.Context())
			check(t, err == nil && (!t.virtual() || !r.OK && r.Remaining == 0), "%+v, %v", r, err)
			r, err = class(1, p).Take(t.Context(), 1)
			check(t, err == nil && (!t.virtual() || !r.OK && r.Remaining == 0 && r.RetryAfter > 59*time.Minute),
				"%+v, %v", r, err)
		}
		stopsAt(2, 60)
		stopsAt(1, 30)
		stopsAt(0, 0)
		// Returned tokens are for class 0 first.
		if !t.virtual() {
			return
		}
		time.Sleep(29*time.Hour + time.Minute)
		check(t, !class(0, 1).Allow() && !class(0, 2).Allow(), "a class had what it is to leave")
		equal(t, take(class(1, 0)), 29, "tokens of class 0")
	})
}

// The promise holds for all classes together, whatever they ask for; and where class 0 asks for
// less than the rate, it has hardly a denial, however much the other classes ask for.
func TestClassesTogetherKeepThePromiseAndTheFirstGoesOn(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		limit := hybrid.PerSecond(1000).WithBurst(500)
		bound := newMeter(limit)
		ls := t.fleet(3, classes([]float64{0.25, 0.5}, limit))
		const span = 10 * time.Second
		var asked, admitted [3]atomic.Int64
		// In each process class 0 asks for 200 a second, and each of the others for 1,000.
		together(3*len(ls), func(i int) {
			p := i % 3
			k, rnd := ls[i/3].Key("k").Class(p), rand.New(rand.NewPCG(uint64(i), 7))
			gap := float64(time.Millisecond)
			if p == 0 {
				gap *= 5
			}
			pause := func() { time.Sleep(time.Duration(rnd.ExpFloat64() * gap)) }
			for end := time.Now().Add(span); time.Now().Before(end); pause() {
				asked[p].Add(1)
				if bound.admitIf(k.TryAllow()) {
					admitted[p].Add(1)
				}
			}
		})()
		bound.check(t)
		share := func(p int) float64 { return float64(admitted[p].Load()) / float64(asked[p].Load()) }
		all := admitted[0].Load() + admitted[1].Load() + admitted[2].Load()
		what := fmt.Sprintf("%.3f of class 0, %.3f of 1, %.3f of 2, %d in all", share(0), share(1), share(2), all)
		check(t, share(0) >= 0.99, "class 0 was denied beside the others: %s", what)
		check(t, share(1) < 0.5 && share(2) < share(1), "a later class was not denied first: %s", what)
		check(t, all >= 10_000, "the classes leave too much: %s", what)
	})
}
