package hybrid_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// plan is a LimitsFor whose answer changes.
type plan struct {
	limits atomic.Pointer[[]hybrid.Limit]
}

func (p *plan) set(l ...hybrid.Limit) { p.limits.Store(&l) }

func (p *plan) of(string) []hybrid.Limit { return *p.limits.Load() }

// takesOver is a little longer than a bucket keeps limits that no process proposes any more.
const takesOver = 3 * ttl

// more is a limit that takes the place of hourly.
var more = hybrid.PerHour(1).WithBurst(500)

// refreshes are the ways to refresh "k".
var refreshes = map[string]func(*hybrid.Limiter) error{
	"one key":  func(l *hybrid.Limiter) error { return l.Refresh("k") },
	"all keys": (*hybrid.Limiter).RefreshAll,
}

// Refresh and RefreshAll propose the present answer of LimitsFor. It takes over when no process
// proposes the old limits any more.
func TestRefreshAsksLimitsForAgain(t *testing.T) {
	slow, fast := hybrid.PerHour(1).WithBurst(5), hybrid.PerHour(1).WithBurst(500)
	for name, refresh := range refreshes {
		bubbleOf(t, name, func(t *world) {
			var p plan
			p.set(slow)
			cfg := hybrid.Config{LimitsFor: p.of}
			a, b := t.start(cfg), t.start(cfg)
			use := func(d time.Duration) {
				used(d, func() { a.Allow("k") }, func() { b.Allow("k") })
			}
			use(time.Second)
			limitsAre(t, a, "k", slow)
			p.set(fast)
			use(2 * takesOver)
			limitsAre(t, a, "k", slow) // before any refresh
			noErr(t, refresh(a))
			use(2 * takesOver)
			limitsAre(t, a, "k", slow) // b still proposes it
			noErr(t, refresh(b))
			use(takesOver)
			limitsAre(t, a, "k", fast)
			_, err := a.Take(t.Context(), "k", 100)
			check(t, err == nil, "%v", err) // within the new burst, of which everything is used
			// A wrong answer changes nothing, and says so.
			p.set(hybrid.PerSecond(-1))
			says(t, "Refresh", refresh(a), hybrid.ErrInvalidConfig, "Tokens is -1")
			use(takesOver)
			limitsAre(t, b, "k", fast)
		})
	}
}

// An answer that was on its way while the limits changed and Refresh was called does not outlive
// it, whichever of the two comes last.
func TestRefreshOvertakesAnAnswerOnItsWay(t *testing.T) {
	old, recent := hybrid.PerHour(1).WithBurst(5), hybrid.PerHour(1).WithBurst(500)
	for _, when := range []string{"the key comes into use", "an earlier Refresh asks"} {
		bubbleOf(t, when, func(t *world) {
			var p plan
			p.set(old)
			var hold chan struct{} // holds the next answer back
			l := t.start(hybrid.Config{LimitsFor: func(key string) []hybrid.Limit {
				answer, until := p.of(key), hold
				hold = nil
				if until != nil {
					<-until
				}
				return answer
			}})
			held := make(chan struct{})
			slow := func() { l.Allow("k") }
			if when != "the key comes into use" {
				l.Allow("k")
				slow = func() { noErr(t, l.Refresh("k")) }
			}
			hold = held
			var wg sync.WaitGroup
			wg.Go(slow)
			synctest.Wait() // LimitsFor has read the old limits
			p.set(recent)
			noErr(t, l.Refresh("k"))
			close(held)
			wg.Wait()
			used(takesOver, func() { l.Allow("k") })
			limitsAre(t, l, "k", recent)
		})
	}
}

// A Refresh also holds for a key at rest, and for one of which a draw is under way. Limits that this
// process itself has proposed until then are no conflict.
func TestRefreshIsNoConflictWithItself(t *testing.T) {
	drawn := func(cancelled bool) func(*world, *hybrid.Limiter, func()) {
		return func(t *world, l *hybrid.Limiter, change func()) {
			t.every(verdict{delay: 20 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := background(func() { _, _ = l.Take(ctx, "k", 1) })
			synctest.Wait()
			change()
			if cancelled {
				cancel() // so that an entry goes on with the draw
			}
			wait()
		}
	}
	for when, given := range map[string]func(t *world, l *hybrid.Limiter, change func()){
		"a draw is under way":       drawn(false),
		"a draw that was cancelled": drawn(true),
		"at rest": func(t *world, l *hybrid.Limiter, change func()) {
			must(t, l.Allow("k"), "denied")
			change()
			l.TryAllow("k") // brings it into use before the bucket has taken the new limits over
			time.Sleep(takesOver)
		},
	} {
		for name, refresh := range refreshes {
			bubbleOf(t, when+", "+name, func(t *world) {
				var p plan
				p.set(hourly)
				l := t.start(hybrid.Config{LimitsFor: p.of})
				given(t, l, func() { p.set(more); noErr(t, refresh(l)) })
				used(takesOver, func() { l.Allow("k") })
				check(t, slices.Equal(l.KnownLimits("k"), limits(more)), "the limits are %v", l.KnownLimits("k"))
				equal(t, l.Stats().Conflicts, 0, "conflicts with itself")
			})
		}
	}
}

// KeyWith takes the key's limits from a caller that knows them.
func TestKeyWithTakesThePlaceOfLimitsFor(t *testing.T) {
	bubble(t, func(t *world) {
		asked := 0
		l := t.start(hybrid.Config{LimitsFor: func(string) []hybrid.Limit {
			asked++
			return limits(hourly)
		}})
		small, large := hybrid.PerHour(1).WithBurst(3), hybrid.PerHour(1).WithBurst(30)
		k := l.KeyWith("k", small)
		r, err := k.Peek(t.Context())
		check(t, err == nil && r.Limit == small && r.Remaining == 3, "%+v, %v", r, err)
		must(t, k.AllowN(3) && !k.Allow() && asked == 0, "the burst is not 3, or LimitsFor was asked")
		limitsAre(t, l, "k", small)
		// They hold whenever the key comes back into use by this handle, and no Refresh changes them.
		time.Sleep(10 * time.Second)
		must(t, l.Stats().InUse == 0, "in use")
		k.Allow()
		noErr(t, l.Refresh("k"))
		noErr(t, l.RefreshAll())
		used(takesOver, func() { k.Allow() })
		limitsAre(t, l, "k", small)
		equal(t, asked, 0, "times that LimitsFor was asked")
		// Others, given later, are proposed by a key that is in use.
		later := l.KeyWith("k", large)
		used(takesOver, func() { later.Allow() })
		limitsAre(t, l, "k", large)
		// A key that came into use by its name follows the first request by the handle.
		l.Allow("named")
		given := l.KeyWith("named", large)
		used(takesOver, func() { given.Allow() })
		limitsAre(t, l, "named", large)
		equal(t, asked, 1, "times that LimitsFor was asked")
	})
}
