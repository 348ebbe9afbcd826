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
	"github.com/yuzhi-go/yuzhi/lease"
)

// ttl is the T of a limiter with default settings; at the very end of it, both orders are right.
const ttl, afterTTL = 400 * time.Millisecond, 401 * time.Millisecond

func TestPeekCostsAndCreatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(36).WithBurst(10), hybrid.PerHour(3600).WithBurst(100))})
		// A key that nobody has used is full, and stays unknown.
		r, err := l.Peek(t.Context(), "k")
		if err != nil || !r.OK || r.Remaining != 10 || r.ResetAfter != 0 || r.Source != hybrid.SourceStore || r.Limit != hybrid.PerHour(36).WithBurst(10) {
			t.Errorf("%+v, %v", r, err)
		}
		if st := l.Stats(); s.state(t, "k").Exists || st.Keys != 0 || st.Calls != 0 {
			t.Errorf("Peek left something: %+v", st)
		}
		// After some use it tells what is left, whoever holds it, and takes nothing.
		l.AllowN("k", 4)
		for range 20 {
			if r, err = l.Key("k").Peek(t.Context()); err != nil || r.Remaining != 6 || !r.OK {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		// Of an empty bucket it says when there will be a token: one in 100 s, ten in 1000 s.
		for l.Allow("k") {
		}
		r, err = l.Peek(t.Context(), "k")
		if err != nil || r.OK || r.RetryAfter != 100*time.Second || r.ResetAfter != 1000*time.Second {
			t.Errorf("%+v, %v", r, err)
		}
		if got := l.Stats().Admitted; got != 10 {
			t.Errorf("%d admitted", got)
		}
	})
}

func TestRefundsComeBackOnce(t *testing.T) {
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, ttl, 10 * ttl, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
			// Given 8 of 10 tokens taken, some time ago,
			if !l.AllowN("k", 8) {
				t.Fatal("denied")
			}
			time.Sleep(pause)
			// when 5 of them are refunded,
			l.Refund("k", 2)
			l.Key("k").Refund(3)
			time.Sleep(2 * time.Second)
			// then the bucket has them again, and the process nothing that it does not need.
			if st := s.state(t, "k"); st.Levels[0]+st.Ledger != 7 {
				t.Errorf("after %v: level %d, ledger %d, want 7 in all; %+v", pause, st.Levels[0], st.Ledger, l.Stats())
			}
			if got := l.Stats().Refunded; got != 5 {
				t.Errorf("after %v: Stats says %d refunded", pause, got)
			}
			// More than was ever taken does not go above the burst.
			l.Refund("k", 1000)
			time.Sleep(2 * time.Second)
			if st := s.state(t, "k"); st.Levels[0] != 10 {
				t.Errorf("level %d", st.Levels[0])
			}
		})
	}
}

func TestARefundOfNothingCreatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		l.Refund("k", 5)
		l.Refund("k", 0)
		l.Refund("k", -1)
		l.Refund("", 1)
		time.Sleep(time.Second)
		if st := l.Stats(); st.Keys != 0 || st.Calls != 0 || st.Invalid != 2 || s.state(t, "k").Exists {
			t.Errorf("%+v", st)
		}
	})
}

func TestResetFillsTheBucketForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		cfg := hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))}
		l, other := drained(t, s, cfg), start(t, s, cfg)
		if other.Allow("k") {
			t.Fatal("the bucket is not empty")
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if !l.Allow("k") {
			t.Error("denied after a reset")
		}
		// The others know a TTL later at the latest.
		time.Sleep(afterTTL)
		if !other.Allow("k") {
			t.Error("another process is denied a TTL after the reset")
		}
		// A bucket that does not exist is not created.
		if err := l.Reset(t.Context(), "new"); err != nil || s.state(t, "new").Exists {
			t.Errorf("%v", err)
		}
	})
}

// Every process follows within T, whatever it is doing: denied, spending, idle, or asking for more than the old burst.
func TestSetLimitsReachesEveryProcessWithinT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		cfg := hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))}
		setter, denied, large, idle := start(t, s, cfg), start(t, s, cfg), start(t, s, cfg), start(t, s, cfg)
		if idle.Allow("other") && large.AllowN("k", 11) {
			t.Fatal("more than the burst")
		}
		for denied.Allow("k") {
		}
		time.Sleep(10 * time.Second)
		denied.Allow("k")
		if got, err := setter.LimitsOf(t.Context(), "k"); err != nil || !slices.Equal(got, cfg.Limits) {
			t.Errorf("%v, %v", got, err)
		}
		// when the limit is raised to 1000/s with a burst of 1000,
		want := limits(hybrid.PerSecond(1000))
		if err := setter.SetLimits(t.Context(), "k", want...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(afterTTL)
		// then T later everybody is served by it.
		for name, l := range map[string]*hybrid.Limiter{"setter": setter, "denied": denied, "idle": idle} {
			if r, err := l.Take(t.Context(), "k", 1); err != nil || !r.OK || r.Limit != want[0] {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if !large.AllowN("k", 100) {
			t.Error("a request within the new burst is refused by the old one")
		}
		for _, l := range []*hybrid.Limiter{setter, denied, large, idle} {
			if got, err := l.LimitsOf(t.Context(), "k"); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v", got, err)
			}
		}
		// And when it is lowered, nobody is admitted beyond the old bound and, from T on, the new one.
		if err := idle.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(afterTTL)
		admitted := 0
		for range 1000 {
			for _, l := range []*hybrid.Limiter{setter, denied, large, idle} {
				if l.Allow("k") {
					admitted++
				}
			}
			time.Sleep(time.Millisecond)
		}
		if admitted > 1 {
			t.Errorf("%d admitted of a burst of 1", admitted)
		}
	})
}

// A change keeps what was used; with a reset after it, it does not.
func TestAChangeKeepsWhatWasUsed(t *testing.T) {
	for _, c := range []struct {
		name        string
		used, burst int64
		reset       bool
		left        int64
	}{
		{"raised", 6, 20, false, 4},
		{"raised and reset", 6, 20, true, 20},
		{"lowered", 3, 5, false, 2},
		{"lowered below what was used", 6, 5, false, 0},
		{"lowered and reset", 6, 5, true, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
			l.AllowN("k", c.used)
			time.Sleep(2 * time.Second)
			if err := l.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(c.burst)); err != nil {
				t.Fatal(err)
			}
			if c.reset {
				if err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := l.Peek(t.Context(), "k"); err != nil || r.Remaining != c.left {
				t.Errorf("%s: %d left, want %d; %v", c.name, r.Remaining, c.left, err)
			}
		})
	}
}

func TestTheFirstToTrySetsTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		l.Allow("k") // what a process was configured with is not "set"
		for i, want := range []bool{true, false, false} {
			ok, err := l.TrySetLimits(t.Context(), "k", hybrid.PerSecond(int64(100+i)))
			if ok != want || err != nil {
				t.Errorf("attempt %d: %v, %v", i+1, ok, err)
			}
		}
		if got, err := l.LimitsOf(t.Context(), "k"); err != nil || got[0] != hybrid.PerSecond(100) {
			t.Errorf("%v, %v", got, err)
		}
		if err := l.SetLimits(t.Context(), "k", hybrid.PerSecond(7), hybrid.PerMinute(300)); err != nil {
			t.Error(err)
		}
		if got, err := l.LimitsOf(t.Context(), "k"); err != nil || !slices.Equal(got, limits(hybrid.PerSecond(7), hybrid.PerMinute(300))) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// A deploy with a higher version replaces what was set at run time; one with the same version does not.
func TestAHigherVersionReplacesWhatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		at := func(version int64) *hybrid.Limiter {
			return start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10 * version)), Version: version})
		}
		l := at(1)
		if err := l.SetLimits(t.Context(), "k", hybrid.PerSecond(7)); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			version int64
			want    hybrid.Limit
		}{{1, hybrid.PerSecond(7)}, {2, hybrid.PerSecond(20)}, {1, hybrid.PerSecond(20)}} {
			at(c.version).Allow("k")
			if got, err := l.LimitsOf(t.Context(), "k"); err != nil || got[0] != c.want {
				t.Errorf("after a process of version %d: %v, want %v; %v", c.version, got, c.want, err)
			}
		}
	})
}

func TestControlErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		every := func(ctx context.Context, key string) []error {
			_, peek := l.Peek(ctx, key)
			_, of := l.LimitsOf(ctx, key)
			_, try := l.TrySetLimits(ctx, key, hybrid.PerSecond(1))
			return []error{peek, of, try, l.SetLimits(ctx, key, hybrid.PerSecond(1)), l.Reset(ctx, key)}
		}
		check := func(errs []error, want error) {
			t.Helper()
			for i, err := range errs {
				if !errors.Is(err, want) {
					t.Errorf("%d: %v, want %v", i, err, want)
				}
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		check(every(ended, "k"), context.Canceled)
		check(every(t.Context(), ""), hybrid.ErrInvalidKey)
		check([]error{
			l.SetLimits(t.Context(), "k"),
			l.SetLimits(t.Context(), "k", hybrid.Limit{Tokens: -1, Per: time.Second}),
			l.SetLimits(t.Context(), "k", hybrid.Limit{Tokens: 1}),
			l.SetLimits(t.Context(), "k", make([]hybrid.Limit, 5)...),
		}, hybrid.ErrInvalidConfig)
		if s.state(t, "k").Exists {
			t.Error("what is invalid was written")
		}
		s.setControl(lease.ErrUnavailable)
		check(every(t.Context(), "k"), hybrid.ErrUnavailable)
		// A store that hangs is given up after ten CallTimeouts.
		s.setControl(errHangs)
		if d := took(func() { check(every(t.Context(), "k"), hybrid.ErrUnavailable) }); d != 5*time.Second {
			t.Errorf("five calls took %v", d)
		}
		time.AfterFunc(100*time.Millisecond, func() { l.Close() })
		if d := took(func() { check(every(t.Context(), "k"), hybrid.ErrClosed) }); d != 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

// What this process sets it follows at once, with a burst that is larger than any before.
func TestThisProcessFollowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		l.Allow("k")
		if err := l.SetLimits(t.Context(), "k", hybrid.PerHour(1).WithBurst(20)); err != nil {
			t.Fatal(err)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := l.WaitN(t.Context(), "k", 20); err != nil {
			t.Errorf("%v; bucket %+v", err, s.state(t, "k").Levels[0])
		}
	})
}

// A reply to a call that was under way does not bring the old burst back.
func TestALateReplyDoesNotUndoAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		l.AllowN("k", 10)
		time.Sleep(2 * time.Second)
		s.every(verdict{delay: 50 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { l.Allow("k") })
		synctest.Wait()
		if err := l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(20)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := l.WaitN(t.Context(), "k", 20); err != nil {
				t.Errorf("after SetLimits(burst 20): %v", err)
			}
		})
		wg.Wait()
	})
}

// What LimitsOf returns may be written to.
func TestLimitsOfIsTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		l.Allow("k")
		got, _ := l.LimitsOf(t.Context(), "k")
		got[0] = hybrid.PerSecond(1_000_000)
		again, _ := l.LimitsOf(t.Context(), "k")
		if again[0] != hybrid.PerSecond(10) {
			t.Errorf("%v", again)
		}
	})
}
