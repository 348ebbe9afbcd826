package hybrid_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// waitFor waits for n tokens of "k", at most d, and says how long it took.
func waitFor(t *world, l *hybrid.Limiter, d time.Duration, n int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var err error
	spent := took(func() { err = l.WaitN(ctx, "k", n) })
	return spent, err
}

// tooLate checks that a wait for n tokens, at most d, is turned away at once.
func tooLate(t *world, l *hybrid.Limiter, d time.Duration, n int64) {
	t.Helper()
	spent, err := waitFor(t, l, d, n)
	isErr(t, err, hybrid.ErrWouldExceedDeadline, context.DeadlineExceeded)
	check(t, spent < d && (!t.virtual() || spent == 0), "%d tokens in %v: told after %v", n, d, spent)
}

// A wait whose tokens can be there in time is not turned away, whatever this process heard before.
func TestADeadlineThatCanBeMetIsMet(t *testing.T) {
	const soon = 10 * time.Second
	reset := func(l *hybrid.Limiter) error { return l.Reset(context.Background(), "k") }
	raise := func(l *hybrid.Limiter) error {
		return l.SetLimits(context.Background(), "k", hybrid.PerSecond(1000))
	}
	refund := func(l *hybrid.Limiter) error { l.Refund("k", 5); return nil }
	// own is a process that found the bucket empty and did something about it, and others one that
	// has not heard of what another one did since.
	own := func(change func(*hybrid.Limiter) error) func(t *world) *hybrid.Limiter {
		return func(t *world) *hybrid.Limiter {
			l := t.drained(of(hourly))
			noErr(t, change(l))
			return l
		}
	}
	others := func(change func(*hybrid.Limiter) error) func(t *world) *hybrid.Limiter {
		return func(t *world) *hybrid.Limiter {
			other := t.process(hourly)
			other.AllowN("k", 9)
			l := t.drained(of(hourly))
			time.Sleep(time.Minute)
			noErr(t, change(other))
			time.Sleep(10 * time.Minute)
			return l
		}
	}
	for name, c := range map[string]struct {
		deadline time.Duration
		given    func(t *world) *hybrid.Limiter
	}{
		"this process has reset the bucket":    {soon, own(reset)},
		"a refund of its own is on its way":    {soon, own(refund)},
		"another process has reset it":         {soon, others(reset)},
		"another process has raised the limit": {soon, others(raise)},
		"another process has refunded":         {soon, others(refund)},
		"a cold key, whose token is there in a second": {30 * time.Second, func(t *world) *hybrid.Limiter {
			t.drained(of(hybrid.PerMinute(1)))
			time.Sleep(59 * time.Second)
			return t.process(hybrid.PerMinute(1))
		}},
		"one that was just drawn from, in 10 ms": {70 * time.Millisecond, func(t *world) *hybrid.Limiter {
			l := t.drained(of(hybrid.PerSecond(10)))
			time.Sleep(190 * time.Millisecond)
			l.Allow("k")
			return l
		}},
		"beyond what a clock can count": {math.MaxInt64, func(t *world) *hybrid.Limiter {
			l := t.drained(of(hybrid.PerSecond(10)))
			ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
			defer cancel()
			noErr(t, l.Wait(ctx, "k"))
			return l
		}},
	} {
		bubbleOf(t, name, func(t *world) {
			d, err := waitFor(t, c.given(t), c.deadline, 1)
			check(t, err == nil, "%v after %v; the bucket has %d", err, d, t.state("k").Levels[0])
		})
	}
}

// The deadline is judged at once, by what the bucket said.
func TestAWaitThatCannotBeInTimeFailsAtOnce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.drained(of(hybrid.PerSecond(10)))
		// 5 tokens take half a second.
		tooLate(t, l, 499*time.Millisecond, 5)
		d, err := waitFor(t, l, 501*time.Millisecond, 5)
		check(t, err == nil && d == 500*time.Millisecond, "%v after %v", err, d)
		// Behind a wait for 5, one token comes after 6.
		wait := background(func() { waitFor(t, l, time.Second, 5) })
		synctest.Wait()
		tooLate(t, l, 550*time.Millisecond, 1)
		wait()
		// A process that the store has only just told judges likewise.
		tooLate(t, t.process(hybrid.PerSecond(10)), 550*time.Millisecond, 10)
		// Failed waits have cost nothing.
		equal(t, l.Stats().Admitted, 20, "admitted, want the burst and two waits of 5")
	})
	// Four waiters of 85 years each are in front: the sum is more than a time.Duration holds.
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerHour(1).WithBurst(750_000))
		must(t, l.AllowN("k", 750_000), "denied")
		ctx, cancel := context.WithCancel(t.Context())
		wait := inTurn(4, func(int) { l.WaitN(ctx, "k", 750_000) })
		tooLate(t, l, time.Hour, 1)
		cancel()
		wait()
	})
}

func TestADeadlineIsJudgedByWhatIsThere(t *testing.T) {
	bubbleOf(t, "a refused wait leaves its tokens to the next", func(t *world) {
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		first := t.start(cfg)
		first.AllowN("k", 5)
		first.Shutdown(context.Background())
		time.Sleep(time.Second)
		t.every(verdict{delay: 20 * time.Millisecond})
		l := t.start(cfg)
		wait := inTurn(2, func(i int) {
			if i == 0 {
				l.Allow("k")
			} else {
				_, _ = waitFor(t, l, 10*time.Second, 10)
			}
		})
		d, err := waitFor(t, l, 10*time.Second, 1)
		check(t, err == nil, "Wait(1) with tokens in the pool: %v after %v; %+v", err, d, l.Stats())
		wait()
	})
	bubbleOf(t, "a reply that was made before a reset, and comes after it, is no judgement", func(t *world) {
		t.drained(of(hourly))
		l := t.process(hourly)
		t.every(verdict{delay: 20 * time.Millisecond})
		wait := background(func() {
			d, err := waitFor(t, l, 10*time.Second, 1)
			check(t, err == nil, "Reset before the reply: %v after %v", err, d)
		})
		synctest.Wait()
		noErr(t, l.Reset(t.Context(), "k"))
		wait()
	})
}

// Redisson: tryAcquire(1, 1, SECONDS) is false after a second at most. Here the wait cannot be refused
// in advance, because the store does not answer.
func TestPeerABoundedWaitEndsFalseAndOnTime(t *testing.T) {
	everywhere(t, func(t *world) {
		const patience = 100 * time.Millisecond
		release := make(chan struct{})
		t.every(verdict{until: release})
		l := t.start(hybrid.Config{Limits: limits(hourly), CallTimeout: 30 * time.Second})
		for _, ask := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return l.WaitN(ctx, "k", 3) },
			func(ctx context.Context) error {
				r, err := l.Take(ctx, "k", 2)
				check(t, !r.OK, "Take: admitted")
				return err
			},
		} {
			t.lasts(patience, patience, func() { isErr(t, ask(within(t, patience)), context.DeadlineExceeded) })
		}
		// Allow ends with CallTimeout. (The call is given up a little before, for Policy.Fallback.)
		impatient := t.start(hybrid.Config{Limits: limits(hourly), CallTimeout: patience, Policy: denying})
		t.lasts(patience*15/16, patience, func() { check(t, !impatient.Allow("other"), "Allow: admitted") })
		// Tokens in replies to ended waits go back.
		t.setJudge(nil)
		close(release)
		t.eventually("all 10 in the bucket", "k", func(level int64) bool { return level == 10 })
		check(t, l.Stats().Admitted == 0, "%+v", l.Stats())
		// An ended context never takes anything, and the error wraps its cause.
		caused, cancel := context.WithCancelCause(t.Context())
		cancel(hybrid.ErrInvalidN)
		_, err := l.Take(caused, "k", 1)
		isErr(t, err, context.Canceled, hybrid.ErrInvalidN)
		isErr(t, l.Wait(caused, "k"), context.Canceled, hybrid.ErrInvalidN)
	})
}
