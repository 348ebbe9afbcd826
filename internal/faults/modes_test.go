//go:build unix

package faults

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// offer makes 1,000 requests a second on each limiter from number `from` to below number `to`.
func (f *fleet) offer(from, to int, request func(l *hybrid.Limiter)) *load {
	ctx, cancel := context.WithCancel(context.Background())
	load := &load{cancel: cancel}
	for _, l := range f.limiters[from:to] {
		load.wg.Go(func() { f.drive(ctx, 1000, func() { request(l) }) })
	}
	f.t.Cleanup(load.stop)
	return load
}

// TestAFleetInShadowModeKeepsTheBound: tokens that the limit admits stay within the bound, and every
// other request counts as shadowed.
func TestAFleetInShadowModeKeepsTheBound(t *testing.T) {
	t.Parallel()
	limit, policy := hybrid.PerSecond(1000).WithBurst(300), strict
	policy.Shadow = true
	f := start(t).fleet(3, with(limit, policy))
	load := f.offer(0, 3, func(l *hybrid.Limiter) {
		f.ask(key, func() bool {
			r, err := l.Take(t.Context(), key, 1)
			testkit.Check(t, err == nil && r.OK, "a request in shadow mode is denied: %+v, %v", r, err)
			return !r.Shadowed
		})
	})
	f.awaitAdmitted(key, 1000)
	load.stop()
	f.checkBound(key, limit, 0)
	s, st := f.seen(key, 0, f.now()), f.stats()
	testkit.Check(t, s.admitted == st.Admitted && s.denied == st.Shadowed && st.Shadowed > 0,
		"seen %+v, counted %+v", s, st)
}

// TestTheClassesOfAFleetKeepTheirBounds: each class together with those below it stays within the
// bound of a bucket without the headroom of the class.
func TestTheClassesOfAFleetKeepTheirBounds(t *testing.T) {
	t.Parallel()
	limit := hybrid.PerSecond(500).WithBurst(1000)
	cfg := with(limit, strict)
	cfg.Priorities = []float64{0.3, 0.6}
	f := start(t).fleet(6, cfg)
	// a request of class p is on record under the names of class p and of all classes above it
	names := []string{"class 0 and below", "class 1 and below", "class 2"}
	offer := func(class int) *load {
		return f.offer(2*class, 2*class+2, func(l *hybrid.Limiter) {
			f.askAll(names[:class+1], l.Key(key).Class(class).Allow)
		})
	}
	// given the lowest class alone, until it has what it may have of the burst, when the others ask too
	loads := []*load{offer(2)}
	f.awaitAdmitted(names[2], 800)
	loads = append(loads, offer(1))
	f.awaitAdmitted(names[1], 500)
	loads = append(loads, offer(0))
	f.awaitAdmitted(names[0], 600)
	for _, load := range loads {
		load.stop()
	}
	// then each class leaves its headroom to the classes above it
	for p, headroom := range append([]float64{0}, cfg.Priorities...) {
		less := limit
		less.Burst -= int64(math.Ceil(float64(limit.Burst) * headroom))
		f.checkBound(names[p], less, 0)
	}
}

// TestAFleetThatReservesPaysForWhatItUsed: the use in the whole run is at most the initial level,
// plus the refill, plus the bucket's debt at the end.
func TestAFleetThatReservesPaysForWhatItUsed(t *testing.T) {
	t.Parallel()
	limit := hybrid.PerSecond(1000).WithBurst(300)
	f := start(t).fleet(3, with(limit, strict))
	var used, cancelled, charged atomic.Int64
	var open sync.WaitGroup
	// given requests that reserve a token, and turn out later to cost none, one or four
	load := f.offer(0, 3, func(l *hybrid.Limiter) {
		r, err := l.Key(key).Reserve(t.Context(), 1)
		if err != nil || !r.OK() {
			return
		}
		cost := []int64{0, 1, 4}[rand.IntN(3)]
		open.Add(1)
		time.AfterFunc(time.Duration(rand.Int64N(int64(200*time.Millisecond))), func() {
			defer open.Done()
			used.Add(cost)
			switch cost {
			case 0:
				r.Cancel()
				cancelled.Add(1)
				return
			case 4:
				charged.Add(1)
			}
			testkit.Check(t, r.Settle(cost) == nil, "a settlement fails")
		})
	})
	testkit.Eventually(t, "tokens of each cost", func() bool {
		return used.Load() > 2000 && cancelled.Load() > 0 && charged.Load() > 0
	})
	load.stop()
	open.Wait()
	// when every process has reported the cost of its requests to the bucket
	f.shutdown()
	owed := max(0, -f.state(key).Levels[0])
	// then no charge was forgiven
	most := limit.Burst + int64(limit.Rate()*f.now().Seconds())
	testkit.Check(t, used.Load()-owed <= most, "%d used, of which %d are owed: at most %d may be", used.Load(),
		owed, most)
}
