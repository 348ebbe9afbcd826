package hybrid_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settersOf are the methods that set limits, of the key "k".
var settersOf = map[string]func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error{
	"SetLimits": func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error {
		return l.SetLimits(t.Context(), "k", limits...)
	},
	"ReplaceLimits": func(t *world, l *hybrid.Limiter, limits ...hybrid.Limit) error {
		return l.ReplaceLimits(t.Context(), "k", limits...)
	},
}

// After SetLimits has returned, this process spends nothing that it held before.
func TestSetLimitsIsInForceWhenItReturns(t *testing.T) {
	for verb, set := range settersOf {
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
						l.Key("k").TryAllow()
						low.TryAllow()
						time.Sleep(time.Millisecond)
					}
					// when the key is blocked, then nothing more is admitted, by no process,
					noErr(t, set(t, l, hybrid.Blocked))
					check(t, l.Stats().Held == 0, "%d tokens are held", l.Stats().Held)
					equal(t, use(), 0, "admitted of a blocked key")
					check(t, !t.start(cfg).Allow("k"), "admitted of what was given back")
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
		clock := &watchedClock{}
		cfg := by(hybrid.Policy{CallsPerSecond: 100}, hybrid.PerSecond(10_000).WithBurst(20_000))
		cfg.CallTimeout = time.Second
		fleet := t.fleet(60, cfg)
		cfg.Clock = clock
		l := t.start(cfg)
		ask := func(times int) {
			for range times {
				for _, one := range append(fleet, l) {
					one.Key("k").TryAllow()
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
			l.Key("k").TryAllow()
			time.Sleep(7 * time.Millisecond)
		}
	})
}

// slowToSet is a store that takes a while to begin an operation.
type slowToSet struct {
	lease.Store
	pause time.Duration
}

func (s slowToSet) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	if op != lease.OpInspect {
		time.Sleep(s.pause)
	}
	return s.Store.Configure(ctx, key, op, c)
}

// What this process holds goes back by a report that the bucket knows. After a limit was lowered the bucket
// would not, and a window would count the tokens as spent.
func TestSetLimitsLosesNothingThatIsHeld(t *testing.T) {
	for _, scope := range []hybrid.Scope{hybrid.ScopeFleet, hybrid.ScopeProcess} {
		for _, of := range []func(n int64) hybrid.Limit{
			hybrid.PerHour,
			func(n int64) hybrid.Limit { return hybrid.Sliding(n, time.Hour) },
			func(n int64) hybrid.Limit { return hybrid.Calendar(n, 24*time.Hour, 0) },
		} {
			bubbleOf(t, fmt.Sprint(of(10_000), ", scope ", scope), func(t *world) {
				// Given a process that is asked all the time in two classes, and holds tokens of each,
				t.replace(slowToSet{t.store(), 20 * time.Millisecond})
				cfg := hybrid.Config{Limits: limits(of(10_000)), Scope: scope, Priorities: []float64{0.1}}
				cfg.Policy.MinBatch = 40
				l := t.start(cfg)
				high, low := l.Key("k"), l.Key("k").Class(1)
				uses := together(2, func(i int) {
					admits(500, time.Millisecond, []*hybrid.Key{high, low}[i].Allow)
				})
				time.Sleep(210 * time.Millisecond)
				held := l.Stats().Held
				// when the limit is lowered to less than one class holds, and raised again,
				noErr(t, l.SetLimits(t.Context(), "k", of(10)))
				lowered := l.Stats()
				noErr(t, l.SetLimits(t.Context(), "k", of(20_000)))
				uses()
				time.Sleep(time.Second)
				// then every token that was held has gone back,
				st := l.Stats()
				check(t, held > 20 && lowered.Returned >= held-4, "%d were held: %+v", held, lowered)
				check(t, st.Burnt == 0, "%+v", st)
				// and a window lacks what was admitted, and nothing else.
				noErr(t, l.SetLimits(t.Context(), "k", of(20_000)))
				r, err := l.Peek(t.Context(), "k")
				left := 20_000 - st.Admitted
				check(t, err == nil && (!r.Limit.Windowed() || r.Remaining == left), "%d left: %+v", left, r)
			})
		}
	}
}

// A call that was under way when limits are set, and whose reply is late or lost, brings nothing of the lease
// that it was granted before.
func TestNoLateReplyBringsBackALeaseOfBefore(t *testing.T) {
	for name, set := range settersOf {
		for fault, fate := range map[string]verdict{
			"late": {until: make(chan struct{})}, "lost": {lost: true},
		} {
			bubbleOf(t, fmt.Sprint(name, ", the reply is ", fault), func(t *world) {
				// Given a key in use whose call is executed and gets no reply in time,
				l := t.warm(of(hybrid.PerSecond(1000)))
				if fate.until != nil {
					fate.until = make(chan struct{})
				}
				t.every(fate)
				for l.Stats().Nodes[0].Away == 0 {
					l.Key("k").TryAllow()
					time.Sleep(time.Millisecond)
				}
				// when it is blocked and then the reply, or that of a retry, comes,
				noErr(t, set(t, l, hybrid.Blocked))
				t.every(verdict{delay: 20 * time.Millisecond})
				if fate.until != nil {
					close(fate.until)
				}
				returned := l.Stats().Returned
				// then nothing is admitted, what the reply brings is burnt, and the calls succeed again.
				equal(t, admits(1000, time.Millisecond, func() bool { return l.Allow("k") }), 0, "admitted")
				st := l.Stats()
				check(t, st.Nodes[0].Away == 0 && st.Returned == returned, "%+v", st)
			})
		}
	}
}

// Where the store does not take the limits, the key goes on as before, and nothing is lost. Where it does not
// answer, requests wait no longer than CallTimeout.
func TestAFailedSetLimitsChangesNothing(t *testing.T) {
	for _, err := range []error{lease.ErrUnavailable, errHangs} {
		bubbleOf(t, err, func(t *world) {
			l := t.warm(of(hybrid.PerSecond(1000)))
			t.setControl(err)
			set := background(func() {
				isErr(t, l.SetLimits(t.Context(), "k", hybrid.Blocked), hybrid.ErrUnavailable)
				isErr(t, l.Reset(t.Context(), "k"), hybrid.ErrUnavailable)
			})
			t.lasts(0, lease.DefaultCallTimeout, func() { l.Allow("k") })
			set()
			equal(t, admits(200, time.Millisecond, func() bool { return l.Allow("k") }), 200, "admitted")
			t.setControl(nil)
			limitsAre(t, l, "k", hybrid.PerSecond(1000))
			check(t, l.Stats().Burnt == 0, "%+v", l.Stats())
		})
	}
}

// A key at rest has nothing to give back, hears the new limits by one call, and rests again.
func TestAKeyAtRestRestsAgainAfterSetLimits(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.rested(of(hourly))
		_, calls := t.during(func() {
			noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerHour(7)))
			time.Sleep(2 * time.Second)
		})
		st := l.Stats()
		check(t, calls == 1 && st.Keys == 1 && st.InUse == 0, "%d calls, %+v", calls, st)
	})
}
