package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
)

// After SetLimits has returned, this process spends nothing that it held before.
func TestSetLimitsIsInForceWhenItReturns(t *testing.T) {
	sets := map[string]func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error{
		"SetLimits": func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error {
			return l.SetLimits(t.Context(), "k", limits...)
		},
		"TrySetLimits": func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error {
			set, err := l.TrySetLimits(t.Context(), "k", limits...)
			check(t, set, "TrySetLimits has changed nothing")
			return err
		},
	}
	for verb, set := range sets {
		for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
			for _, limit := range []hybrid.Limit{hybrid.PerSecond(1000), hybrid.Sliding(1000, time.Second)} {
				bubbleOf(t, fmt.Sprint(verb, " of ", limit, ", calls take ", delay), func(t *world) {
					// Given a process that holds tokens in two classes, with calls under way,
					cfg := of(limit)
					cfg.Priorities = []float64{0.1}
					l := t.start(cfg)
					t.every(verdict{delay: delay})
					low := l.Key("k").Class(1)
					use := func() (n int) {
						for range 300 {
							if l.Allow("k") {
								n++
							}
							if low.Allow() {
								n++
							}
						}
						return n
					}
					for i := 0; i < 200 || l.Stats().Held < 10; i++ {
						must(t, i < 1000, "nothing is held: %+v", l.Stats())
						l.TryAllow("k")
						low.TryAllow()
						time.Sleep(time.Millisecond)
					}
					// when the key is blocked, then nothing more is admitted,
					noErr(t, set(t, l, hybrid.Blocked))
					check(t, l.Stats().Held == 0, "%d tokens are held", l.Stats().Held)
					equal(t, use(), 0, "admitted of a blocked key")
					time.Sleep(time.Second)
					equal(t, use(), 0, "admitted of a blocked key")
					// and what was given back is in no ledger.
					time.Sleep(time.Second)
					equal(t, t.state("k").Ledger, 0, "tokens leased")
				})
			}
		}
	}
}

// What is given back to a key that was blocked is admitted to no process.
func TestABlockedKeyAdmitsNothingThatComesBack(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a process that holds tokens of a key whose bucket has more,
		l, other := t.process(hybrid.PerSecond(1000)), t.process(hybrid.PerSecond(1000))
		for range 200 {
			l.Allow("k")
			time.Sleep(time.Millisecond)
		}
		must(t, l.Stats().Held > 1, "%+v", l.Stats())
		// when it blocks the key, which gives them back,
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.Blocked))
		// then no process is admitted.
		equal(t, admits(100, time.Millisecond, func() bool { return l.Allow("k") || other.Allow("k") }), 0, "admitted")
	})
}

// Where the store goes away after it has taken the limits, what this process holds is burnt.
func TestSetLimitsSpendsNothingOldInAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := of(hybrid.PerSecond(1000))
		cfg.CallTimeout = 100 * time.Millisecond
		l := t.startOn(t.cluster(), cfg)
		for i := 0; i < 200 || l.Stats().Held < 10; i++ {
			must(t, i < 1000, "nothing is held: %+v", l.Stats())
			l.Allow("1")
			time.Sleep(time.Millisecond)
		}
		t.every(away)
		t.lasts(0, 200*time.Millisecond, func() { noErr(t, l.SetLimits(t.Context(), "1", hybrid.Blocked)) })
		n := 0
		for range 300 {
			if l.Allow("1") {
				n++
			}
		}
		equal(t, n, 0, "admitted of a blocked key")
		time.Sleep(time.Second)
		check(t, l.Stats().Burnt > 0 && l.Stats().Conserved(), "%+v", l.Stats())
	})
}

// A node that is left alone for a while, as its answers were slow, is no outage: a call that gives back waits, and
// does not spin.
func TestAResetWaitsForANodeThatIsLeftAlone(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a large fleet whose node gets slow, so that the processes leave it alone for a while,
		clock := &jumpingClock{Clock: clock.System()}
		cfg := by(hybrid.Policy{CallsPerSecond: 100}, hybrid.PerSecond(10_000).WithBurst(20_000))
		cfg.CallTimeout = time.Second
		fleet := t.fleet(60, cfg)
		cfg.Clock = clock
		l := t.start(cfg)
		ask := func(times int) {
			for range times {
				for _, one := range append(fleet, l) {
					one.TryAllow("k")
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		ask(200)
		t.every(verdict{delay: 100 * time.Millisecond})
		ask(100)
		// when one of them resets the bucket again and again,
		for range 20 {
			before := clock.reads.Load()
			t.lasts(0, 2*time.Second, func() { noErr(t, l.Reset(t.Context(), "k")) })
			// then each waits for its calls, and does little else.
			n := clock.reads.Load() - before
			check(t, n < 1000, "the clock was read %d times", n)
			l.TryAllow("k")
			time.Sleep(7 * time.Millisecond)
		}
	})
}
