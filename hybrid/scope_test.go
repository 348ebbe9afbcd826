package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// alone is a configuration whose limits hold for each process by itself.
func alone(l ...hybrid.Limit) hybrid.Config {
	return hybrid.Config{Limits: l, Scope: hybrid.ScopeProcess}
}

// Redisson's RateType.PER_CLIENT: each process has the whole limit for itself, in every class, and
// what was set for a key holds in all of them, also in one that comes later.
func TestPeerEachProcessHasTheLimitForItself(t *testing.T) {
	inVirtualTime(t, func(t *world) {
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
			ok, err := l.TrySetLimits(t.Context(), "k", want)
			check(t, err == nil && !ok, "limits were set before: %v, %v", ok, err)
		}
		late := t.start(cfg)
		used(ttl, func() { late.TryAllow("k") })
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
		logs(t, out, 1, "does not say which limits were set")
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

// lateAnswers is a Store whose next answer to a question is held back.
type lateAnswers struct {
	lease.Store
	next chan struct{} // nil answers at once
}

// Configure implements lease.Store.
func (s *lateAnswers) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	st, err := s.Store.Configure(ctx, key, op, c)
	if until := s.next; op == lease.OpInspect && until != nil {
		s.next = nil
		<-until
	}
	return st, err
}

// An answer that another one has overtaken changes nothing.
func TestAProcessByItselfGoesByTheLatestAnswer(t *testing.T) {
	bubble(t, func(t *world) {
		old, recent := hybrid.PerHour(1).WithBurst(3), hybrid.PerHour(1).WithBurst(6)
		s := &lateAnswers{Store: t.network}
		l := t.startOn(s, alone(hourly))
		noErr(t, l.SetLimits(t.Context(), "k", old))
		until := make(chan struct{})
		s.next = until
		l.Allow("k")
		synctest.Wait()
		must(t, s.next == nil, "no question")
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

// ResetTo drops what was used and sets the limits in one: 6 of 10 are used, by two processes of
// which one still holds tokens.
func TestResetToDropsWhatWasUsed(t *testing.T) {
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
					noErr(t, l.ResetTo(t.Context(), key, want))
					limitsAre(t, l, key, want)
					equal(t, drain(l, key), burst, "admitted after ResetTo")
					// Other processes see it as they see SetLimits, and so does an unused key.
					other := t.start(cfg)
					limitsAre(t, other, key, want)
					noErr(t, l.ResetTo(t.Context(), unused, want))
					limitsAre(t, other, unused, want)
					equal(t, drain(l, unused), burst, "admitted of a new key")
				}
				// Held tokens go back before.
				l := t.start(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Scope: scope,
					Policy: hybrid.Policy{MinBatch: 10}})
				must(t, l.Allow("warm") && l.Stats().Held == 9, "%+v", l.Stats())
				noErr(t, l.ResetTo(t.Context(), "warm", hourly))
				equal(t, drain(l, "warm"), 10, "admitted of a key that was in use")

				l = t.start(hybrid.Config{Limits: limits(hourly), Scope: scope})
				says(t, "ResetTo", l.ResetTo(t.Context(), "used 10", hybrid.PerSecond(-1)),
					hybrid.ErrInvalidConfig, "Tokens is -1")
				limitsAre(t, l, "used 10", hybrid.PerHour(2).WithBurst(10))
			})
		})
	}
}
