package hybrid_test

import (
	"context"
	"errors"
	"fmt"
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
// Many wait for one token and for the whole burst, here and in another process.
func TestPeerARateChangeWakesEveryWaiter(t *testing.T) {
	everywhere(t, func(t *world) {
		const ttl = 200 * time.Millisecond
		var waits [2]sync.WaitGroup
		ls := t.fleet(2, by(hybrid.Policy{TTL: ttl}, hourly))
		for i, l := range ls {
			drain(l, "k")
			calls := l.Stats().Calls
			for range 10 {
				waits[i].Go(func() { noErr(t, l.Wait(t.Context(), "k")) })
				waits[i].Go(func() { isErr(t, l.Key("k").WaitN(t.Context(), 10), hybrid.ErrExceedsBurst) })
			}
			testkit.Eventually(t, "a call for the waiting requests", func() bool { return l.Stats().Calls > calls })
		}
		if t.virtual() {
			time.Sleep(10 * time.Second) // all wait, for long
		}
		// All waits end: here at once, elsewhere within a T.
		t.lasts(0, 30*time.Millisecond+ttl, func() {
			t.lasts(0, 30*time.Millisecond, func() {
				noErr(t, ls[0].SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(9)))
				waits[0].Wait()
			})
			waits[1].Wait()
		})
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
		noErr(t, l.Key("k").WaitN(t.Context(), 20))
	})
	bubble(t, func(t *world) {
		l := t.process(hourly)
		l.AllowN("k", 10)
		time.Sleep(2 * time.Second)
		t.every(verdict{delay: 50 * time.Millisecond})
		wait := background(func() { l.Allow("k") })
		synctest.Wait()
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(20)))
		noErr(t, l.Key("k").WaitN(t.Context(), 20))
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

// A process that asks for more than the burst only, and lost its store, finds out when the burst has grown.
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
		ls := t.fleet(10, of(hourly))
		for _, want := range [][]hybrid.Limit{
			limits(hybrid.PerHour(7)), limits(burst(2), hybrid.PerMinute(300)), limits(burst(30)),
		} {
			noErr(t, ls[0].SetLimits(t.Context(), "k", want...))
			ls[1].Allow("k")
			hold(want...)
		}
		for _, c := range []struct{ version, want int64 }{{1, 30}, {2, 20}, {1, 20}} {
			comes(c.version, burst(10*c.version))
			hold(burst(c.want))
		}
	})
}

// The limits belong to the Limiter from New on, and what Limits returns to its caller. A key may
// have limits of its own.
func TestLimitsAreNotShared(t *testing.T) {
	bubble(t, func(t *world) {
		mine := limits(hybrid.PerHour(2))
		l := t.start(hybrid.Config{Limits: mine, LimitsFor: plans(func(key string) []hybrid.Limit {
			if key == "vip" {
				return limits(hybrid.PerSecond(100))
			}
			return nil
		})})
		mine[0] = hybrid.PerHour(100)
		equal(t, drain(l, "k"), 2, "admitted: the limit followed the caller's slice")
		equal(t, drain(l, "vip"), 100, "admitted of a key with limits of its own")
		got, err := l.Levels(t.Context(), "k")
		noErr(t, err)
		got[0].Limit = hybrid.PerSecond(1_000_000)
		limitsAre(t, l, "k", hybrid.PerHour(2))
	})
}

func TestControlErrors(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(10))
		every := func(ctx context.Context, key string, want error) {
			t.Helper()
			_, peek := l.Peek(ctx, key)
			_, of := l.Levels(ctx, key)
			for i, err := range []error{peek, of, l.SetLimits(ctx, key, hybrid.PerSecond(1)), l.Reset(ctx, key)} {
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
		t.lasts(4*time.Second, 4*time.Second, func() { every(t.Context(), "k", hybrid.ErrUnavailable) })
		time.AfterFunc(ttl, func() { l.Close() })
		t.lasts(ttl, ttl, func() { every(t.Context(), "k", hybrid.ErrClosed) })
	})
}

// CachedLimits returns the limits of the last reply, for a key in use, and makes no call.
func TestCachedLimitsAreThoseOfTheLastReply(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{
			Name: "api", Limits: limits(hourly, hybrid.PerSecond(9)), Priorities: []float64{.5},
		})
		key := l.Key("k")
		check(t, l.Name() == "api" && l.CachedLimits("k") == nil && key.CachedLimits() == nil,
			"known without a reply")
		must(t, l.Allow("k") && key.Class(1).Allow(), "denied")
		for name, known := range map[string][]hybrid.Limit{
			"Limiter": l.CachedLimits("k"), "Key": key.CachedLimits(), "class": key.Class(1).CachedLimits(),
		} {
			check(t, slices.Equal(known, []hybrid.Limit{hourly, hybrid.PerSecond(9)}), "%s: %v", name, known)
		}
		noErr(t, t.start(hybrid.Config{Name: "api", Limits: []hybrid.Limit{hourly, hybrid.PerSecond(9)}}).
			SetLimits(t.Context(), "k", hybrid.PerSecond(7)))
		time.Sleep(afterTTL)
		must(t, key.Allow(), "denied")
		check(t, slices.Equal(key.CachedLimits(), []hybrid.Limit{hybrid.PerSecond(7)}), "%v", key.CachedLimits())
	})
}

// alone is a configuration whose limits hold for each process by itself.
func alone(l ...hybrid.Limit) hybrid.Config {
	return hybrid.Config{Limits: l, Scope: hybrid.ScopeProcess}
}

// Redisson's RateType.PER_CLIENT: each process has the whole limit for itself, in every class, and
// what was set for a key holds in all of them, also in one that comes later.
func TestPeerEachProcessHasTheLimitForItself(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := alone(hourly)
		cfg.Name, cfg.Priorities = "login", []float64{0.5}
		a, b := t.start(cfg), t.start(cfg)
		low := a.Key("k").Class(1)
		equal(t, admits(20, 0, low.Allow), 5, "admitted of the lower class")
		equal(t, drain(a, "k"), 5, "admitted of the rest")
		equal(t, drain(b, "k"), 10, "admitted by another process")
		_, calls := t.counts()
		equal(t, calls, 0, "lease calls to the store")
		check(t, !t.remembers("@login:k"), "a bucket is in the store")
		r, err := a.Peek(t.Context(), "k")
		check(t, err == nil && r.Remaining == 0 && r.Limit == hourly, "%+v, %v", r, err)

		// Limits that are set anywhere are followed by all, and what was used stays used.
		want := hybrid.PerHour(1).WithBurst(30)
		noErr(t, a.SetLimits(t.Context(), "k", want))
		for _, l := range t.processes {
			limitsAre(t, l, "k", want)
		}
		shrunk := hybrid.PerHour(1).WithBurst(4)
		noErr(t, t.start(named("login", hourly)).SetLimits(t.Context(), "k", shrunk)) // whatever its own scope
		used(2*ttl, func() { a.Allow("k") }, func() { b.Allow("k") })
		for _, l := range t.processes {
			limitsAre(t, l, "k", shrunk)
		}
		late := t.start(cfg)
		used(ttl, func() { late.Key("k").TryAllow() })
		r, err = late.Take(t.Context(), "k", 5)
		isErr(t, err, hybrid.ErrExceedsBurst)
		check(t, !r.OK, "%+v", r)

		// Reset is of this process's bucket.
		noErr(t, a.Reset(t.Context(), "k"))
		time.Sleep(2 * time.Second) // the lower class has no share any more
		equal(t, drain(a, "k"), 4, "admitted after a reset")
		equal(t, drain(b, "k"), 0, "admitted after another process's reset")
	})
}

// A process follows limits set by another one within two TTLs, even with a request waiting under the
// old ones.
func TestAProcessByItselfFollowsWithinTwoTTLs(t *testing.T) {
	for phase := range 8 {
		bubbleOf(t, phase, func(t *world) {
			l, operator := t.drained(alone(hourly)), t.process(hourly)
			var err error
			wait := background(func() { err = l.Wait(t.Context(), "k") })
			time.Sleep(10*time.Second + time.Duration(phase)*ttl/8)
			noErr(t, operator.SetLimits(t.Context(), "k", hybrid.PerSecond(1000)))
			t.lasts(0, 2*ttl, wait)
			noErr(t, err)
		})
	}
}

// The remote store is asked about a key in use once in a TTL at most, and not about one that rests;
// none of its answers is waited for.
func TestAProcessByItselfAsksOnceInATTL(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(alone(hybrid.PerSecond(1000)))
		controls := func() (n int) {
			synctest.Wait()
			t.locked(func() { n = t.controls })
			return n
		}
		noErr(t, l.Ping(t.Context()))
		asked := func(f func()) int {
			before := controls()
			f()
			return controls() - before
		}
		n := asked(func() { used(20*ttl, func() { l.Allow("k") }, func() { l.Allow("k2") }) })
		check(t, n >= 20 && n <= 42, "%d questions about two keys in 20 TTLs", n)
		time.Sleep(10 * time.Second)
		equal(t, asked(func() { time.Sleep(time.Minute) }), 0, "questions about keys at rest")
		t.setControl(errHangs)
		for range 100 {
			t.lasts(0, 0, func() { check(t, l.Allow("new"), "denied") })
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// While the store is away the limits last heard of hold, and its own for a key of which nothing was
// heard. The log says so.
func TestAProcessByItselfWorksWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := alone(hourly)
		cfg.Policy = denying
		l, out := t.logging(t, cfg)
		want := hybrid.PerHour(1).WithBurst(4)
		noErr(t, l.SetLimits(t.Context(), "k", hourly))
		noErr(t, l.SetLimits(t.Context(), "k", want))
		t.setControl(lease.ErrUnavailable)
		limitsAre(t, l, "k", want)
		equal(t, drain(l, "k"), 4, "admitted of the limits that were set")
		equal(t, drain(l, "new"), 10, "admitted of its own")
		isErr(t, l.SetLimits(t.Context(), "k", hourly), hybrid.ErrUnavailable)
		limitsAre(t, l, "k", want)
		noErr(t, l.Reset(t.Context(), "k"))
		used(10*ttl, func() { l.Allow("k") })
		logs(t, out, 1, "cannot read the limits set for a key")
		check(t, l.Stats().Errors == 0 && l.Stats().Degraded == 0, "%+v", l.Stats())
		// It follows when the store is there again, also one that has lost everything.
		t.setControl(nil)
		t.loseAll()
		other := hybrid.PerHour(1).WithBurst(7)
		noErr(t, t.process(hourly).SetLimits(t.Context(), "k", other))
		used(3*ttl, func() { l.Allow("k") })
		limitsAre(t, l, "k", other)
	})
}

// An answer that another one has overtaken changes nothing.
func TestAProcessByItselfGoesByTheLatestAnswer(t *testing.T) {
	bubble(t, func(t *world) {
		old, recent := hybrid.PerHour(1).WithBurst(3), hybrid.PerHour(1).WithBurst(6)
		l := t.start(alone(hourly))
		noErr(t, l.SetLimits(t.Context(), "k", old))
		until := make(chan struct{})
		t.locked(func() { t.overdue = until })
		l.Allow("k")
		synctest.Wait()
		must(t, t.overdue == nil, "no question")
		noErr(t, l.SetLimits(t.Context(), "k", recent))
		close(until)
		synctest.Wait()
		t.setControl(lease.ErrUnavailable)
		limitsAre(t, l, "k", recent)
	})
}

// Limits of an older deploy do not come back.
func TestAProcessByItselfGoesByVersions(t *testing.T) {
	bubble(t, func(t *world) {
		old, recent := hybrid.PerHour(1).WithBurst(3), hybrid.PerHour(1).WithBurst(6)
		noErr(t, t.start(hybrid.Config{Limits: limits(hourly), Version: 1}).SetLimits(t.Context(), "k", old))
		cfg := alone(hourly)
		cfg.Version = 2
		l := t.start(cfg)
		used(3*ttl, func() { l.Allow("k") })
		limitsAre(t, l, "k", hourly)
		noErr(t, l.SetLimits(t.Context(), "k", recent))
		limitsAre(t, l, "k", recent)
		used(3*ttl, func() { l.Allow("k") })
		limitsAre(t, l, "k", recent)
	})
}

// ReplaceLimits drops what was used and sets the limits in one: 6 of 10 are used, by two processes of
// which one still holds tokens.
func TestReplaceLimitsDropsWhatWasUsed(t *testing.T) {
	for name, scope := range map[string]hybrid.Scope{
		"fleet": hybrid.ScopeFleet, "process": hybrid.ScopeProcess,
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *world) {
				for _, burst := range []int64{20, 10, 8, 1} {
					want := hybrid.PerHour(2).WithBurst(burst)
					cfg := hybrid.Config{Limits: limits(hourly), Scope: scope}
					l, key, unused := t.start(cfg), fmt.Sprint("used ", burst), fmt.Sprint("new ", burst)
					must(t, l.AllowN(key, 6), "denied")
					noErr(t, l.ReplaceLimits(t.Context(), key, want))
					limitsAre(t, l, key, want)
					equal(t, drain(l, key), burst, "admitted after ReplaceLimits")
					// Other processes see it as they see SetLimits, and so does an unused key.
					other := t.start(cfg)
					limitsAre(t, other, key, want)
					noErr(t, l.ReplaceLimits(t.Context(), unused, want))
					limitsAre(t, other, unused, want)
					equal(t, drain(l, unused), burst, "admitted of a new key")
				}
				// Held tokens go back before.
				l := t.start(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Scope: scope,
					Policy: hybrid.Policy{MinBatch: 10}})
				must(t, l.Allow("warm") && l.Stats().Held == 9, "%+v", l.Stats())
				noErr(t, l.ReplaceLimits(t.Context(), "warm", hourly))
				equal(t, drain(l, "warm"), 10, "admitted of a key that was in use")

				l = t.start(hybrid.Config{Limits: limits(hourly), Scope: scope})
				says(t, "ReplaceLimits", l.ReplaceLimits(t.Context(), "used 10", hybrid.PerSecond(-1)),
					hybrid.ErrInvalidConfig, "Tokens is -1")
				limitsAre(t, l, "used 10", hybrid.PerHour(2).WithBurst(10))
			})
		})
	}
}

// ClearLimits gives a key back to the programs: their limits are in force at once, in processes too that knew
// those that were set, and a later proposal takes over as if none had ever been set.
func TestClearLimitsGivesAKeyBackToThePrograms(t *testing.T) {
	for name, scope := range map[string]hybrid.Scope{
		"fleet": hybrid.ScopeFleet, "process": hybrid.ScopeProcess,
	} {
		bubbleOf(t, name, func(t *world) {
			// Given two processes in which a key was blocked for a while,
			own, later := hybrid.PerSecond(1000), hybrid.PerSecond(500)
			var p plan
			p.set(own)
			cfg := hybrid.Config{LimitsFor: plans(p.of), Scope: scope}
			a, b := t.start(cfg), t.start(cfg)
			use := func(d time.Duration) { used(d, func() { a.Allow("k") }, func() { b.Allow("k") }) }
			use(time.Second)
			noErr(t, a.ClearLimits(t.Context(), "k")) // nothing is set
			limitsAre(t, a, "k", own)
			noErr(t, a.SetLimits(t.Context(), "k", hybrid.Blocked))
			use(takesOver)
			limitsAre(t, b, "k", hybrid.Blocked)
			// when it is cleared,
			noErr(t, a.ClearLimits(t.Context(), "k"))
			// then the programs' limits hold and go on to,
			use(takesOver)
			limitsAre(t, a, "k", own)
			limitsAre(t, b, "k", own)
			equal(t, a.Stats().Conflicts+b.Stats().Conflicts, 0, "conflicts")
			// and give way to later ones,
			p.set(later)
			noErr(t, a.Refresh(t.Context()))
			noErr(t, b.Refresh(t.Context()))
			use(2 * takesOver)
			limitsAre(t, a, "k", later)
			limitsAre(t, b, "k", later)
			// as they do not where limits are set.
			noErr(t, b.SetLimits(t.Context(), "k", own))
			use(2 * takesOver)
			limitsAre(t, a, "k", own)
		})
	}
}
