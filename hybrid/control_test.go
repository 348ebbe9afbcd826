package hybrid_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ttl is the T of a limiter with default settings; at the very end of it, both orders are right.
const ttl, afterTTL = 400 * time.Millisecond, 401 * time.Millisecond

func TestPeekCostsAndCreatesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerHour(36).WithBurst(10), hybrid.PerHour(3600).WithBurst(100)))
		// A key that nobody has used is full, and stays unknown.
		r, err := l.Peek(t.Context(), "k")
		check(t, err == nil && r.OK && r.Remaining == 10 && r.ResetAfter == 0 &&
			r.Source == hybrid.SourceStore && r.Limit == hybrid.PerHour(36).WithBurst(10),
			"%+v, %v", r, err)
		st := l.Stats()
		check(t, !s.state(t, "k").Exists && st.Keys == 0 && st.Calls == 0, "Peek left something: %+v", st)
		// After some use it tells what is left, whoever holds it, and takes nothing.
		l.AllowN("k", 4)
		for range 20 {
			r, err = l.Key("k").Peek(t.Context())
			must(t, err == nil && r.Remaining == 6 && r.OK, "%+v, %v", r, err)
		}
		// Of an empty bucket it says when there will be a token: one in 100 s, ten in 1000 s.
		drain(l, "k")
		r, err = l.Peek(t.Context(), "k")
		check(t, err == nil && !r.OK && r.RetryAfter == 100*time.Second && r.ResetAfter == 1000*time.Second,
			"%+v, %v", r, err)
		equal(t, l.Stats().Admitted, 10, "admitted")
	})
}

func TestRefundsComeBackOnce(t *testing.T) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, ttl, 10 * ttl, time.Minute} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			l := start(t, s, of(hourly))
			// Given 8 of 10 tokens taken, some time ago,
			must(t, l.AllowN("k", 8), "denied")
			time.Sleep(pause)
			// when 5 of them are refunded,
			l.Refund("k", 2)
			l.Key("k").Refund(3)
			time.Sleep(2 * time.Second)
			// then the bucket has them again, and the process nothing that it does not need.
			st := s.state(t, "k")
			check(t, st.Levels[0]+st.Ledger == 7,
				"after %v: level %d, ledger %d, want 7 in all", pause, st.Levels[0], st.Ledger)
			got := l.Stats().Refunded
			check(t, got == 5, "after %v: Stats says %d refunded", pause, got)
			// More than was ever taken does not go above the burst.
			l.Refund("k", 1000)
			time.Sleep(2 * time.Second)
			st = s.state(t, "k")
			check(t, st.Levels[0] == 10, "level %d", st.Levels[0])
		})
	}
}

func TestResetFillsTheBucketForAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		cfg := of(hourly)
		l, other := drained(t, s, cfg), start(t, s, cfg)
		must(t, !other.Allow("k"), "the bucket is not empty")
		noErr(t, l.Reset(t.Context(), "k"))
		check(t, l.Allow("k"), "denied after a reset")
		// The others know a TTL later at the latest.
		time.Sleep(afterTTL)
		check(t, other.Allow("k"), "another process is denied a TTL after the reset")
		// A bucket that does not exist is not created.
		err := l.Reset(t.Context(), "new")
		check(t, err == nil && !s.state(t, "new").Exists, "%v", err)
	})
}

// Every process follows within T, whatever it is doing: denied, spending, idle, or asking for more
// than the old burst.
func TestSetLimitsReachesEveryProcessWithinT(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		cfg := of(hourly)
		setter, denied, large, idle := start(t, s, cfg), start(t, s, cfg), start(t, s, cfg), start(t, s, cfg)
		must(t, !idle.Allow("other") || !large.AllowN("k", 11), "more than the burst")
		drain(denied, "k")
		time.Sleep(10 * time.Second)
		denied.Allow("k")
		limitsAre(t, setter, "k", cfg.Limits...)
		// when the limit is raised to 1000/s with a burst of 1000,
		want := limits(hybrid.PerSecond(1000))
		noErr(t, setter.SetLimits(t.Context(), "k", want...))
		time.Sleep(afterTTL)
		// then T later everybody is served by it.
		for name, l := range map[string]*hybrid.Limiter{"setter": setter, "denied": denied, "idle": idle} {
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && r.OK && r.Limit == want[0], "%s: %+v, %v", name, r, err)
		}
		check(t, large.AllowN("k", 100), "a request within the new burst is refused by the old one")
		for _, l := range []*hybrid.Limiter{setter, denied, large, idle} {
			limitsAre(t, l, "k", want...)
		}
		// And when it is lowered, nobody is admitted beyond the old bound and, from T on, the new
		// one.
		noErr(t, idle.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(1)))
		time.Sleep(afterTTL)
		admitted := int64(0)
		for range 1000 {
			for _, l := range []*hybrid.Limiter{setter, denied, large, idle} {
				admitted += drain(l, "k")
			}
			time.Sleep(time.Millisecond)
		}
		check(t, admitted <= 1, "%d admitted of a burst of 1", admitted)
	})
}

// A deploy with a higher version replaces what was set at run time; one with the same version does
// not.
func TestAHigherVersionReplacesWhatWasSet(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		at := func(version int64) *hybrid.Limiter {
			return start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10 * version)), Version: version})
		}
		l := at(1)
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(7)))
		for _, c := range []struct {
			version int64
			want    hybrid.Limit
		}{{1, hybrid.PerSecond(7)}, {2, hybrid.PerSecond(20)}, {1, hybrid.PerSecond(20)}} {
			at(c.version).Allow("k")
			limitsAre(t, l, "k", c.want)
		}
	})
}

func TestControlErrors(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10)))
		every := func(ctx context.Context, key string) []error {
			_, peek := l.Peek(ctx, key)
			_, of := l.LimitsOf(ctx, key)
			_, try := l.TrySetLimits(ctx, key, hybrid.PerSecond(1))
			return []error{peek, of, try, l.SetLimits(ctx, key, hybrid.PerSecond(1)), l.Reset(ctx, key)}
		}
		all := func(errs []error, want error) {
			t.Helper()
			for i, err := range errs {
				check(t, errors.Is(err, want), "%d: %v, want %v", i, err, want)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		all(every(ended, "k"), context.Canceled)
		all(every(t.Context(), ""), hybrid.ErrInvalidKey)
		all([]error{
			l.SetLimits(t.Context(), "k"),
			l.SetLimits(t.Context(), "k", hybrid.Limit{Tokens: -1, Per: time.Second}),
			l.SetLimits(t.Context(), "k", hybrid.Limit{Tokens: 1}),
			l.SetLimits(t.Context(), "k", make([]hybrid.Limit, 5)...),
		}, hybrid.ErrInvalidConfig)
		check(t, !s.state(t, "k").Exists, "what is invalid was written")
		s.setControl(lease.ErrUnavailable)
		all(every(t.Context(), "k"), hybrid.ErrUnavailable)
		// A store that hangs is given up after ten CallTimeouts.
		s.setControl(errHangs)
		d := took(func() { all(every(t.Context(), "k"), hybrid.ErrUnavailable) })
		check(t, d == 5*time.Second, "five calls took %v", d)
		time.AfterFunc(100*time.Millisecond, func() { l.Close() })
		d = took(func() { all(every(t.Context(), "k"), hybrid.ErrClosed) })
		check(t, d == 100*time.Millisecond, "it took %v", d)
	})
}

// What this process sets it follows at once, with a burst that is larger than any before.
func TestThisProcessFollowsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.Allow("k")
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(20)))
		noErr(t, l.Reset(t.Context(), "k"))
		noErr(t, l.WaitN(t.Context(), "k", 20))
	})
}

// A reply to a call that was under way does not bring the old burst back.
func TestALateReplyDoesNotUndoAChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.AllowN("k", 10)
		time.Sleep(2 * time.Second)
		s.every(verdict{delay: 50 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { l.Allow("k") })
		synctest.Wait()
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(20)))
		wg.Go(func() {
			err := l.WaitN(t.Context(), "k", 20)
			check(t, err == nil, "after SetLimits(burst 20): %v", err)
		})
		wg.Wait()
	})
}

// What LimitsOf returns may be written to.
func TestLimitsOfIsTheCallersOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10)))
		l.Allow("k")
		got, _ := l.LimitsOf(t.Context(), "k")
		got[0] = hybrid.PerSecond(1_000_000)
		again, _ := l.LimitsOf(t.Context(), "k")
		check(t, again[0] == hybrid.PerSecond(10), "%v", again)
	})
}
