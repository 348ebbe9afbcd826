package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
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
		check(t, !l.Allow("k") && !l.AllowN("k", 2) && !l.TryAllow("k"), "a closed limiter admits")
		check(t, !k.Allow() && !k.TryAllow() && !l.Allow("new"), "a closed limiter admits")
		_, err := l.Take(context.Background(), "k", 1)
		isErr(t, err, hybrid.ErrClosed)
		isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrClosed)
		isErr(t, l.WaitN(t.Context(), "k", 0), hybrid.ErrClosed) // though it would cost nothing
		isErr(t, l.Wait(t.Context(), ""), hybrid.ErrClosed)
		check(t, !l.AllowN("k", 0), "a closed limiter admits")
		after := l.Stats()
		check(t, after.Leased == 0 && after.Held == 0 &&
			after.Denied == st.Denied && after.Invalid == st.Invalid+11, "%+v, before %+v", after, st)
	})
}

// Close and Shutdown end every wait in line, too; what had been gathered for it is not lost count
// of.
func TestClosingEndsEveryWait(t *testing.T) {
	for name, end := range ends {
		bubbleOf(t, name, func(t *world) {
			l := t.process(hourly)
			l.AllowN("k", 4)
			wait := together(100, func(int) { isErr(t, l.WaitN(t.Context(), "k", 10), hybrid.ErrClosed) })
			time.Sleep(time.Second)
			noErr(t, end(l))
			t.lasts(0, 0, wait)
			check(t, l.Stats().Admitted == 4, "%+v", l.Stats())
		})
	}
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
	inVirtualTime(t, func(t *world) {
		t.every(verdict{delay: 5 * time.Millisecond})
		l := t.start(by(hybrid.Policy{MinBatch: 50}, hybrid.PerHour(1).WithBurst(1000)))
		// Twenty keys have spent three tokens each and hold many, and one has its first call under way.
		for i := range 20 {
			must(t, l.AllowN(fmt.Sprint(i), 3), "denied")
		}
		must(t, l.Stats().Held > 0, "nothing is held")
		l.TryAllow("late")
		synctest.Wait()
		l.Refund("0", 2)
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

// A request during Shutdown is refused, and is no demand.
func TestShutdownCountsWhatIsAskedMeanwhileAsInvalid(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.warm(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: 10 * time.Second})
		t.hangs()
		wait := together(1, func(int) { isErr(t, l.Shutdown(within(t, time.Second)), context.DeadlineExceeded) })
		time.Sleep(20 * time.Millisecond)
		before := l.Stats()
		for range 7 {
			check(t, !l.TryAllow("k") && !l.AllowN("k", 5), "admitted during Shutdown")
		}
		after := l.Stats()
		check(t, after.Denied == before.Denied && after.Invalid == before.Invalid+14,
			"%+v, before %+v", after, before)
		wait()
	})
}

func TestShutdownThatIsCutShort(t *testing.T) {
	bubbleOf(t, "gives up with its context, and says so", func(t *world) {
		l := t.warm(hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: 10 * time.Second})
		t.hangs()
		t.lasts(time.Second, time.Second, func() {
			isErr(t, l.Shutdown(within(t, time.Second)), context.DeadlineExceeded)
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
