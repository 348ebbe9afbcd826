package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// jumpingClock is a clock whose readings can be moved ahead of its timers, as those of a process
// are that was stopped: the first thing it does afterwards comes before its timers have run.
type jumpingClock struct {
	clock.Clock
	mu    sync.Mutex
	ahead time.Duration
}

func (c *jumpingClock) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Now().Add(c.ahead)
}

func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// A process that was stopped past its deadline spends nothing of what it held with StrictExpiry,
// and without it no more than that.
func TestAStoppedProcessSpendsNothingLate(t *testing.T) {
	for _, strict := range []bool{true, false} {
		for _, verb := range []string{"TryAllow", "AllowN", "Key.TryAllow"} {
			bubble(t, func(t *testing.T, s *faultyStore) {
				// Given a process that holds tokens,
				c := &jumpingClock{Clock: clock.System()}
				policy := hybrid.Policy{StrictExpiry: strict, Fallback: hybrid.FallbackDeny}
				l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Clock: c, Policy: policy})
				k, held := l.Key("k"), l.Stats().Held
				must(t, held >= 20, "it holds %d", held)
				// when it stops for longer than the lease lasts, the store being away afterwards,
				s.every(away)
				c.jump(time.Minute)
				spent := int64(0)
				for range held + 50 {
					switch {
					case verb == "TryAllow" && l.TryAllow("k"), verb == "Key.TryAllow" && k.TryAllow():
						spent++
					case verb == "AllowN" && l.AllowN("k", 2):
						spent += 2
					}
				}
				// then nothing of it is spent.
				check(t, !strict || spent == 0, "%s: %d tokens spent after their deadline", verb, spent)
				check(t, spent <= held, "%s: %d tokens spent of %d", verb, spent, held)
				synctest.Wait()
				st := conserved(t, l)
				check(t, !strict || st.Burnt >= held, "%s: %+v", verb, st)
			})
		}
	}
}

// A lease that is not renewed is burnt at its deadline by a timer, with any clock.
func TestTheTimerBurnsAnExpiredLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := clock.NewManual(0)
		s := &faultyStore{inner: lease.NewMemoryStore(m)}
		policy := hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 100}
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Clock: m, Policy: policy})
		must(t, l.Allow("k"), "denied")
		held := l.Stats().Held
		must(t, held != 0, "nothing is held")
		s.every(away)
		// The deadline is 15/16 of T (400 ms) after the sending.
		m.Advance(374 * time.Millisecond)
		synctest.Wait()
		// Most may be on its way back by now, or be given up on it, but not all.
		check(t, l.TryAllow("k"), "nothing is left before the deadline: %+v", l.Stats())
		m.Advance(2 * time.Millisecond)
		synctest.Wait()
		st := l.Stats()
		check(t, st.Burnt != 0, "after the deadline: %+v", st)
		check(t, !l.TryAllow("k"), "an expired token was spent")
		// What was on its way back is burnt when that is given up.
		for range 100 {
			m.Advance(10 * time.Millisecond)
			synctest.Wait()
		}
		st = l.Stats()
		check(t, st.Held == 0 && st.Burnt == 98, "at last: %+v", st)
	})
}
