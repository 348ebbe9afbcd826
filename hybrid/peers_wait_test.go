package hybrid_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Redisson: tryAcquire(1, 1, SECONDS) is false after a second at most. Here nobody can tell in
// advance that the wait is in vain, because the store does not answer.
func TestPeerABoundedWaitEndsFalseAndOnTime(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		const patience = 100 * time.Millisecond
		onTime := func(verb string, took time.Duration) {
			t.Helper()
			check(t, took >= patience && (!p.virtual || took == patience),
				"%s ended after %v, want %v", verb, took, patience)
		}
		// Given a store whose replies are held back,
		release := make(chan struct{})
		p.every(verdict{until: release})
		// when WaitN and Take have 100 ms by their context,
		l := p.limiter(t, hybrid.Config{Limits: limits(hourly), CallTimeout: 30 * time.Second})
		bounded := func(verb string, ask func(ctx context.Context) error) {
			onTime(verb, took(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				// then they end with it, and have failed;
				err := ask(ctx)
				check(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", verb, err)
			}))
		}
		bounded("WaitN", func(ctx context.Context) error { return l.WaitN(ctx, "k", 3) })
		bounded("Take", func(ctx context.Context) error {
			r, err := l.Take(ctx, "k", 2)
			check(t, !r.OK, "Take: admitted")
			return err
		})
		// Allow, which has no context, ends with CallTimeout, and is false.
		impatient := p.limiter(t, hybrid.Config{Limits: limits(hourly), CallTimeout: patience, Policy: denying})
		d := took(func() {
			check(t, !impatient.Allow("other"), "Allow: admitted")
		})
		// (The call is given up a little before, so that Policy.Fallback can answer.)
		check(t, d >= patience*15/16 && (!p.virtual || d <= patience),
			"Allow ended after %v, want %v", d, patience)
		// And when the replies come after all, what they bring for those who have gone goes back.
		p.setJudge(nil)
		close(release)
		testkit.Eventually(t, "all 10 in the bucket", func() bool { return p.state(t, "k").Levels[0] == 10 })
		check(t, l.Stats().Admitted == 0, "%+v", l.Stats())
	})
}

// x/time/rate, TestWaitTimeout: who cannot be served by the deadline is told at once.
func TestPeerWaitingFailsEarly(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given an empty bucket that gets its next token in an hour,
		l := p.process(t, hourly)
		drain(l, "k")
		for name, waiter := range map[string]*hybrid.Limiter{"warm": l, "cold": p.process(t, hourly)} {
			for _, n := range []int64{1, 10} {
				// when somebody has 59 minutes,
				ctx, cancel := context.WithTimeout(t.Context(), 59*time.Minute)
				d := took(func() {
					// then that is known to be in vain,
					err := waiter.WaitN(ctx, "k", n)
					check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline), "%s, %d: %v", name, n, err)
				})
				// without waiting for any of it, be it because the store has just said so.
				check(t, ctx.Err() == nil && (!p.virtual || d == 0), "%s, %d: told after %v", name, n, d)
				cancel()
			}
		}
		check(t, l.Stats().Admitted == 10, "%+v", l.Stats())
	})
}

// x/time/rate, TestWaitCancel and TestCancelLast: a wait that is cancelled gives back what was
// reserved for it.
func TestPeerCancellingReturnsWhatWasReserved(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given 6 tokens of 10 and another process, beside which a large wait gathers what there is
		// bit by bit,
		other, l := p.process(t, hourly), p.process(t, hourly)
		must(t, other.AllowN("k", 4) && p.settled(t, "k") == 6, "not 6 of 10 left")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, n := range []int64{10, 1} {
			wg.Go(func() {
				err := l.WaitN(ctx, "k", n)
				check(t, errors.Is(err, context.Canceled), "%d: %v", n, err)
			})
			testkit.Eventually(t, "the large wait first", func() bool { return n == 1 || p.state(t, "k").Levels[0] < 6 })
		}
		// when it is cancelled, half gathered, and a small one behind it too,
		cancel()
		wg.Wait()
		// then everything is back, and nothing was admitted.
		testkit.Eventually(t, "6 in the bucket", func() bool { return p.state(t, "k").Levels[0] == 6 })
		equal(t, p.left(t, "k", hourly), 6, "left")
		check(t, l.Stats().Admitted == 0, "%+v", l.Stats())
	})
}

// CockroachDB's quotapool: UpdateLimit wakes those who wait. (Guava's setRate does not, and says
// so.)
func TestPeerARateChangeWakesEveryWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		wake(t, p, "own", 1, 10)
		wake(t, p, "others' too", 2, 1)
		wake(t, p, "many", 2, 10)
	})
}

// wake has many wait in some processes, for one token and for the whole burst, while one of them
// changes the limit.
func wake(t *testing.T, p *place, key string, processes, waits int) {
	const ttl = 200 * time.Millisecond
	// Given waits of an hour,
	var wg sync.WaitGroup
	var setter *hybrid.Limiter
	for range processes {
		l := p.limiter(t, by(hybrid.Policy{TTL: ttl}, hourly))
		setter = l
		drain(l, key)
		calls := l.Stats().Calls
		for range waits {
			wg.Go(func() {
				err := l.Wait(t.Context(), key)
				check(t, err == nil, "1: %v", err)
			})
			wg.Go(func() {
				err := l.WaitN(t.Context(), key, 10)
				check(t, errors.Is(err, hybrid.ErrExceedsBurst), "10: %v", err)
			})
		}
		testkit.Eventually(t, "a call for those who wait", func() bool { return l.Stats().Calls > calls })
	}
	if p.virtual {
		time.Sleep(10 * time.Second) // all wait, for long
	}
	within := 30 * time.Millisecond
	if processes > 1 {
		within += ttl
	}
	// when the limit becomes a fast one, with a burst that is too small for the large ones,
	d := took(func() {
		noErr(t, setter.SetLimits(t.Context(), key, hybrid.PerSecond(1000).WithBurst(9)))
		// then everybody is served or told: here at once, elsewhere within a T.
		wg.Wait()
	})
	check(t, !p.virtual || d <= within,
		"%d processes, %d waits each: the last was woken after %v", processes, waits, d)
}
