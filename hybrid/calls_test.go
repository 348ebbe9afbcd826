package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Calls that are due together travel in one Exchange. A crowd of keys is split, so that no call waits
// for the last of a hundred thousand.
func TestCallsDueTogetherTravelTogether(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(1000))
		const keys = 2500
		travel := func(what string, most int, do func()) {
			batches, calls := t.during(do)
			check(t, calls >= keys && batches <= most, "%s: %d calls in %d batches", what, calls, batches)
		}
		travel("begin", 5, func() {
			for i := range keys {
				l.Key(fmt.Sprint(i)).TryAllow()
			}
			time.Sleep(10 * time.Millisecond)
		})
		travel("give back", 16, func() { time.Sleep(time.Second) })
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, n := range t.sizes {
			check(t, n <= 1000, "a batch of %d calls", n)
		}
	})
}

// A waiting request is sent at once, and takes along the calls that were held back.
func TestAWaitingRequestSendsAtOnce(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(1000))
		l.Key("a").TryAllow()
		synctest.Wait()
		// A batch has just gone, so that b's call is held back until a request waits for c's.
		l.Key("b").TryAllow()
		synctest.Wait()
		equal(t, t.callsFor("b"), 0, "calls for b")
		t.lasts(0, 0, func() { noErr(t, l.Wait(t.Context(), "c")) }) // from a store that answers at once
		batches, calls := t.counts()
		check(t, batches == 2 && calls == 3, "%d calls in %d batches", calls, batches)
	})
}

// A key with a steady demand below its limit is renewed before it runs dry: no request waits or is
// denied, at about one call per Target. A key without demand gives everything back and makes no calls.
func TestAWarmKeyIsRenewedInTheBackground(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		gap   time.Duration
	}{
		{hybrid.PerSecond(1000), 1250 * time.Microsecond},
		{hybrid.PerSecond(100_000).WithBurst(40_000), 20 * time.Microsecond},
		{hybrid.PerMinute(60000).WithBurst(2000), 5 * time.Millisecond},
	} {
		bubbleOf(t, c.limit.String()+" every "+c.gap.String(), func(t *world) {
			t.every(verdict{delay: time.Millisecond})
			l := t.process(c.limit)
			k := l.Key("k")
			ask := func(d time.Duration, one func()) {
				next := time.Now() // requests come when they come, however long the last one took
				for end := next.Add(d); next.Before(end); next = next.Add(c.gap) {
					time.Sleep(time.Until(next))
					one()
				}
			}
			ask(time.Second, func() { k.Allow() })
			atOnce := func() { t.lasts(0, 0, func() { check(t, k.Allow(), "denied") }) }
			seconds := testkit.ShortOrLong(t, 3, 10, "seconds")
			_, calls := t.during(func() { ask(time.Duration(seconds)*time.Second, atOnce) })
			check(t, calls <= 20*seconds && calls >= 2*seconds,
				"%d calls in %d seconds, want about 10 in each and at most 20", calls, seconds)
			must(t, l.Stats().Held != 0, "nothing is held")
			// The demand ends.
			time.Sleep(time.Second)
			check(t, l.Stats().Held == 0 && l.Stats().Returned != 0 && l.Stats().Burnt == 0, "%+v", l.Stats())
			t.has("k", c.limit.Capacity(), 0)
			t.silent(time.Hour)
		})
	}
}

// After a shortfall requests are denied locally until the bucket's delay is over. One call per T still
// looks for changed limits. The first request after the delay is admitted.
func TestTheDenialCacheEndsOnTime(t *testing.T) {
	slow := limits(hybrid.PerSecond(2), hybrid.PerMinute(6).WithBurst(3), hybrid.Every(10*time.Second))
	for _, limit := range slow {
		bubbleOf(t, limit, func(t *world) {
			l := t.drained(of(limit))
			period := limit.Per / time.Duration(limit.Tokens)
			const heartbeat = 300 * time.Millisecond // three quarters of a TTL
			_, before := t.counts()
			denied, from := int64(1), time.Now()
			// A single process has no jitter.
			t.lasts(period, period*101/100, func() {
				for ; !l.Allow("k"); time.Sleep(period / 100) {
					denied++
					_, calls := t.counts()
					must(t, calls-before <= int(time.Since(from)/heartbeat), "%d calls", calls-before)
				}
			})
			equal(t, l.Stats().Denied, denied, "denied")
		})
	}
}

// If a round trip is long for the burst, nothing is leased ahead. Requests that do not wait
// then get what the bucket has all the same: a call asks for as many as were refused, not for one.
func TestTryAllowIsServedThoughTheBurstIsSmallBesideTheRoundTrip(t *testing.T) {
	bubble(t, func(t *world) {
		// In 260 ms a limit of 1,000/s makes more than a quarter of its burst.
		t.every(verdict{delay: 260 * time.Millisecond})
		limit := hybrid.PerSecond(1000)
		l := t.start(hybrid.Config{Limits: limits(limit), CallTimeout: time.Second})
		bound := newMeter(limit)
		ask := func(seconds int) (admitted int) {
			return admits(2000*seconds, time.Second/2000, func() bool { return bound.admitIf(l.Key("k").TryAllow()) })
		}
		ask(3)
		got := ask(10)
		check(t, got >= 7500, "%d of 10,000 admitted; %+v", got, l.Stats())
		bound.check(t)
	})
}

// TestTheLogNamesTheBurstThatALargeFleetWants: where leases cannot last as long as the budget of
// calls wants them, the log says so when that begins, and which burst would do.
func TestTheLogNamesTheBurstThatALargeFleetWants(t *testing.T) {
	const text = "burst too small to keep within CallsPerSecond"
	policy := denying
	policy.CallsPerSecond = 20
	for name, x := range map[string]struct {
		burst int64
		times int
	}{
		// 40 processes may call every 2 s, in which 2,000 tokens refill: three times as many are wanted.
		"too small": {1000, 1},
		"enough":    {6000, 0},
	} {
		bubbleOf(t, name, func(t *world) {
			// Given forty processes on one key, of which the last one's log is read,
			cfg := by(policy, hybrid.PerSecond(1000).WithBurst(x.burst))
			others := t.fleet(39, cfg)
			last, out := t.logging(t, cfg)
			ask := func(d time.Duration, ls ...*hybrid.Limiter) {
				used(d, func() {
					for _, l := range ls {
						l.Allow("k")
					}
				})
			}
			ask(time.Second, others...)
			logs(t, out, 0, text)
			// when it calls again and again, then there is one line, with all that cures it;
			ask(15*time.Second, append(others, last)...)
			logs(t, out, x.times, text, "key=k calls_per_second=20 processes=40 burst_needed=6000")
			// and when the fleet has become small and then large once more, there is another.
			ask(20*time.Second, last)
			logs(t, out, x.times, text)
			ask(5*time.Second, append(others, last)...)
			logs(t, out, 2*x.times, text)
		})
	}
}

// TestALargeFleetCallsAsOftenAsItsBudgetSays: two hundred processes that ask for twice the limit
// make as many calls as Policy.CallsPerSecond says and a fifth more, and ten times as many where it
// does not concern them; and one bucket's tokens are admitted either way.
func TestALargeFleetCallsAsOftenAsItsBudgetSays(t *testing.T) {
	const (
		processes, rate = 200, 1000
		burst           = 4.4 * rate // of what half can be leased for longer than the budget's 2 s
		warmup, run     = 25 * time.Second, 10 * time.Second
	)
	for name, x := range map[string]struct {
		budget      int64
		least, most float64 // calls a second
	}{
		"a budget of 100": {100, 60, 120},
		"the default":     {0, 200, 500},
	} {
		bubbleOf(t, name, func(t *world) {
			policy := denying
			policy.CallsPerSecond = x.budget
			ls := t.fleet(processes, by(policy, hybrid.PerSecond(rate).WithBurst(burst)))
			admitted := func() int64 { return admittedBy(t, ls) }
			wait := together(processes, func(i int) {
				r, key := rand.New(rand.NewPCG(18, uint64(i))), ls[i].Key("k")
				for end := time.Now().Add(warmup + run); time.Now().Before(end); {
					time.Sleep(time.Duration(r.ExpFloat64() * processes / (2 * rate) * float64(time.Second)))
					key.Allow()
				}
			})
			time.Sleep(warmup)
			before := admitted()
			check(t, before <= burst+rate*int64(warmup/time.Second), "%d admitted in %v", before, warmup)
			_, calls := t.during(func() { time.Sleep(run) })
			got, perSecond := float64(admitted()-before)/(rate*run.Seconds()), float64(calls)/run.Seconds()
			wait()
			t.Logf("%.0f calls/s, %.3f of one bucket", perSecond, got)
			check(t, perSecond >= x.least && perSecond <= x.most,
				"%.0f calls/s, want %v to %v", perSecond, x.least, x.most)
			check(t, got >= 0.97, "%.3f of one bucket", got)
		})
	}
}

// Each request of a key that is asked seldom is a draw: nothing is ever held or comes back, the key
// counts as in use all the same, and Take says what the bucket has.
func TestAKeyThatIsAskedSeldomDraws(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(of(hybrid.PerHour(1).WithBurst(20)))
		for i := range 10 {
			r, err := l.Take(t.Context(), "k", 2)
			left := int64(18 - 2*i)
			check(t, err == nil && r.OK && r.Remaining == left && r.Source == hybrid.SourceStore, "%+v, %v", r, err)
			t.has("k", left, 0)
			st := conserved(t, l)
			check(t, st.InUse == 1 && st.Held == 0 && st.Leased == st.Admitted && st.GrantedToWaiters == st.Admitted &&
				st.Limits[0].Keys == 1, "%+v", st)
			check(t, slices.Equal(l.CachedLimits("k"), limits(hybrid.PerHour(1).WithBurst(20))),
				"%v", l.CachedLimits("k"))
			time.Sleep(time.Second)
		}
		check(t, slices.Equal(t.draws("k"), slices.Repeat([]bool{true}, 10)), "draws: %v", t.draws("k"))
		// A request beyond the bucket is denied as ever, by an entry, which then denies without calls.
		for range 2 {
			check(t, !l.Allow("k"), "admitted beyond the burst")
		}
		st := l.Stats()
		check(t, st.Denied == 2 && st.Calls == 11 && st.InUse == 1, "%+v", st)
		time.Sleep(time.Minute)
		check(t, l.Stats().InUse == 0 && l.Stats().Returned+l.Stats().Burnt == 0, "%+v", l.Stats())
		must(t, l.Allow("other") && l.Stats().InUse == 1, "%+v", l.Stats())
		l.Close()
		equal(t, l.Stats().InUse, 0, "keys are in use after Close")
	})
}

// Whatever concerns a key while a draw of it is under way has an entry take that over: each request
// has its own answer, and no token is lost.
func TestADrawUnderWayIsTakenOver(t *testing.T) {
	slow := func(t *world) *hybrid.Limiter {
		t.every(verdict{delay: 20 * time.Millisecond})
		return t.start(of(hourly))
	}
	bubbleOf(t, "by other requests, which share the next call", func(t *world) {
		t.every(verdict{delay: 10 * time.Millisecond})
		l := t.process(hybrid.PerSecond(1000))
		t.lasts(0, 25*time.Millisecond, together(500, func(int) { check(t, l.Allow("k"), "denied") }))
		calls := t.draws("k")
		check(t, calls[0] && len(calls) == 2 && !calls[1], "draws: %v", calls)
		st := conserved(t, l)
		check(t, st.Admitted == 500 && st.GrantedToWaiters == 500, "%+v", st)
	})
	bubbleOf(t, "by another request with smaller limits", func(t *world) {
		l := slow(t)
		wait := background(func() {
			r, err := l.Take(t.Context(), "k", 8)
			check(t, err == nil && r.OK, "%+v, %v", r, err)
		})
		synctest.Wait()
		check(t, l.KeyWithLimits("k", hybrid.PerHour(1).WithBurst(5)).Allow(), "denied")
		wait()
		st := conserved(t, l)
		check(t, st.Admitted == 9 && st.Denied == 0, "%+v", st)
	})
	bubbleOf(t, "by a request that does not wait", func(t *world) {
		l := slow(t)
		wait := background(func() { check(t, l.Allow("k"), "denied") })
		synctest.Wait()
		l.Key("k").TryAllow()
		equal(t, l.Stats().Waiting, 1, "waiting")
		wait()
	})
	bubbleOf(t, "where its request gives up", func(t *world) {
		l := slow(t)
		ctx, cancel := context.WithCancel(t.Context())
		wait := background(func() {
			_, err := l.Take(ctx, "k", 4)
			isErr(t, err, context.Canceled)
		})
		synctest.Wait()
		cancel()
		wait()
		time.Sleep(5 * time.Second)
		t.has("k", 10, 0)
		st := conserved(t, l)
		check(t, st.Burnt == 0 && st.Admitted == 0 && st.Returned == st.Leased, "%+v", st)
	})
	for name, end := range ends {
		bubbleOf(t, "by "+name, func(t *world) {
			l := slow(t)
			wait := background(func() {
				_, err := l.Take(t.Context(), "k", 7)
				isErr(t, err, hybrid.ErrClosed)
			})
			synctest.Wait()
			noErr(t, end(l))
			t.lasts(0, 0, wait)
			if st := conserved(t, l); name == "shutdown" {
				t.has("k", 10, 0)
				check(t, st.Returned == 7 && st.Burnt == 0 && st.Admitted == 0, "%+v", st)
			}
		})
	}
	bubbleOf(t, "where no reply comes in time", func(t *world) {
		t.every(verdict{lost: true})
		l := t.start(by(denying, hourly))
		t.lasts(0, 100*time.Millisecond, func() { check(t, !l.Allow("k"), "admitted") })
		calls := t.callsFor("k")
		t.lasts(0, time.Millisecond, func() { check(t, !l.Allow("k") && !l.Allow("k2"), "admitted") })
		equal(t, t.callsFor("k"), calls, "calls") // no call was made
		t.every(verdict{})
		time.Sleep(5 * time.Second)
		check(t, l.Allow("k2"), "denied")
		check(t, !slices.Contains(t.draws("k")[1:], true), "a draw was sent again: %v", t.draws("k"))
	})
}

// Draws of many keys that come at once travel in few batches, and none waits for long.
func TestDrawsTravelTogether(t *testing.T) {
	bubble(t, func(t *world) {
		t.every(verdict{delay: 5 * time.Millisecond})
		l := t.start(of(hourly))
		t.lasts(5*time.Millisecond, 7*time.Millisecond, together(500, func(i int) {
			check(t, l.Allow(fmt.Sprint(i)), "denied")
		}))
		batches, calls := t.counts()
		check(t, calls == 500 && batches <= 5, "%d batches", batches)
	})
}

// A draw may be held back until the network has become so slow that its call may take longer than
// CallTimeout. Its request waits no longer for that.
func TestADrawIsWaitedForNoLongerThanCallTimeout(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.startOn(t.cluster(), by(denying, hourly))
		for _, k := range keysOn("0", 5) {
			must(t, l.Allow(k), "denied")
			time.Sleep(10 * time.Millisecond)
		}
		slow := map[string]time.Duration{
			"0:a": 79800 * time.Microsecond, "0:b": 90 * time.Millisecond,
			"0:c": 60 * time.Millisecond, "0:d": time.Second,
		}
		t.setJudge(func(c *lease.Call) verdict { return verdict{delay: slow[c.Key]} })
		from := time.Now()
		ask := func(at time.Duration, key string) (wait func()) {
			time.Sleep(at - time.Since(from))
			return background(func() { t.lasts(0, 100*time.Millisecond, func() { l.Allow(key) }) })
		}
		a, b := ask(0, "0:a"), ask(2*time.Millisecond, "0:b")
		c := ask(79*time.Millisecond, "0:c")
		d := ask(79500*time.Microsecond, "0:d") // held back until the answer to a has come
		for _, wait := range []func(){a, b, c, d} {
			wait()
		}
	})
}
