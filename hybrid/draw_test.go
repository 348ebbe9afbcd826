package hybrid_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

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
			check(t, st.InUse == 1 && st.Held == 0 && st.Leased == st.Admitted && st.Limits[0].Keys == 1, "%+v", st)
			check(t, slices.Equal(l.KnownLimits("k"), limits(hybrid.PerHour(1).WithBurst(20))),
				"%v", l.KnownLimits("k"))
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

// A key leases ahead when that pays, and draws again when it has been at rest.
func TestAKeyLeasesAheadWhenThatPays(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(of(hybrid.PerSecond(1000)))
		admits(100, 5*time.Millisecond, func() bool { return l.Allow("k") })
		check(t, l.Stats().Held > 0 && l.Stats().Calls < 30, "%+v", l.Stats())
		time.Sleep(10 * time.Second)
		before := t.callsFor("k")
		must(t, l.Allow("k"), "denied")
		check(t, slices.Equal(t.draws("k")[before:], []bool{true}), "not a draw")
		conserved(t, l)
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
		check(t, st.Admitted == 500 && st.Awaited == 500, "%+v", st)
	})
	bubbleOf(t, "by another request with smaller limits", func(t *world) {
		l := slow(t)
		wait := background(func() {
			r, err := l.Take(t.Context(), "k", 8)
			check(t, err == nil && r.OK, "%+v, %v", r, err)
		})
		synctest.Wait()
		check(t, l.KeyWith("k", hybrid.PerHour(1).WithBurst(5)).Allow(), "denied")
		wait()
		st := conserved(t, l)
		check(t, st.Admitted == 9 && st.Denied == 0, "%+v", st)
	})
	bubbleOf(t, "by a request that does not wait", func(t *world) {
		l := slow(t)
		wait := background(func() { check(t, l.Allow("k"), "denied") })
		synctest.Wait()
		l.TryAllow("k")
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
	bubbleOf(t, "by Close", func(t *world) {
		t.hangs()
		l := t.start(of(hourly))
		wait := background(func() {
			_, err := l.Take(t.Context(), "k", 1)
			isErr(t, err, hybrid.ErrClosed)
		})
		synctest.Wait()
		t.lasts(0, 0, func() { noErr(t, l.Close()); wait() })
	})
	bubbleOf(t, "by Shutdown", func(t *world) {
		l := slow(t)
		wait := background(func() {
			_, err := l.Take(t.Context(), "k", 7)
			isErr(t, err, hybrid.ErrClosed)
		})
		synctest.Wait()
		noErr(t, l.Shutdown(t.Context()))
		wait()
		t.has("k", 10, 0)
		st := conserved(t, l)
		check(t, st.Returned == 7 && st.Burnt == 0 && st.Admitted == 0, "%+v", st)
	})
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
		conserved(t, l)
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
