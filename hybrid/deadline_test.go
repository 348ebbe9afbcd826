package hybrid_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// waitFor waits for n tokens of "k", at most d, and says how long it took.
func waitFor(t *testing.T, l *hybrid.Limiter, d time.Duration, n int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var err error
	spent := took(func() { err = l.WaitN(ctx, "k", n) })
	return spent, err
}

// A wait whose tokens can be there in time is not turned away, whatever this process heard before.
func TestADeadlineThatCanBeMetIsMet(t *testing.T) {
	perHour := of(hourly)
	// changed is a process that found the bucket empty, and that has not heard of what another one
	// did since.
	changed := func(t *testing.T, s *faultyStore, change func(*hybrid.Limiter)) *hybrid.Limiter {
		other := start(t, s, perHour)
		other.AllowN("k", 9)
		l := drained(t, s, perHour)
		time.Sleep(time.Minute)
		change(other)
		time.Sleep(10 * time.Minute)
		return l
	}
	type given = func(t *testing.T, s *faultyStore) *hybrid.Limiter
	for name, c := range map[string]struct {
		given    given
		deadline time.Duration
		then     func(t *testing.T, l *hybrid.Limiter)
	}{
		"a cold key, whose token is there in a second": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			drained(t, s, of(hybrid.PerMinute(1)))
			time.Sleep(59 * time.Second)
			return start(t, s, of(hybrid.PerMinute(1)))
		}, 30 * time.Second, nil},
		"a key that was just drawn from, whose token is there in 10 ms": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			l := drained(t, s, of(hybrid.PerSecond(10)))
			time.Sleep(190 * time.Millisecond)
			l.Allow("k")
			return l
		}, 70 * time.Millisecond, nil},
		"this process has reset the bucket": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			l := drained(t, s, perHour)
			noErr(t, l.Reset(t.Context(), "k"))
			return l
		}, 10 * time.Second, nil},
		"another process has reset it": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			return changed(t, s, func(l *hybrid.Limiter) { noErr(t, l.Reset(t.Context(), "k")) })
		}, 10 * time.Second, nil},
		"another process has raised the limit": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			return changed(t, s, func(l *hybrid.Limiter) {
				noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000)))
			})
		}, 10 * time.Second, nil},
		"another process has refunded": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			return changed(t, s, func(l *hybrid.Limiter) { l.Refund("k", 5) })
		}, 10 * time.Second, nil},
		"a refund of its own is on its way": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			l := drained(t, s, perHour)
			l.Refund("k", 5)
			return l
		}, 10 * time.Second, nil},
		"a large request was refused, 5 are there": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			l := start(t, s, perHour)
			l.AllowN("k", 5)
			time.Sleep(time.Second)
			must(t, !l.AllowN("k", 10), "10 of 5")
			return l
		}, 300 * time.Millisecond, func(t *testing.T, l *hybrid.Limiter) {
			check(t, l.Allow("k"), "Allow was denied: %+v", l.Stats())
		}},
		"the deadline is beyond what a clock can count": {func(t *testing.T, s *faultyStore) *hybrid.Limiter {
			l := drained(t, s, of(hybrid.PerSecond(10)))
			time.Sleep(time.Second)
			drain(l, "k")
			return l
		}, math.MaxInt64, func(t *testing.T, l *hybrid.Limiter) {
			ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			defer cancel()
			noErr(t, l.Wait(ctx, "k"))
		}},
	} {
		bubbleOf(t, name, func(t *testing.T, s *faultyStore) {
			l := c.given(t, s)
			d, err := waitFor(t, l, c.deadline, 1)
			check(t, err == nil, "%v after %v; the bucket has %d", err, d, s.state(t, "k").Levels[0])
			if c.then != nil {
				c.then(t, l)
			}
		})
	}
}

// Who is turned away leaves what it had gathered to the next, who is judged by it.
func TestWhoIsTurnedAwayLeavesItsTokensToTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		first := start(t, s, cfg)
		first.AllowN("k", 5)
		first.Shutdown(context.Background())
		time.Sleep(time.Second)
		s.every(verdict{delay: 20 * time.Millisecond})
		l := start(t, s, cfg)
		var wg sync.WaitGroup
		wg.Go(func() { l.Allow("k") })
		synctest.Wait()
		wg.Go(func() { _, _ = waitFor(t, l, 10*time.Second, 10) })
		synctest.Wait()
		d, err := waitFor(t, l, 10*time.Second, 1)
		check(t, err == nil, "Wait(1) with tokens in the pool: %v after %v; %+v", err, d, l.Stats())
		wg.Wait()
	})
}

// A reply that was made before a reset, and comes after it, is no judgement.
func TestAReplyThatWasOvertakenTurnsNobodyAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		drained(t, s, of(hourly))
		l := start(t, s, of(hourly))
		s.every(verdict{delay: 20 * time.Millisecond})
		wait := background(func() {
			d, err := waitFor(t, l, 10*time.Second, 1)
			check(t, err == nil, "Reset before the reply: %v after %v", err, d)
		})
		synctest.Wait()
		noErr(t, l.Reset(t.Context(), "k"))
		wait()
	})
}

// Four waiters of 85 years each are in front: the sum is more than a time.Duration holds.
func TestAWaitBehindCenturiesFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerHour(1).WithBurst(750_000)))
		must(t, l.AllowN("k", 750_000), "denied")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { l.WaitN(ctx, "k", 750_000) })
		}
		synctest.Wait()
		d, err := waitFor(t, l, time.Hour, 1)
		check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) &&
			errors.Is(err, context.DeadlineExceeded) && d == 0,
			"%v after %v", err, d)
		cancel()
		wg.Wait()
	})
}
