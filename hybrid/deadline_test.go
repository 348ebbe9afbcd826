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

// The bucket counts fractions of a token: one that is there in a second is not a minute away.
func TestADeadlineIsJudgedByFractionsOfATokenToo(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		drained(t, s, of(hybrid.PerMinute(1)))
		time.Sleep(59 * time.Second)
		cold := start(t, s, of(hybrid.PerMinute(1)))
		d, err := waitFor(t, cold, 30*time.Second, 1)
		check(t, err == nil, "the token is there in 1 s, the deadline in 30 s: %v after %v", err, d)
	})
}

// So on a key that this process has just drawn from.
func TestADeadlineOfAWarmKeyIsJudgedByFractionsToo(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hybrid.PerSecond(10)))
		time.Sleep(190 * time.Millisecond)
		l.Allow("k")
		d, err := waitFor(t, l, 70*time.Millisecond, 1)
		check(t, err == nil, "the token is there in 10 ms: %v after %v", err, d)
	})
}

// What this process has changed makes what it heard before worthless.
func TestADeadlineIsNotJudgedByWhatAResetHasChanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hourly))
		noErr(t, l.Reset(t.Context(), "k"))
		d, err := waitFor(t, l, 10*time.Second, 1)
		check(t, err == nil, "bucket full: %v after %v", err, d)
	})
}

// What another process has changed is known after a T, also to one that only waits, and never long enough for a call.
func TestADeadlineIsNotJudgedByOldNews(t *testing.T) {
	for name, change := range map[string]func(l *hybrid.Limiter) error{
		"reset": func(l *hybrid.Limiter) error { return l.Reset(context.Background(), "k") },
		"set": func(l *hybrid.Limiter) error {
			return l.SetLimits(context.Background(), "k", hybrid.PerSecond(1000))
		},
		"refund": func(l *hybrid.Limiter) error { l.Refund("k", 5); return nil },
	} {
		bubbleOf(t, name, func(t *testing.T, s *faultyStore) {
			cfg := of(hourly)
			other := start(t, s, cfg)
			other.AllowN("k", 9)
			l := drained(t, s, cfg)
			time.Sleep(time.Minute)
			noErr(t, change(other))
			time.Sleep(10 * time.Minute)
			if _, err := waitFor(t, l, 10*time.Second, 1); err != nil {
				t.Errorf("bucket level %d: %v", s.state(t, "k").Levels[0], err)
			}
		})
	}
}

// What is on its way back to the bucket may be there in time.
func TestADeadlineCountsARefundOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hourly))
		l.Refund("k", 5)
		d, err := waitFor(t, l, 10*time.Second, 1)
		check(t, err == nil, "5 refunded: %v after %v", err, d)
	})
}

// The delay after a large request was refused is not that of a small one.
func TestALargeRequestThatWasRefusedDoesNotTurnAwayASmallWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.AllowN("k", 5)
		time.Sleep(time.Second)
		must(t, !l.AllowN("k", 10), "not so")
		d, err := waitFor(t, l, 300*time.Millisecond, 1)
		check(t, err == nil, "5 in the bucket: %v after %v", err, d)
		if !l.Allow("k") {
			t.Errorf("Allow denied, bucket: %+v", s.state(t, "k"))
		}
	})
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
		wg.Go(func() {
			d, err := waitFor(t, l, 10*time.Second, 1)
			check(t, err == nil, "Wait(1) with tokens in the pool: %v after %v; %+v", err, d, l.Stats())
		})
		wg.Wait()
	})
}

// A reply that was made before a reset, and comes after it, is no judgement.
func TestAReplyThatWasOvertakenTurnsNobodyAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		cfg := of(hourly)
		drained(t, s, cfg)
		l := start(t, s, cfg)
		s.every(verdict{delay: 20 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() {
			d, err := waitFor(t, l, 10*time.Second, 1)
			check(t, err == nil, "Reset before the reply: %v after %v", err, d)
		})
		synctest.Wait()
		noErr(t, l.Reset(t.Context(), "k"))
		wg.Wait()
	})
}

// A deadline beyond what a clock can count is none.
func TestADeadlineMayBeFar(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hybrid.PerSecond(10)))
		time.Sleep(time.Second)
		drain(l, "k")
		d, err := waitFor(t, l, math.MaxInt64, 1)
		check(t, err == nil, "deadline in 292 years: %v after %v", err, d)
		ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		defer cancel()
		err = l.Wait(ctx, "k")
		check(t, err == nil, "deadline in 9999: %v", err)
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
		check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && errors.Is(err, context.DeadlineExceeded) && d == 0,
			"%v after %v", err, d)
		cancel()
		wg.Wait()
	})
}
