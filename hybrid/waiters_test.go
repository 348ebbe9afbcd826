package hybrid_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Ten thousand requests that wait for one key are served in the order in which they came. Each is a goroutine of its
// caller's and needs no other, and together they make as many calls as one would.
func TestACrowdOfWaiters(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		crowd int
		calls int // at most
	}{
		// A token at a time: each waiter is served at a moment of its own, so the order is strict; one call for each
		// token, and no other.
		{hybrid.PerSecond(10).WithBurst(1), 1_000, 1_000 + 10},
		// Some fifty at a time: one call each half Target.
		{hybrid.PerSecond(1_000), 10_000, 200 + 10},
		// All in a second.
		{hybrid.PerSecond(10_000), 10_000, 20 + 10},
	} {
		bubbleOf(t, c.limit.String(), func(t *testing.T, s *faultyStore) {
			// Given a crowd that waits for an empty bucket,
			s.every(verdict{delay: time.Millisecond})
			l := drained(t, s, hybrid.Config{Limits: limits(c.limit)})
			key := l.Key("k")
			_, before := s.counts()
			idle := runtime.NumGoroutine()
			var left atomic.Int64
			left.Store(int64(c.crowd))
			o := newOrder(c.crowd)
			var wg sync.WaitGroup
			for i := range c.crowd {
				wg.Go(func() {
					noErr(t, key.Wait(t.Context()))
					o.add(i)
					left.Add(-1)
				})
				synctest.Wait() // it waits, behind those before it
			}
			waiting := runtime.NumGoroutine()
			// when the tokens come, (looked at while everybody sleeps: in between the count is no more than a guess)
			most := 0
			for left.Load() > 0 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				most = max(most, runtime.NumGoroutine())
			}
			wg.Wait()
			// then they are served in order,
			for i := 1; i < c.crowd; i++ {
				must(t, o.when[i] >= o.when[i-1],
					"waiter %d was served at %v, and the one before it at %v", i, o.when[i], o.when[i-1])
			}
			// each by the goroutine that waits,
			const few = 20
			n := max(waiting, most) - idle
			check(t, n <= c.crowd+few, "%d goroutines for %d waiters", n, c.crowd)
			// for a few calls.
			_, after := s.counts()
			check(t, after-before <= c.calls,
				"%d calls, want %d at most", after-before, c.calls)
		})
	}
}
