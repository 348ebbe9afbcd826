package hybrid_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// shadow is a policy that admits whom the limits deny.
var shadow = hybrid.Policy{Shadow: true}

// shadows checks how many tokens were admitted by the limits, and how many against them.
func shadows(t *world, l *hybrid.Limiter, admitted, shadowed int64) {
	t.Helper()
	st := conserved(t, l)
	check(t, st.Admitted == admitted && st.Shadowed == shadowed && st.Denied == 0 && st.Invalid == 0,
		"%d admitted, %d shadowed, %d denied, %d invalid, want %d and %d",
		st.Admitted, st.Shadowed, st.Denied, st.Invalid, admitted, shadowed)
}

// In shadow mode every verb admits what its limit denies, says so, and counts it; what the limit
// has is drawn as usual, and the bucket sees no more than that.
func TestShadowAdmitsWhatALimitDeniesAndCountsIt(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		cfg := by(shadow, hourly)
		told := int64(0)
		cfg.Events.Denied = func(_ string, n int64) { told += n }
		l := t.start(cfg)
		k := l.Key("k")
		for range 10 {
			check(t, k.Allow(), "denied within the limit")
		}
		shadows(t, l, 10, 0)
		r, err := l.Take(t.Context(), "k", 3)
		check(t, err == nil && r.OK && r.Shadowed && r.Limit == hourly &&
			r.RetryAfter > time.Hour && r.Remaining == 0, "%+v, %v", r, err)
		check(t, k.Allow() && l.Allow("k") && k.TryAllow() && l.TryAllow("k") && k.AllowN(4) && l.AllowN("k", 5),
			"denied")
		// No request waits for missing tokens, whatever its deadline.
		t.lasts(0, 0, func() {
			noErr(t, k.Wait(t.Context()))
			noErr(t, l.WaitN(within(t, time.Second), "k", 2))
		})
		shadows(t, l, 10, 3+4+9+3)
		// A request beyond the burst would be denied for ever, and is admitted all the same.
		r, err = l.Take(t.Context(), "k", 11)
		check(t, err == nil && r.OK && r.Shadowed, "%+v, %v", r, err)
		check(t, l.AllowN("k", 100) && l.WaitN(t.Context(), "k", 1000) == nil, "denied")
		shadows(t, l, 10, 19+11+100+1000)
		equal(t, told, int64(19+1111), "told")
		time.Sleep(afterTTL)
		t.has("k", 0, 0)
		// In four hours four tokens come back, which are drawn: nothing was charged to the bucket.
		time.Sleep(4 * time.Hour)
		equal(t, admits(6, 0, k.Allow), 6, "admitted")
		shadows(t, l, 14, 1130+2)
	})
}

// A Wait waits for one call and no longer. Whom that serves is no shadow admission.
func TestShadowWaitsForOneCallOnly(t *testing.T) {
	bubble(t, func(t *world) {
		t.every(verdict{delay: 20 * time.Millisecond})
		l := t.start(by(shadow, hourly))
		t.lasts(20*time.Millisecond, 25*time.Millisecond, func() { noErr(t, l.WaitN(t.Context(), "k", 10)) })
		shadows(t, l, 10, 0)
		// Once the bucket is known to be empty, no request waits at all.
		t.lasts(20*time.Millisecond, 25*time.Millisecond, func() { noErr(t, l.WaitN(t.Context(), "k", 10)) })
		shadows(t, l, 10, 10)
		t.lasts(0, 0, func() { noErr(t, l.WaitN(t.Context(), "k", 10)) })
		shadows(t, l, 10, 20)
	})
}

// Without an answer of the store the fallback decides as usual, with what it admits as debt; what
// it denies, before the first reply too, is admitted and is no debt.
func TestShadowLeavesNoDebt(t *testing.T) {
	for fallback, admitted := range map[hybrid.Fallback]int64{
		hybrid.FallbackDeny: 0, hybrid.FallbackLocalShare: 9, hybrid.FallbackAllowAll: 71,
	} {
		bubbleOf(t, fallback, func(t *world) {
			l := t.start(by(hybrid.Policy{Shadow: true, Fallback: fallback}, hourly))
			must(t, l.Allow("k"), "denied")
			time.Sleep(2 * ttl) // nothing is held
			t.every(away)
			check(t, l.AllowN("k", 9), "denied")
			for range 31 {
				check(t, l.Allow("k") && l.Wait(t.Context(), "k") == nil, "denied")
			}
			st := conserved(t, l)
			check(t, st.Fallback == admitted && st.Admitted == 1+admitted &&
				st.Shadowed == 71-admitted && st.Denied == 0, "%+v", st)
			// The store hears of what the fallback admitted and of nothing else.
			t.every(verdict{})
			debt := int64(0)
			t.setJudge(func(c *lease.Call) verdict {
				debt += c.Request.Debt
				return verdict{}
			})
			time.Sleep(5 * time.Second)
			l.Allow("k")
			time.Sleep(ttl)
			t.locked(func() { equal(t, debt, admitted, "owed") })
		})
	}
}

// Before the first reply TryAllow, and Allow after CallTimeout, are answered by Policy.ColdStart.
func TestShadowOfAColdStart(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(shadow, hourly))
		t.hangs()
		check(t, l.TryAllow("k"), "denied")
		t.lasts(0, 100*time.Millisecond, func() { check(t, l.Allow("k"), "denied") })
		t.lasts(0, 100*time.Millisecond, func() { noErr(t, l.Wait(t.Context(), "k")) })
		shadows(t, l, 0, 3)
	})
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{Shadow: true, ColdStart: hybrid.ColdStartAllow}, hourly))
		t.hangs()
		check(t, l.TryAllow("k") && l.Allow("k"), "denied")
		st := l.Stats()
		check(t, st.Fallback == 2 && st.Shadowed == 0, "%+v", st)
	})
}

// A full table of keys in use denies no request in shadow mode.
func TestShadowWithAFullTable(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(hybrid.Policy{Shadow: true, MinBatch: 2}, hybrid.PerSecond(1000))
		cfg.KeysMax = 1
		l := t.start(cfg)
		must(t, l.Allow("k"), "denied")
		r, err := l.Take(t.Context(), "new", 4)
		check(t, err == nil && r.OK && r.Shadowed && l.Allow("new"), "%+v, %v", r, err)
		st := l.Stats()
		check(t, st.Crowded == 5 && st.Shadowed == 5 && st.Denied == 0, "%+v", st)
	})
}

// Denials without a limit stand in shadow mode too: by a closed limiter, for an invalid request, and
// after a context has ended.
func TestShadowDeniesWhatIsNoLimitsDoing(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(shadow, hourly))
		drain := func() { admits(10, 0, func() bool { return l.Allow("k") }) }
		drain()
		_, err := l.Take(t.Context(), "", 1)
		isErr(t, err, hybrid.ErrInvalidKey)
		_, err = l.Take(t.Context(), "k", -1)
		isErr(t, err, hybrid.ErrInvalidN)
		_, err = l.Take(ended(), "k", 1)
		isErr(t, err, context.Canceled)
		isErr(t, l.Wait(ended(), "k"), context.Canceled)
		check(t, !l.Allow("") && !l.AllowN("k", -1), "admitted")
		equal(t, l.Stats().Invalid, 4, "invalid")
		// One that is cancelled during its call is denied, and not shadowed.
		t.every(verdict{delay: 50 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		wait := background(func() {
			_, err := l.Take(ctx, "other", 3)
			isErr(t, err, context.Canceled)
		})
		synctest.Wait()
		cancel()
		wait()
		st := l.Stats()
		check(t, st.Denied == 3 && st.Shadowed == 0, "%+v", st)
		k := l.Key("k")
		must(t, k.Allow() && l.Stats().Shadowed > 0, "the key is not known to be empty")
		l.Close()
		check(t, !l.Allow("k") && !k.Allow() && !l.Key("k").Allow() && !k.TryAllow(), "admitted after Close")
		isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrClosed)
	})
}
