package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// While a call hangs, a warm key serves held tokens without waiting. Then TryAllow never waits, Allow
// waits CallTimeout at most, and after the first failure no request waits at all.
func TestNobodyWaitsLongForAStoreThatHangs(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.warm(by(denying, hybrid.PerSecond(1000)))
		t.hangs()
		held := l.Stats().Held
		t.lasts(0, 0, func() {
			for i := range held {
				must(t, l.Allow("k"), "request %d of %d held was denied", i+1, held)
				synctest.Wait()
			}
			check(t, l.Stats().Held == 0 && !l.Key("k").TryAllow(), "%+v", l.Stats())
		})
		var mu sync.Mutex
		var longest, last time.Duration
		together(1000, func(i int) {
			at := time.Duration(i) * 5 * time.Millisecond
			time.Sleep(at)
			d := took(func() { l.Allow("k") })
			mu.Lock()
			defer mu.Unlock()
			if longest = max(longest, d); d > 0 {
				last = max(last, at)
			}
		})()
		// Those of the first CallTimeout wait until it ends, and later ones not at all.
		check(t, longest > 0 && longest <= 100*time.Millisecond, "a request waited %v", longest)
		check(t, last <= 100*time.Millisecond, "a request that came after %v still waited", last)
		check(t, l.Stats().Errors != 0, "a call that hangs is not an error: %+v", l.Stats())
	})
}

// Probes come one at a time and ever less often, at least one every T; a call that succeeds ends the outage.
func TestProbesBackOff(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.warm(by(denying, hybrid.PerSecond(1000)))
		ask := func(n int) int { return admits(n, time.Millisecond, func() bool { return l.Key("k").TryAllow() }) }
		t.every(away)
		// T is 400 ms and the jitter is full: 50 probes in 10 s on average.
		_, n := t.during(func() { ask(10_000) })
		check(t, n >= 25 && n <= 100, "%d probes in 10 s", n)
		t.every(verdict{})
		admitted := ask(1400)
		check(t, admitted >= 1000, "%d admitted in the 1.4 s after the outage", admitted)
		// A key without demand is not probed.
		t.every(away)
		time.Sleep(5 * time.Second)
		t.silent(time.Hour)
		check(t, l.Stats().Held == 0 && l.Stats().Keys == 0, "%+v", l.Stats())
	})
}

// The first request after a silence ends the outage; only if it waits in line, the store answers that
// request.
func TestTheFirstRequestAfterASilenceEndsTheOutage(t *testing.T) {
	asks := map[string]func(l *hybrid.Limiter, ctx context.Context) error{
		"Take":  func(l *hybrid.Limiter, ctx context.Context) error { return taken(l.Take(ctx, "k", 1)) },
		"WaitN": func(l *hybrid.Limiter, ctx context.Context) error { return l.Key("k").WaitN(ctx, 10) },
		"Take of a Joined": func(l *hybrid.Limiter, ctx context.Context) error {
			return taken(l.Join(l.Key("k"), l.Key("k2"), l.Key("k3")).Take(ctx, 1))
		},
	}
	for name, ask := range asks {
		for _, silence := range []time.Duration{5 * time.Second, time.Hour} {
			bubbleOf(t, fmt.Sprint(name, " after ", silence), func(t *world) {
				// Given a process that has found its store away, and asks no more,
				l := t.start(by(denying, hybrid.PerSecond(1000).WithBurst(10_000_000)))
				testkit.Must(t, ask(l, within(t, time.Hour)) == nil, "denied")
				time.Sleep(time.Second)
				t.every(away)
				testkit.Must(t, ask(l, within(t, time.Second)) != nil, "admitted without the store")
				t.lasts(0, 0, func() { check(t, !l.Allow("k"), "admitted without the store") })
				time.Sleep(silence)
				// when the store is back,
				t.every(verdict{delay: time.Millisecond})
				// then the first request makes a call,
				err := ask(l, within(t, 30*time.Second))
				check(t, err == nil || name != "WaitN", "%v", err)
				time.Sleep(100 * time.Millisecond)
				// and the second one has its answer,
				noErr(t, ask(l, within(t, 30*time.Second)))
				equal(t, l.Stats().Degraded, 0, "keys are degraded")
			})
		}
	}
	bubbleOf(t, "a key whose own calls failed", func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000).WithBurst(10_000_000)))
		must(t, l.Allow("k"), "denied")
		time.Sleep(time.Second)
		t.every(verdict{err: lease.ErrKey})
		must(t, !l.Allow("k"), "admitted by a damaged bucket")
		t.lasts(0, 0, func() { must(t, !l.Allow("k"), "admitted by a damaged bucket") })
		time.Sleep(time.Hour)
		t.every(verdict{})
		noErr(t, l.Key("k").WaitN(within(t, 30*time.Second), 10))
	})
}

// taken is the error of a Take that was to admit.
func taken(r hybrid.Result, err error) error {
	if err == nil && !r.OK {
		return errors.New("denied")
	}
	return err
}

// In an outage no request waits for the store, however long none has asked.
func TestASilenceInAnOutageCostsNothing(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(1000)))
		keys := keysOn("0", 300)
		t.admitted(l, keys...)
		t.hangs()
		for i := range 4 { // the store never lets go of a call: in the end no more are sent
			time.Sleep(time.Minute)
			before, wait := l.Stats().Calls, time.Duration(0)
			if i == 0 {
				wait = 100 * time.Millisecond // the outage is found out
			}
			t.lasts(0, wait, together(len(keys), func(i int) {
				check(t, !l.Allow(keys[i]), "admitted without the store")
			}))
			calls := l.Stats().Calls - before
			check(t, calls <= 1 || i == 0, "%d calls after a silence", calls)
			for range 100 { // a request every T, at a time that has nothing to do with probes
				time.Sleep(ttl)
				t.lasts(0, 0, func() { check(t, !l.Allow(keys[0]), "admitted without the store") })
			}
		}
	})
}

// However long a store hangs, what is made of it stays within bounds: the time until a call is
// given up does not grow, nor does T with it.
func TestAHangingStoreTeachesNothing(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.warm(by(denying, hybrid.PerSecond(1000)))
		t.every(verdict{lost: true})
		admits(2000, 30*time.Millisecond, func() bool { return l.Key("k").TryAllow() })
		equal(t, t.last().Config.TTL, ttl, "is what T has become")
		t.every(verdict{})
		t.soon(2*ttl, func() bool { return l.Key("k").TryAllow() })
	})
}

// Once the holding is spent, an outage is served as Policy.Fallback says.
func TestFallbacks(t *testing.T) {
	// Admitted of 20,000 requests in 10 s, two processes at 1000/s, at least and at most:
	for fallback, want := range map[hybrid.Fallback][2]int64{
		hybrid.FallbackDeny:       {0, 0},
		hybrid.FallbackLocalShare: {5000, 5500},
		hybrid.FallbackAllowAll:   {20000, 20000},
	} {
		bubbleOf(t, fallback, func(t *world) {
			cfg := by(hybrid.Policy{Fallback: fallback}, hybrid.PerSecond(1000))
			other, l := t.start(cfg), t.start(cfg)
			admits(500, 2*time.Millisecond, func() bool { return l.Allow("k") && other.Allow("k") })
			t.hangs()
			for l.Key("k").TryAllow() {
			}
			time.Sleep(200 * time.Millisecond)
			before := l.Stats()
			admitted := int64(admits(20_000, 500*time.Microsecond, func() (ok bool) {
				t.lasts(0, 0, func() { ok = l.Allow("k") })
				return ok
			}))
			check(t, admitted >= want[0] && admitted <= want[1], "%d admitted, want %v", admitted, want)
			equal(t, l.Stats().Fallback-before.Fallback, admitted, "counted as fallback")
			equal(t, l.Stats().GrantedToWaiters, before.GrantedToWaiters, "granted to waiters, as before")
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
		})
	}
}

// A hang is no loss: what hangs is executed when the store goes on, which may be after the bucket has
// expired, and then the rate is back within half a second, however long it was. Where packets come late
// or never, a client that gives up on them after half a second is served within 2.5 s.
func TestTheRateIsBackSoonAfterTheCure(t *testing.T) {
	// strikes has each call for d wait for a channel that is closed after a while.
	strikes := func(after time.Duration, of func(chan struct{}) verdict) func(*world, time.Duration) {
		return func(t *world, d time.Duration) {
			t.setJudge(func(*lease.Call) verdict {
				until := make(chan struct{})
				time.AfterFunc(after, func() { close(until) })
				return of(until)
			})
			time.Sleep(d)
			t.every(verdict{})
		}
	}
	vanishes := strikes(500*time.Millisecond, func(gone chan struct{}) verdict {
		return verdict{err: lease.ErrUnavailable, until: gone}
	})
	late := strikes(10*time.Second, func(arrives chan struct{}) verdict {
		return verdict{late: arrives, stuck: true}
	})
	seconds := []time.Duration{10 * time.Second, time.Second, 3 * time.Second}
	for _, f := range []struct {
		name   string
		strike func(*world, time.Duration)
		lasts  []time.Duration
		soon   time.Duration
	}{
		{"a hang", (*world).hangsFor, append(seconds, 500*time.Millisecond, 1900*time.Millisecond,
			6*time.Second, 30*time.Second), 500 * time.Millisecond},
		{"a black hole", vanishes, seconds, 2500 * time.Millisecond},
		{"packets that come 10 s late", late, seconds, 2500 * time.Millisecond},
	} {
		for _, d := range f.lasts[:testkit.ShortOrLong(t, 2, len(f.lasts), "durations")] {
			bubbleOf(t, f.name+" of "+d.String(), func(t *world) {
				// given three processes that together ask for twice the rate
				const rate = 1000
				admitted, stop := t.overloaded(rate)
				time.Sleep(2 * time.Second)
				// when the store is away for d
				f.strike(t, d)
				// then the rate is back soon
				time.Sleep(f.soon)
				first := admitted()
				for s := range 11 { // in which the last packets come
					before := admitted()
					time.Sleep(time.Second)
					n := admitted() - before
					// Tokens that one second leaves in the bucket the next ones have.
					check(t, n >= rate*8/10, "%d admitted in the second from %v after the cure", n,
						f.soon+time.Duration(s)*time.Second)
				}
				check(t, admitted()-first >= 11*rate*97/100, "%d admitted in 11 s", admitted()-first)
				// and the bucket waits for nothing, and is not kept for a month
				look := &lease.Call{Key: "k", Request: lease.Request{
					Holder: "x", Seq: 1, Config: t.state("k").Config, Weight: 1,
				}}
				t.store().Exchange(t.Context(), []*lease.Call{look}, func([]*lease.Call) {})
				check(t, look.Err == nil && look.Grant.Frozen == 0 && look.Grant.Expiry < time.Minute,
					"it waits for %v, and is kept for %v, %v", look.Grant.Frozen, look.Grant.Expiry, look.Err)
				stop()
			})
		}
	}
}

// overloaded is three processes that together ask for twice the rate, and have for two seconds.
func (t *world) overloaded(rate int64) (admitted func() int64, stop func()) {
	ls := t.fleet(3, by(denying, hybrid.PerSecond(rate)))
	ended := make(chan struct{})
	wait := together(3, func(i int) {
		for {
			select {
			case <-ended:
				return
			case <-time.After(1500 * time.Millisecond / time.Duration(rate)):
				ls[i].Key("k").TryAllow()
			}
		}
	})
	time.Sleep(2 * time.Second)
	return func() int64 { return admittedBy(t, ls) }, func() { close(ended); wait() }
}

// The reply to a draw of a bucket at rest names no other process, so the parts come from the bucket's calls.
func TestProcessesThatDrawShareAKeyInAnOutage(t *testing.T) {
	hour, window := hybrid.PerHour(100), hybrid.Sliding(100, time.Hour)
	for _, c := range []struct {
		name     string
		limit    hybrid.Limit
		n        int  // processes
		restarts bool // of all of them, before their last requests
		try      bool // by TryAllow, which does not draw
		fresh    bool // another key is asked for in the outage
		want     [2]int64
	}{
		{name: "one", limit: hour, n: 1, want: [2]int64{99, 100}},
		{name: "two", limit: hour, n: 2, want: [2]int64{99, 101}},
		{name: "five", limit: hour, n: 5, want: [2]int64{99, 105}},
		{name: "twenty", limit: hour, n: 20, want: [2]int64{90, 110}},
		{name: "no draws", limit: hour, n: 20, try: true, want: [2]int64{90, 110}},
		{name: "restarted", limit: hour, n: 5, restarts: true, want: [2]int64{80, 100}},
		{name: "a new key", limit: hour, n: 20, fresh: true, want: [2]int64{90, 120}},
		{name: "a window of one", limit: window, n: 1, want: [2]int64{100, 100}},
		{name: "a window of five", limit: window, n: 5, want: [2]int64{95, 105}},
		{name: "a window of twenty", limit: window, n: 20, want: [2]int64{90, 110}},
		{name: "a window, restarted", limit: window, n: 20, restarts: true, want: [2]int64{90, 110}},
		{name: "a window, a new key", limit: window, n: 5, fresh: true, want: [2]int64{90, 110}},
		{name: "a calendar", limit: hybrid.Calendar(100, time.Hour, 0), n: 20, want: [2]int64{90, 110}},
		// The processes forget this key between two requests. Their part is that of a new key.
		{name: "full in a second", limit: hybrid.PerSecond(10), n: 5, want: [2]int64{90, 130}},
	} {
		bubbleOf(t, c.name, func(t *world) {
			// given processes each of which asks for a key once in four seconds,
			fleet, total := t.fleet(c.n, of(c.limit)), int64(0)
			asks := func(l *hybrid.Limiter, key string) {
				if c.try && l.Key(key).TryAllow() || !c.try && l.Allow(key) {
					total++
				}
			}
			turns := func(rounds int) {
				for range rounds {
					for _, l := range fleet {
						asks(l, "k")
						time.Sleep(4 * time.Second / time.Duration(c.n))
					}
				}
			}
			turns(3)
			if c.restarts {
				fleet = t.fleet(c.n, of(c.limit))
				turns(1)
			}
			key := "k"
			if c.fresh {
				turns(5)
				key, total = "fresh", 0
			}
			// when the store is away for ten seconds, and each asks for more than the limit admits,
			t.every(away)
			for range 100 {
				for _, l := range fleet {
					asks(l, key)
				}
				time.Sleep(100 * time.Millisecond)
			}
			// then all of them together admit about what one bucket does,
			check(t, total >= c.want[0] && total <= c.want[1], "%d admitted, want %v", total, c.want)
			// and owe it when the store is back.
			t.every(verdict{})
			before := total
			turns(2)
			check(t, total-before <= 12, "%d more admitted after the outage", total-before)
		})
	}
}

// A pause of Redis that is longer than CallTimeout gives no process more of a window than its part of
// what the window had left.
func TestAPauseOfTheStoreAdmitsNoMoreThanAWindow(t *testing.T) {
	for _, limit := range []hybrid.Limit{hybrid.Sliding(20, 3*time.Second), hybrid.Sliding(300, 3*time.Second)} {
		for _, ms := range []time.Duration{3500, 4500, 5900} {
			after := ms * time.Millisecond
			bubbleOf(t, fmt.Sprint(limit, " after ", after), func(t *world) {
				// Given three processes that want more than the window gives
				bound, fleet := newMeter(limit), t.fleet(3, of(limit))
				asks := together(len(fleet), func(i int) {
					admits(1000, 10*time.Millisecond, func() bool { return bound.admitIf(fleet[i].Allow("k")) })
				})
				// when nothing is answered for 400 ms,
				time.Sleep(after)
				t.hangsFor(400 * time.Millisecond)
				asks()
				// then the bound holds, and the fallback has served.
				bound.check(t)
				check(t, fleet[0].Stats().Errors > 0, "no call has failed")
			})
		}
	}
}

// spoil makes every call for key fail until heal: on Redis by a value of another type in the bucket's place.
func (t *world) spoil(key string) {
	if t.rdb != nil {
		noErr(t, t.rdb.Set(t.Context(), "yuzhi:{"+key+"}", "not a bucket", time.Hour).Err())
		return
	}
	t.onKeys(key, away)
}

func (t *world) heal(key string) {
	t.setJudge(nil)
	if t.rdb != nil {
		noErr(t, t.rdb.Del(t.Context(), "yuzhi:{"+key+"}").Err())
	}
}

// Bucket4j's batching executors: a batch that fails does not keep the next from being sent; and a
// call that fails within a batch does not fail the others.
func TestPeerAFailedBatchDoesNotBlockTheNext(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.start(by(denying, hourly))
		keys := []string{"a", "b", "bad", "c", "d", "e"}
		// Of calls that travel together one fails;
		t.spoil("bad")
		for _, key := range keys {
			l.Key(key).TryAllow() // does not wait for the first before the second asks
		}
		for _, key := range keys {
			check(t, l.Allow(key) == (key != "bad"), "%q is not answered by its own call", key)
		}
		t.mu.Lock()
		check(t, !t.virtual() || slices.Max(t.sizes) >= 2, "no calls travelled together")
		t.mu.Unlock()
		// when it is well again, it has its own,
		t.heal("bad")
		admitted := func(key string) {
			t.Helper()
			testkit.Eventually(t, "a token after the failure", func() bool { return l.Allow(key) })
		}
		t.lasts(0, ttl, func() { admitted("bad") })
		// and when many batches have failed, the next is sent all the same.
		t.every(away)
		const failures = 600 // more than may be under way at once
		for i := range failures {
			check(t, !l.Allow(fmt.Sprint("lost ", i)), "admitted without the store")
		}
		t.setJudge(nil)
		check(t, l.Allow("next"), "a key was denied because earlier batches had failed")
		for i := range 5 {
			admitted(fmt.Sprint("lost ", i))
		}
	})
}

// singleflight (as in vearne/ratelimit) and Bucket4j's batching: all waiting requests share one call
// and its error.
func TestPeerErrorsFanOutToEveryWaiter(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.start(by(denying, hourly))
		t.spoil("k")
		t.lasts(0, 0, together(40, func(int) {
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && !r.OK && r.Source == hybrid.SourceFallback, "Take: %+v, %v", r, err)
		}))
		st := l.Stats()
		check(t, st.Calls <= 40 && st.Admitted == 0 && (!t.virtual() || st.Calls == 1), "%+v", st)
		// After the failure no leftover state delays new requests.
		t.heal("k")
		testkit.Eventually(t, "a token", func() bool { return l.Allow("k") })
	})
}

// While the store is away, Wait is served at the pace of Policy.Fallback, or waits for the store.
func TestWaitOutlastsAnOutage(t *testing.T) {
	const outage = 10 * time.Second
	for _, c := range []struct {
		name     string
		policy   hybrid.Policy
		cold     bool
		from, to time.Duration // when all 30 have waited
	}{
		// the burst that has filled up meanwhile, and then 10/s
		{"deny", denying, false, outage + 1900*time.Millisecond, outage + 3100*time.Millisecond},
		// a call that fails, then 10/s of a bucket that was heard to be empty
		{"local share", hybrid.Policy{}, false, 2900 * time.Millisecond, 3100 * time.Millisecond},
		{"allow all", hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, false, 0, 200 * time.Millisecond},
		{"cold, deny", hybrid.Policy{}, true, outage + 1900*time.Millisecond, outage + 3100*time.Millisecond},
		{"cold, allow", hybrid.Policy{ColdStart: hybrid.ColdStartAllow}, true, 0, 200 * time.Millisecond},
	} {
		bubbleOf(t, c.name, func(t *world) {
			// Given a process that has used up its bucket, or has just started,
			l := t.start(by(c.policy, hybrid.PerSecond(10)))
			if !c.cold {
				drain(l, "k")
			}
			// when the store is away, and thirty requests wait,
			t.every(verdict{lost: true})
			cured := background(func() { time.Sleep(outage); t.every(verdict{}) })
			o := newOrder(30)
			t.lasts(c.from, c.to, inTurn(30, func(i int) {
				noErr(t, l.Wait(t.Context(), "k"))
				o.add(i)
			}))
			// then all are served in their order.
			o.check(t)
			cured()
		})
	}
}

// A caller that waits again after each error, as a worker does that puts a job back, does not spin: neither in
// an outage nor beyond it, if it heeds RetryAfter.
func TestARetryLoopAroundWaitDoesNotSpin(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  hybrid.Config
		cold bool
	}{
		{"warm", by(denying, hybrid.PerSecond(10)), false},
		{"cold", by(denying, hybrid.PerSecond(10)), true},
		{"several limits", by(denying, hybrid.PerSecond(10), hybrid.Sliding(50, time.Minute)), false},
	} {
		bubbleOf(t, c.name, func(t *world) {
			fleet := t.fleet(2, c.cfg)
			l := fleet[0]
			for _, one := range fleet {
				if !c.cold {
					drain(one, "k")
				}
			}
			t.every(verdict{lost: true})
			l.Allow("k") // finds out
			waits := map[string]func(context.Context) error{
				"Wait":   func(ctx context.Context) error { return l.Wait(ctx, "k") },
				"Joined": l.Join(l.Key("k"), l.Key("other")).Wait,
			}
			for name, wait := range waits {
				for _, patience := range []time.Duration{10 * time.Millisecond, time.Second, time.Hour} {
					times := 0
					for from := time.Now(); time.Since(from) < 10*time.Second; times++ {
						ctx, cancel := context.WithTimeout(t.Context(), min(patience, 10*time.Second-time.Since(from)))
						err := wait(ctx)
						cancel()
						isErr(t, err, context.DeadlineExceeded)
						time.Sleep(hybrid.RetryAfter(err))
					}
					most := int(10*time.Second/patience) + 1
					check(t, times <= most, "%s for %v: %d times in 10 s, want at most %d", name, patience, times, most)
				}
			}
			check(t, l.Stats().Waiting == 0 && l.Stats().Conserved(), "%+v", l.Stats())
		})
	}
}

// An error of a wait that fails at once names the time at which another try may succeed.
func TestRetryAfterIsTheTimeOfTheTokens(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerMinute(60).WithBurst(10)))
		drain(l, "k")
		err := l.Key("k").WaitN(within(t, time.Second), 5)
		isErr(t, err, hybrid.ErrWouldExceedDeadline)
		after := hybrid.RetryAfter(err)
		check(t, after > 4*time.Second && after <= 5*time.Second, "5 tokens in %v: %v", after, err)
		time.Sleep(after)
		noErr(t, l.Key("k").WaitN(within(t, time.Second), 5))
		for _, err := range []error{nil, context.Canceled, l.Key("k").WaitN(t.Context(), 11)} {
			check(t, hybrid.RetryAfter(err) == 0, "%v: after %v", err, hybrid.RetryAfter(err))
		}
	})
}

// A request for more than the local share ever holds waits for the store. Smaller ones do not wait for it.
func TestAWaitForMoreThanTheShareHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *world) {
		// Given two processes, each of which has a share of 5,
		fleet := t.fleet(2, of(hybrid.PerSecond(10)))
		l := fleet[0]
		admits(20, 100*time.Millisecond, func() bool { return l.Allow("k") && fleet[1].Allow("k") })
		t.every(away)
		time.Sleep(10 * time.Second)
		// when one request waits for 8 tokens in an outage,
		var done atomic.Bool
		wait := background(func() { noErr(t, l.Key("k").WaitN(t.Context(), 8)); done.Store(true) })
		synctest.Wait()
		// then others are served by the share, waiting or not,
		noErr(t, l.Key("k").WaitN(within(t, time.Second), 2))
		check(t, l.Allow("k"), "Allow is denied")
		time.Sleep(time.Minute)
		check(t, !done.Load(), "the share has served more than it holds")
		// and it is served when the store is back.
		t.every(verdict{})
		t.lasts(0, 2*time.Second, wait)
	})
}

// A wait that the fallback serves in the end leaves what it had gathered to the next wait, before Allow.
func TestAWaitServedByTheFallbackLeavesItsTokensToTheNext(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{MinBatch: 5}, hybrid.PerSecond(100)))
		l.AllowN("k", 1)
		t.every(away)
		l.AllowN("k", 90) // fails: degraded, served by the share
		for l.AllowN("k", 10) {
		}
		held := l.Stats().Held
		var done atomic.Bool
		wait := inTurn(2, func(i int) {
			_ = l.Key("k").WaitN(t.Context(), []int64{held + 5, 2}[i])
			done.Store(i == 1 || done.Load())
		})
		t.soon(300*time.Millisecond, func() bool { return l.Key("k").TryAllow() })
		synctest.Wait() // requests served before may not have woken yet
		check(t, done.Load(), "TryAllow was served while Wait waited; %+v", l.Stats())
		wait()
	})
}

// One slow answer of the past and one lost call of another key keep no key from its tokens: with answers after
// 1 ms calls are held back for 1 ms.
func TestOneSlowAnswerMakesNoKeyWaitForACallThatIsLost(t *testing.T) {
	for _, slow := range []time.Duration{900 * time.Millisecond, 30 * time.Second} {
		bubbleOf(t, slow, func(t *world) {
			// Given a process to which one answer was slow,
			l := t.start(by(denying, hybrid.PerSecond(100_000)))
			t.every(verdict{delay: slow, stuck: true})
			l.Allow("slow")
			time.Sleep(slow)
			// when a node that answers after 1 ms loses a call of one key,
			var lost atomic.Bool
			t.setJudge(func(c *lease.Call) verdict {
				if c.Key == "k0" && !c.Request.Draw && lost.CompareAndSwap(false, true) {
					return verdict{lost: true}
				}
				return verdict{delay: time.Millisecond}
			})
			// then requests for the others are admitted all the same.
			var denied atomic.Int64
			together(3, func(i int) {
				time.Sleep(time.Duration(i) * 250 * time.Microsecond)
				yes := admits(800, 5*time.Millisecond, func() bool { return l.Allow(fmt.Sprint("k", i)) })
				if i > 0 {
					denied.Add(int64(800 - yes))
				}
			})()
			check(t, lost.Load() && denied.Load() == 0, "lost %v, %d denied; %+v", lost.Load(), denied.Load(), l.Stats())
		})
	}
}
