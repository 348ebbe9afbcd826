package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// Close wakes all waiting requests at once, even while the store hangs. A later reply is never spent.
// The bubble ends only if no goroutine is left.
func TestCloseWakesWaiters(t *testing.T) {
	bubble(t, func(t *world) {
		hold := make(chan struct{})
		t.every(verdict{until: hold, stuck: true})
		l := t.process(hybrid.PerSecond(100))
		k := l.Key("k")
		wait := inTurn(10, func(int) {
			r, err := k.Take(context.Background(), 1)
			check(t, errors.Is(err, hybrid.ErrClosed) && !r.OK, "%+v, %v", r, err)
		})
		t.lasts(0, 0, func() {
			noErr(t, errors.Join(l.Close(), l.Close()))
			wait()
		})
		close(hold)
		synctest.Wait()
		st := l.Stats()
		check(t, !l.Allow("k") && !l.AllowN("k", 2) && !l.Key("k").TryAllow(), "a closed limiter admits")
		check(t, !k.Allow() && !k.TryAllow() && !l.Allow("new"), "a closed limiter admits")
		_, err := l.Take(context.Background(), "k", 1)
		isErr(t, err, hybrid.ErrClosed)
		_, err = l.Key("k").TakeUpTo(context.Background(), 1)
		isErr(t, err, hybrid.ErrClosed)
		isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrClosed)
		isErr(t, l.Key("k").WaitN(t.Context(), 0), hybrid.ErrClosed) // though it would cost nothing
		isErr(t, l.Wait(t.Context(), ""), hybrid.ErrClosed)
		check(t, !l.AllowN("k", 0), "a closed limiter admits")
		after := l.Stats()
		check(t, after.Leased == 0 && after.Held == 0 &&
			after.Denied == st.Denied && after.Invalid == st.Invalid+12, "%+v, before %+v", after, st)
	})
}

// Close cancels calls under way only after it has answered all waiting requests: the fallback, which
// would admit, must not answer their failures.
func TestCloseIsNotAnsweredByTheFallback(t *testing.T) {
	for range 100 {
		t := newWorld(t)
		policy := hybrid.Policy{Fallback: hybrid.FallbackAllowAll, ColdStart: hybrid.ColdStartAllow}
		l := t.start(hybrid.Config{Limits: limits(hourly), Policy: policy, CallTimeout: time.Minute})
		hold := make(chan struct{})
		t.every(verdict{late: hold})
		const keys = 50
		wait := together(keys, func(i int) {
			_, err := l.Take(context.Background(), fmt.Sprint(i), 1)
			isErr(t, err, hybrid.ErrClosed)
		})
		for l.Stats().Keys < keys {
			runtime.Gosched()
		}
		l.Close()
		wait()
		close(hold)
	}
}

// Close leaves what is held to expire at the store, without I/O.
func TestCloseMakesNoCalls(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.warm(of(hybrid.PerSecond(1000)))
		l.Close()
		t.silent(time.Minute)
		check(t, l.Stats().Held == 0 && l.Stats().Burnt != 0, "%+v", l.Stats())
		noErr(t, l.Shutdown(t.Context()))
	})
}

// Shutdown brings everything that is held back to the buckets, calls under way and refunds that no
// call has taken yet included.
func TestShutdownGivesEverythingBack(t *testing.T) {
	bubble(t, func(t *world) {
		t.every(verdict{delay: 5 * time.Millisecond})
		l := t.start(by(hybrid.Policy{MinBatch: 50}, hybrid.PerHour(1).WithBurst(1000)))
		// Twenty keys have spent three tokens each and hold many, and one has its first call under way.
		for i := range 20 {
			must(t, l.AllowN(fmt.Sprint(i), 3), "denied")
		}
		must(t, l.Stats().Held > 0, "nothing is held")
		l.Key("late").TryAllow()
		synctest.Wait()
		l.Key("0").Refund(2)
		noErr(t, l.Shutdown(t.Context()))
		t.has("0", 999, 0)
		for i := 1; i < 20; i++ {
			t.has(fmt.Sprint(i), 997, 0)
		}
		t.has("late", 1000, 0)
		check(t, l.Stats().Held == 0 && l.Stats().Burnt == 0 && l.Stats().Admitted == 60, "%+v", l.Stats())
		check(t, !l.Allow("0"), "admitted after Shutdown")
	})
}

func TestShutdownThatIsCutShort(t *testing.T) {
	bubbleOf(t, "gives up with its context, and says so", func(t *world) {
		l := t.warm(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: 10 * time.Second})
		t.hangs()
		t.lasts(time.Second, time.Second, func() {
			wait := background(func() { isErr(t, l.Shutdown(within(t, time.Second)), context.DeadlineExceeded) })
			time.Sleep(20 * time.Millisecond)
			// A request during Shutdown is refused, and is no demand.
			before := l.Stats()
			for range 7 {
				check(t, !l.Key("k").TryAllow() && !l.AllowN("k", 5), "admitted during Shutdown")
			}
			after := l.Stats()
			check(t, after.Denied == before.Denied && after.Invalid == before.Invalid+14,
				"%+v, before %+v", after, before)
			wait()
		})
	})
	bubbleOf(t, "says that the store refused, and takes no time", func(t *world) {
		l := t.warm(of(hybrid.PerSecond(1000)))
		t.every(away)
		t.lasts(0, 0, func() { isErr(t, l.Shutdown(t.Context()), hybrid.ErrUnavailable) })
		check(t, l.Stats().Held == 0 && l.Stats().Burnt != 0, "%+v", l.Stats())
	})
	twice := func(t *world, want error) (wait func()) {
		l := t.warm(of(hybrid.PerSecond(1000)))
		t.every(verdict{delay: 10 * time.Millisecond})
		return inTurn(2, func(int) { isErr(t, l.Shutdown(context.Background()), want) })
	}
	bubbleOf(t, "not by a second one, which waits for the first", func(t *world) {
		t.lasts(10*time.Millisecond, 10*time.Millisecond, twice(t, nil))
		equal(t, t.state("k").Ledger, 0, "still leased")
	})
	bubbleOf(t, "by Close", func(t *world) {
		wait := twice(t, hybrid.ErrUnavailable)
		t.processes[0].Close()
		t.lasts(0, 0, wait)
	})
}

// watchedClock is the system's clock with counters. Its readings can be moved ahead of its timers, as in a
// process that was stopped: the first thing the process does afterwards comes before its timers have run.
type watchedClock struct {
	ahead, reads, fired atomic.Int64           // fired counts timers
	once                atomic.Pointer[func()] // called when the clock is read
	late                time.Duration          // of timers, as on a machine that has much else to do
}

func (c *watchedClock) Now() clock.Instant {
	c.reads.Add(1)
	if f := c.once.Swap(nil); f != nil {
		(*f)()
	}
	return clock.System().Now().Add(time.Duration(c.ahead.Load()))
}

func (c *watchedClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return lateTimer{c.late, clock.System().AfterFunc(d+c.late, func() {
		c.fired.Add(1)
		f()
	})}
}

type lateTimer struct {
	late time.Duration
	clock.Timer
}

func (t lateTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d + t.late) }

// A process that was stopped past its deadline spends nothing of what it held with StrictExpiry,
// and without it no more than that.
func TestAStoppedProcessSpendsNothingLate(t *testing.T) {
	for verb, c := range map[string]struct {
		n   int64
		ask func(l *hybrid.Limiter) bool
	}{
		"TryAllow": {1, func(l *hybrid.Limiter) bool { return l.Key("k").TryAllow() }},
		"AllowN":   {2, func(l *hybrid.Limiter) bool { return l.AllowN("k", 2) }},
	} {
		for _, strict := range []bool{true, false} {
			bubble(t, func(t *world) {
				c0 := &watchedClock{}
				policy := hybrid.Policy{StrictExpiry: strict, Fallback: hybrid.FallbackDeny}
				l := t.warm(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Clock: c0, Policy: policy})
				held := l.Stats().Held
				must(t, held >= 20, "it holds %d", held)
				// It stops for longer than the lease lasts, and the store is away afterwards.
				t.every(away)
				c0.ahead.Store(int64(time.Minute))
				spent := c.n * int64(admits(int(held)+50, 0, func() bool { return c.ask(l) }))
				check(t, !strict || spent == 0, "%s: %d tokens spent after their deadline", verb, spent)
				check(t, spent <= held, "%s: %d tokens spent of %d", verb, spent, held)
				synctest.Wait()
				st := conserved(t, l)
				check(t, !strict || st.Burnt >= held, "%s: %+v", verb, st)
			})
		}
	}
}

func TestALeaseEndsAtItsDeadline(t *testing.T) {
	bubbleOf(t, "a timer burns it, with any clock", func(t *world) {
		m := newHandClock()
		t.replace(memory.New(m))
		policy := hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 100}
		l := t.start(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Clock: m, Policy: policy})
		must(t, l.Allow("k") && l.Stats().Held != 0, "nothing is held")
		t.every(away)
		// The deadline is 15/16 of T (400 ms) after the sending.
		m.advance(374 * time.Millisecond)
		synctest.Wait()
		// Most may be on its way back by now, or be given up on it, but not all.
		check(t, l.Key("k").TryAllow(), "nothing is left before the deadline: %+v", l.Stats())
		m.advance(2 * time.Millisecond)
		synctest.Wait()
		st := l.Stats()
		check(t, st.Burnt != 0, "after the deadline: %+v", st)
		check(t, !l.Key("k").TryAllow(), "an expired token was spent")
		// Tokens on their way back are burnt when the return is given up.
		for range 100 {
			m.advance(10 * time.Millisecond)
			synctest.Wait()
		}
		check(t, l.Stats().Held == 0 && l.Stats().Burnt == 98, "at last: %+v", l.Stats())
	})
	bubbleOf(t, "also while the call hangs that was to renew it", func(t *world) {
		cfg := by(hybrid.Policy{TTL: ttl, Fallback: hybrid.FallbackDeny}, hybrid.PerSecond(10000))
		cfg.CallTimeout = time.Second
		l := t.start(cfg)
		k := l.Key("k")
		admits(1000, time.Millisecond, func() bool { return admits(5, 0, k.Allow) > 0 })
		t.every(verdict{delay: time.Hour})
		before := t.callsFor("k")
		t.soon(time.Second, func() bool { k.TryAllow(); return t.callsFor("k") > before })
		must(t, l.Stats().Held != 0, "nothing is held during the call")
		time.Sleep(ttl)
		synctest.Wait()
		check(t, l.Stats().Held == 0 && l.Stats().Errors == 0, "%+v", l.Stats())
		check(t, !k.TryAllow(), "a token of the lease that ended was spent")
	})
}

// Given a request that has taken a token, when the Limiter closes before the request has seen that the
// token was late, then the token is burnt and not admitted: the request was denied.
func TestATokenFoundLateAfterCloseIsBurnt(t *testing.T) {
	bubble(t, func(t *world) {
		c := &watchedClock{}
		l := t.warm(hybrid.Config{
			Limits: limits(hybrid.PerSecond(1000)), Clock: c, Policy: hybrid.Policy{StrictExpiry: true},
		})
		before := l.Stats()
		must(t, before.Held > 1, "it holds %d", before.Held)
		end := func() {
			c.ahead.Store(int64(time.Minute))
			noErr(t, l.Close())
		}
		c.once.Store(&end)
		check(t, !l.Key("k").TryAllow(), "a late token was spent")
		st := conserved(t, l)
		equal(t, st.Admitted, before.Admitted, "tokens admitted")
		equal(t, st.Burnt, before.Burnt+before.Held, "tokens burnt")
	})
}

// handClock is a clock that a test moves. What is due runs on the test's goroutine.
type handClock struct {
	mu     sync.Mutex
	now    clock.Instant
	timers map[*handTimer]clock.Instant
}

type handTimer struct {
	clock *handClock
	call  func()
}

func newHandClock() *handClock {
	return &handClock{now: 4e18, timers: make(map[*handTimer]clock.Instant)}
}

func (c *handClock) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &handTimer{c, f}
	t.Reset(d)
	return t
}

func (t *handTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, pending := t.clock.timers[t]
	t.clock.timers[t] = t.clock.now.Add(max(d, 0))
	return pending
}

func (t *handTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, pending := t.clock.timers[t]
	delete(t.clock.timers, t)
	return pending
}

// advance moves the clock by d, and to what is due on the way.
func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := c.now.Add(d); ; {
		var next *handTimer
		at := end
		for t, due := range c.timers {
			if due <= at {
				next, at = t, due
			}
		}
		c.now = max(c.now, at)
		if next == nil {
			return
		}
		delete(c.timers, next)
		c.mu.Unlock()
		next.call()
		c.mu.Lock()
	}
}

// onManualClock returns a Limiter with a store of its own, both on a clock that only the test moves.
func onManualClock(t *testing.T, cfg hybrid.Config) (*hybrid.Limiter, *handClock) {
	manual := newHandClock()
	cfg.Clock = manual
	l, err := hybrid.New(memory.New(manual), cfg)
	noErr(t, err)
	return l, manual
}

// A clock that a test moves is all that decides: no goroutine has to have run meanwhile.
func TestAManualClockJustWorks(t *testing.T) {
	ctx := t.Context()
	for name, asks := range map[string]func(l *hybrid.Limiter, k *hybrid.Key) bool{
		"Take":   func(l *hybrid.Limiter, _ *hybrid.Key) bool { r, _ := l.Take(ctx, "k", 1); return r.OK },
		"Allow":  func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Allow("k") },
		"AllowN": func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.AllowN("k", 1) },
		"Key":    func(_ *hybrid.Limiter, k *hybrid.Key) bool { return k.Allow() },
		"Wait":   func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Wait(ctx, "k") == nil },
	} {
		for _, events := range []hybrid.Events{{}, {Denied: func(string, int64) {}}} {
			t.Run(fmt.Sprint(name, " listened to: ", events.Denied != nil), func(t *testing.T) {
				for i := range 100 {
					l, manual := onManualClock(t, hybrid.Config{Limits: limits(hybrid.PerHour(10)), Events: events})
					k := l.Key("k")
					for k.Allow() {
					}
					more := admits(5, 0, func() bool { return k.Allow() || l.Allow("k") })
					must(t, more == 0, "more than the burst")
					// (Not always all tokens are there: the lease that a call brings has ended
					// where the clock moved while it was made.)
					manual.advance(time.Hour)
					must(t, asks(l, k), "run %d: denied: %+v", i, l.Stats())
					l.Close()
				}
			})
		}
	}
}

// Calls that are held back for others to go along go when those before them are back: time may stand still.
func TestNoRequestHangsWhileAManualClockStands(t *testing.T) {
	for i := range testkit.PlainOrRace(30, 10) {
		l, _ := onManualClock(t, of(hybrid.PerHour(100)))
		var admitted atomic.Int64
		wait := together(4, func(g int) {
			for j := range 600 {
				if l.Allow(fmt.Sprint("k", (j*7+g)%20)) {
					admitted.Add(1)
				}
			}
		})
		done := make(chan struct{})
		go func() { wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute): // for ever
			t.Fatalf("run %d hangs: %+v", i, l.Stats())
		}
		must(t, admitted.Load() == 20*100, "run %d: %d of 2000 admitted: %+v", i, admitted.Load(), l.Stats())
		l.Close()
	}
}

// Tokens that a wait had gathered before an outage are lost with their lease. They are not given back
// minutes later to a bucket that has refilled since.
func TestTokensOfAFailedWaitEndWithTheirLease(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerSecond(1).WithBurst(100)
		cfg := by(hybrid.Policy{Fallback: hybrid.FallbackDeny, MinBatch: 50}, limit)
		cfg.InstanceID = "a"
		a := t.start(cfg)
		cfg.InstanceID = "c"
		c := t.start(cfg)
		m := newMeter(limit)
		m.admitIf(a.Allow("k"))
		t.setJudge(func(c *lease.Call) (v verdict) {
			if strings.HasPrefix(c.Request.Holder, "a-") {
				v = away
			}
			return v
		})
		// A waits for more than it holds, gathers 49, and gives up.
		isErr(t, a.Key("k").WaitN(within(t, time.Second), 100), context.DeadlineExceeded)
		time.Sleep(2 * time.Minute) // its lease is forgotten, the bucket full again
		m.admit(drain(c, "k"))
		t.setJudge(nil)
		for range 2000 {
			m.admitIf(a.Allow("k"))
			m.admitIf(c.Allow("k"))
			time.Sleep(time.Millisecond)
		}
		m.check(t)
	})
}

// A process whose twin, restored from the same snapshot, calls under the same id goes on under another one.
func TestATwinLeadsToANewID(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerSecond(1000)
		l := t.warm(hybrid.Config{Limits: limits(limit), InstanceID: "pod-7", Policy: denying})
		// The twin is ahead by a thousand calls.
		old := t.last()
		twin := lease.Call{Key: "k"}
		twin.Request = lease.Request{Holder: old.Holder, Seq: old.Seq + 1<<40, Config: old.Config, Weight: 1}
		t.inner.Exchange(t.Context(), []*lease.Call{&twin}, func([]*lease.Call) {})
		must(t, twin.Err == nil, "%v", twin.Err)
		bound := newMeter(limit)
		admitted := admits(1000, 2*time.Millisecond, func() bool { return bound.admitIf(l.Key("k").TryAllow()) })
		id := t.last().Holder
		check(t, id != old.Holder && id[:5] == "pod-7", "the id was %q and is %q", old.Holder, id)
		check(t, admitted >= 990, "%d of 1000 admitted", admitted)
		bound.check(t)
		// It keeps that id when the key has left and comes back, for the twin is still there.
		time.Sleep(time.Minute)
		l.Allow("k")
		equal(t, t.last().Holder, id, "is the id")
	})
}

// When another process uses the same id, waiting requests do not fail as in an outage. A refund is not
// lost either: it does not travel with the first call under a new id.
func TestAWaitAndARefundGoOnUnderANewID(t *testing.T) {
	stale := func(t *world) {
		t.setJudge(func(*lease.Call) verdict {
			t.judge = nil // the first call alone
			return verdict{err: lease.ErrStale}
		})
	}
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(10)))
		l.Allow("k")
		stale(t)
		noErr(t, l.Wait(t.Context(), "k"))
	})
	bubble(t, func(t *world) {
		l := t.process(hourly)
		l.AllowN("k", 8)
		stale(t)
		l.AllowN("k", 2)
		l.Key("k").Refund(5)
		time.Sleep(5 * time.Second)
		check(t, l.Stats().Refunded == 5, "%+v", l.Stats())
	})
}

// A reply that is not one to the call is no answer, and the key is not stuck with it.
func TestAForeignReplyIsAFailure(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(denying, hybrid.PerSecond(100)))
		t.every(verdict{foreign: true})
		check(t, !l.Allow("k"), "a foreign grant was spent")
		synctest.Wait()
		t.every(verdict{})
		// The breaker is open: a probe goes out within a T.
		t.soon(ttl, func() bool { return l.Allow("k") })
	})
}
