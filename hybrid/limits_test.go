package hybrid_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Every process follows within T, whatever it is doing: denied, spending, idle, or asking for more
// than the old burst.
func TestSetLimitsReachesEveryProcessWithinT(t *testing.T) {
	bubble(t, func(t *world) {
		setter, denied, large, idle := t.process(hourly), t.process(hourly), t.process(hourly), t.process(hourly)
		must(t, idle.Allow("other") && !large.AllowN("k", 11), "more than the burst")
		drain(denied, "k")
		time.Sleep(10 * time.Second)
		denied.Allow("k")
		limitsAre(t, setter, "k", hourly)
		want := hybrid.PerSecond(1000)
		noErr(t, setter.SetLimits(t.Context(), "k", want))
		time.Sleep(afterTTL)
		for _, l := range []*hybrid.Limiter{setter, denied, idle} {
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && r.OK && r.Limit == want, "%+v, %v", r, err)
		}
		check(t, large.AllowN("k", 100), "a request within the new burst is refused by the old one")
		for _, l := range t.processes {
			limitsAre(t, l, "k", want)
		}
		// When it is lowered, no process admits beyond the new bound from T on.
		noErr(t, idle.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(1)))
		time.Sleep(afterTTL)
		admitted := int64(0)
		for range 1000 {
			for _, l := range t.processes {
				admitted += drain(l, "k")
			}
			time.Sleep(time.Millisecond)
		}
		check(t, admitted <= 1, "%d admitted of a burst of 1", admitted)
	})
}

// A process that does not use the key proposes as long a T as its fleet, whatever the new limits
// ask for: a T that shrank and grew again would burn leases.
func TestSetLimitsFromOutsideKeepsT(t *testing.T) {
	bubble(t, func(t *world) {
		operator, user := t.process(hybrid.PerSecond(1000)), t.warm(of(hybrid.PerSecond(1000)))
		was := t.state("k").Config.TTL
		noErr(t, operator.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(80)))
		for range 20 {
			got := t.state("k").Config.TTL
			must(t, got >= was, "T was %v and is %v", was, got)
			admits(25, 2*time.Millisecond, func() bool { return user.Allow("k") })
		}
	})
}

// CockroachDB's quotapool: UpdateLimit wakes all waits. (Guava's setRate does not, and documents it.)
func TestPeerARateChangeWakesEveryWaiter(t *testing.T) {
	everywhere(t, func(t *world) {
		wake(t, "own", 1, 10)
		wake(t, "others' too", 2, 1)
		wake(t, "many", 2, 10)
	})
}

// wake has many wait in some processes, for one token and for the whole burst, while one of them
// changes the limit.
func wake(t *world, key string, processes, waits int) {
	const ttl = 200 * time.Millisecond
	var wg sync.WaitGroup
	var setter *hybrid.Limiter
	for range processes {
		l := t.start(by(hybrid.Policy{TTL: ttl}, hourly))
		setter = l
		drain(l, key)
		calls := l.Stats().Calls
		for range waits {
			wg.Go(func() { noErr(t, l.Wait(t.Context(), key)) })
			wg.Go(func() { isErr(t, l.WaitN(t.Context(), key, 10), hybrid.ErrExceedsBurst) })
		}
		testkit.Eventually(t, "a call for the waiting requests", func() bool { return l.Stats().Calls > calls })
	}
	if t.virtual() {
		time.Sleep(10 * time.Second) // all wait, for long
	}
	// All waits end: here at once, elsewhere within a T.
	t.lasts(0, 30*time.Millisecond+time.Duration(processes-1)*ttl, func() {
		noErr(t, setter.SetLimits(t.Context(), key, hybrid.PerSecond(1000).WithBurst(9)))
		wg.Wait()
	})
}

// A process follows its own SetLimits at once. A reply to a call that was under way does not bring the
// old burst back, and under a smaller burst the held tokens do not run out.
func TestThisProcessFollowsAtOnce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hourly)
		l.Allow("k")
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(20)))
		noErr(t, l.Reset(t.Context(), "k"))
		noErr(t, l.WaitN(t.Context(), "k", 20))
	})
	bubble(t, func(t *world) {
		l := t.process(hourly)
		l.AllowN("k", 10)
		time.Sleep(2 * time.Second)
		t.every(verdict{delay: 50 * time.Millisecond})
		wait := background(func() { l.Allow("k") })
		synctest.Wait()
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(20)))
		noErr(t, l.WaitN(t.Context(), "k", 20))
		wait()
	})
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerSecond(1000)))
		admits(10, 0, func() bool { return l.Allow("k") })
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(50)))
		synctest.Wait()
		t.soon(50*time.Millisecond, func() bool { return l.Allow("k") })
		check(t, l.Stats().Burnt == 0, "%+v", l.Stats())
	})
}

// A process that asks for more than the burst only, and lost its store, finds out when the burst
// has grown.
func TestLargeRequestsFollowALimitAfterAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(denying, hybrid.PerHour(10))
		setter, l := t.start(cfg), t.start(cfg)
		l.Allow("k")
		t.every(away)
		drain(l, "k")
		time.Sleep(time.Minute)
		t.setJudge(nil)
		// They are served as soon as a probe says so, which comes within a T, and the tokens are there.
		noErr(t, setter.SetLimits(t.Context(), "k", hybrid.PerSecond(100)))
		t.soon(ttl+500*time.Millisecond, func() bool { return l.AllowN("k", 50) })
	})
}

// Redisson's trySetRate and setRate: the first rate holds for all processes until another one is set.
// Of many concurrent attempts one succeeds, and later ones fail. Limits that were set hold until a
// deploy with a higher version.
func TestPeerWhoseLimitsHold(t *testing.T) {
	everywhere(t, func(t *world) {
		burst := func(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }
		comes := func(version int64, l hybrid.Limit) bool {
			return t.start(hybrid.Config{Limits: limits(l), Version: version}).Allow("k")
		}
		hold := func(want ...hybrid.Limit) {
			t.Helper()
			for _, l := range t.processes {
				limitsAre(t, l, "k", want...)
			}
		}
		must(t, comes(1, burst(5)) && comes(1, hybrid.PerHour(2).WithBurst(9)), "denied")
		hold(burst(5))
		equal(t, t.settled("k"), 3, "left of 5 after 2")
		var won [10]bool
		ls := t.fleet(len(won), of(hourly))
		together(len(won), func(i int) {
			var err error
			won[i], err = ls[i].TrySetLimits(t.Context(), "k", burst(int64(100+i)))
			noErr(t, err)
		})()
		winner := slices.Index(won[:], true)
		must(t, winner >= 0 && !slices.Contains(won[winner+1:], true), "set by: %v", won)
		hold(burst(int64(100 + winner)))
		for _, want := range [][]hybrid.Limit{
			limits(hybrid.PerHour(7)), limits(burst(2), hybrid.PerMinute(300)), limits(burst(30)),
		} {
			noErr(t, ls[0].SetLimits(t.Context(), "k", want...))
			ok, err := ls[1].TrySetLimits(t.Context(), "k", hybrid.PerHour(99))
			check(t, !ok && err == nil, "TrySetLimits after SetLimits: %v, %v", ok, err)
			hold(want...)
		}
		for _, c := range []struct{ version, want int64 }{{1, 30}, {2, 20}, {1, 20}} {
			comes(c.version, burst(10*c.version))
			hold(burst(c.want))
		}
	})
}

// The limits belong to the Limiter from New on, and what LimitsOf returns to its caller. A key may
// have limits of its own.
func TestLimitsAreNotShared(t *testing.T) {
	bubble(t, func(t *world) {
		mine := limits(hybrid.PerHour(2))
		l := t.start(hybrid.Config{Limits: mine, LimitsFor: func(key string) []hybrid.Limit {
			if key == "vip" {
				return limits(hybrid.PerSecond(100))
			}
			return nil
		}})
		mine[0] = hybrid.PerHour(100)
		equal(t, drain(l, "k"), 2, "admitted: the limit followed the caller's slice")
		equal(t, drain(l, "vip"), 100, "admitted of a key with limits of its own")
		got, err := l.LimitsOf(t.Context(), "k")
		noErr(t, err)
		got[0] = hybrid.PerSecond(1_000_000)
		limitsAre(t, l, "k", hybrid.PerHour(2))
	})
}

func TestControlErrors(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(10))
		every := func(ctx context.Context, key string, want error) {
			t.Helper()
			_, peek := l.Peek(ctx, key)
			_, of := l.LimitsOf(ctx, key)
			_, try := l.TrySetLimits(ctx, key, hybrid.PerSecond(1))
			for i, err := range []error{peek, of, try, l.SetLimits(ctx, key, hybrid.PerSecond(1)), l.Reset(ctx, key)} {
				check(t, errors.Is(err, want), "%d: %v, want %v", i, err, want)
			}
		}
		every(ended(), "k", context.Canceled)
		every(t.Context(), "", hybrid.ErrInvalidKey)
		t.setControl(lease.ErrUnavailable)
		for _, v := range []verdict{{}, away, {lost: true}} { // of the calls that give back before a Reset
			l.Allow("k")
			t.every(v)
			t.lasts(0, time.Second, func() { every(t.Context(), "k", hybrid.ErrUnavailable) })
			t.every(verdict{})
			time.Sleep(time.Minute)
		}
		// A store that hangs is given up after ten CallTimeouts.
		t.setControl(errHangs)
		t.lasts(5*time.Second, 5*time.Second, func() { every(t.Context(), "k", hybrid.ErrUnavailable) })
		time.AfterFunc(ttl, func() { l.Close() })
		t.lasts(ttl, ttl, func() { every(t.Context(), "k", hybrid.ErrClosed) })
	})
}

// KnownLimits returns the limits of the last reply, for a key in use, and makes no call.
func TestKnownLimitsAreThoseOfTheLastReply(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{
			Name: "api", Limits: limits(hourly, hybrid.PerSecond(9)), Priorities: []float64{.5},
		})
		key := l.Key("k")
		check(t, l.Name() == "api" && l.KnownLimits("k") == nil && key.KnownLimits() == nil,
			"known without a reply")
		must(t, l.Allow("k") && key.Class(1).Allow(), "denied")
		for name, known := range map[string][]hybrid.Limit{
			"Limiter": l.KnownLimits("k"), "Key": key.KnownLimits(), "class": key.Class(1).KnownLimits(),
		} {
			check(t, slices.Equal(known, []hybrid.Limit{hourly, hybrid.PerSecond(9)}), "%s: %v", name, known)
		}
		noErr(t, t.start(hybrid.Config{Name: "api", Limits: []hybrid.Limit{hourly, hybrid.PerSecond(9)}}).
			SetLimits(t.Context(), "k", hybrid.PerSecond(7)))
		time.Sleep(afterTTL)
		must(t, key.Allow(), "denied")
		check(t, slices.Equal(key.KnownLimits(), []hybrid.Limit{hybrid.PerSecond(7)}), "%v", key.KnownLimits())
	})
}
