package hybrid_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Conserved adds up what the store has granted, and misses no place.
func TestConservedKnowsEveryPlace(t *testing.T) {
	balanced := hybrid.Stats{Leased: 100, Admitted: 50, Fallback: 10, Returned: 20, Burnt: 15, Held: 25}
	check(t, balanced.Conserved() && hybrid.Stats{}.Conserved(), "%+v is not conserved", balanced)
	for i := range 6 {
		s := balanced
		*[]*int64{&s.Leased, &s.Admitted, &s.Fallback, &s.Returned, &s.Burnt, &s.Held}[i]++
		check(t, !s.Conserved(), "%+v is conserved", s)
	}
	s := balanced
	s.Held, s.Burnt = -1, 41
	check(t, !s.Conserved(), "%+v is conserved", s)
}

// A token counts as held while it is on its way back, so that the account is right at any time.
func TestConservedWhileTokensAreOnTheirWay(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := of(hybrid.PerSecond(1000))
		cfg.CallTimeout = 10 * time.Second
		l := t.warm(cfg)
		hold := make(chan struct{})
		t.every(verdict{until: hold})
		time.Sleep(time.Second) // what is not needed is given back
		back := t.last().Returned
		st := l.Stats()
		check(t, back > 0 && st.Held >= back && st.Returned+st.Burnt == 0 && st.Conserved(),
			"%d on the way: %+v", back, st)
		close(hold)
		t.every(verdict{})
		time.Sleep(time.Second)
		st = conserved(t, l)
		check(t, st.Held == 0 && st.Returned >= back, "%d were on the way: %+v", back, st)
	})
}

// A Store can ask whose requests a call is for: the first of those that wait.
func TestACallNamesItsWaiters(t *testing.T) {
	bubble(t, func(t *world) {
		type name struct{}
		var waiting []any
		t.setJudge(func(c *lease.Call) verdict {
			for _, ctx := range c.Owner.(lease.Awaited).Waiting(2) {
				waiting = append(waiting, ctx.Value(name{}))
			}
			return verdict{}
		})
		l := t.process(hourly)
		inTurn(1, func(int) { _ = l.AllowN("k", 5) })()
		must(t, len(waiting) == 1 && waiting[0] == nil, "%v", waiting)
		noErr(t, l.Key("k").WaitN(t.Context(), 5))
		waiting = nil
		ctx, cancel := context.WithCancel(t.Context())
		wait := inTurn(3, func(i int) { _ = l.Wait(context.WithValue(ctx, name{}, i), "k") })
		time.Sleep(ttl)
		cancel()
		wait()
		must(t, len(waiting) >= 2 && waiting[len(waiting)-2] == 0 && waiting[len(waiting)-1] == 1, "%v", waiting)
	})
}

// Stats report failing keys, waiting requests, and the time of a round trip.
func TestStatsSayWhatGoesOnNow(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := of(hourly)
		cfg.Name = "api"
		l := t.start(cfg)
		t.every(verdict{delay: 30 * time.Millisecond})
		st := l.Stats()
		check(t, st.Name == "api" && st.RTT == 0 && st.Waiting == 0, "%+v", st)
		wait := inTurn(3, func(int) { _ = l.Wait(within(t, 10*time.Second), "k") })
		check(t, l.Stats().Waiting == 3 && l.Stats().Denied == 0, "%+v", l.Stats())
		wait()
		st = l.Stats()
		check(t, st.Waiting == 0 && st.RTT == 30*time.Millisecond && st.Admitted == 3, "%+v", st)
		t.every(away)
		for i := range 5 {
			l.Allow(fmt.Sprint(i))
		}
		synctest.Wait()
		equal(t, l.Stats().Degraded, 6, "keys degraded")
		t.every(verdict{})
		time.Sleep(5 * time.Second)
		equal(t, l.Stats().Degraded, 0, "keys degraded")
	})
}

// ofLimit returns the Stats of one limit.
func ofLimit(st hybrid.Stats, l hybrid.Limit) hybrid.LimitStats {
	for _, s := range st.Limits {
		if s.Limit == l {
			return s
		}
	}
	return hybrid.LimitStats{}
}

// Each denial is counted by the limit that caused it, even after its key has left or its limits have changed.
func TestStatsCountDenialsByLimit(t *testing.T) {
	for _, mode := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("shadow: ", mode), func(t *world) {
			small, other := hybrid.PerHour(60).WithBurst(5), hybrid.PerHour(60).WithBurst(7)
			large := hybrid.PerSecond(100)
			cfg := by(hybrid.Policy{Shadow: mode}, small, large)
			cfg.LimitsFor = plans(func(key string) []hybrid.Limit {
				if key == "other" {
					return limits(other)
				}
				return nil
			})
			l := t.start(cfg)
			says := func(limit hybrid.Limit, keys int, denied int64) {
				t.Helper()
				got, want := ofLimit(l.Stats(), limit), hybrid.LimitStats{Limit: limit, Keys: keys, Denied: denied}
				if mode {
					want.Denied, want.Shadowed = 0, denied
				}
				check(t, got == want, "%v: %+v, want %+v", limit, got, want)
			}
			ask := func(key string, n int) { admits(n, 0, func() bool { return l.Allow(key) }) }
			for _, key := range []string{"a", "b"} {
				ask(key, 5+10)
			}
			ask("other", 7+3)
			says(small, 2, 20)
			says(large, 2, 0)
			says(other, 1, 3)
			// The same key is denied by another limit from now on.
			noErr(t, l.SetLimits(t.Context(), "a", other))
			ask("a", 1)
			says(small, 1, 20)
			denied := ofLimit(l.Stats(), other)
			check(t, denied.Keys == 2 && denied.Denied+denied.Shadowed == 4, "%+v", denied)
			// Keys that have gone to rest are not in use, and what they denied is counted.
			ask("b", 2)
			time.Sleep(3 * time.Second)
			says(small, 0, 22)
			says(other, 0, 4)
			sum := int64(0)
			st := l.Stats()
			for _, s := range st.Limits {
				sum += s.Denied + s.Shadowed
			}
			equal(t, sum, st.Denied+st.Shadowed, "by limit")
			if mode {
				l.AllowN("b", 100) // more than the smallest burst
				says(small, 1, 122)
			}
		})
	}
}

// However many limits there are, Stats tell 64 apart and count the others together.
func TestStatsTellSixtyFourLimitsApart(t *testing.T) {
	bubble(t, func(t *world) {
		const many = 100
		l := t.start(hybrid.Config{Limits: limits(hourly), LimitsFor: plans(func(key string) []hybrid.Limit {
			return limits(hybrid.PerHour(int64(len(key))).WithBurst(1))
		})})
		key := make([]byte, many)
		for i := range many {
			k := string(key[:i+1])
			l.Allow(k)
			for range i + 1 {
				l.Allow(k)
			}
		}
		st := l.Stats()
		must(t, len(st.Limits) == 1+64, "%d limits", len(st.Limits))
		check(t, st.Limits[0] == hybrid.LimitStats{Limit: hourly}, "%+v", st.Limits[0])
		var sum hybrid.LimitStats
		for i, s := range st.Limits {
			sum.Keys, sum.Denied = sum.Keys+s.Keys, sum.Denied+s.Denied
			check(t, i%64 == 0 || s == hybrid.LimitStats{Limit: s.Limit, Keys: 1, Denied: s.Limit.Tokens}, "%+v", s)
		}
		check(t, sum.Keys == many && sum.Denied == many*(many+1)/2 && sum.Denied == st.Denied,
			"%+v of %+v", sum, st)
		rest := st.Limits[64]
		check(t, rest.Limit == hybrid.Limit{} && rest.Keys == many-63, "%+v", rest)
		for range 3 { // each has its place for good
			again := l.Stats()
			check(t, slices.Equal(again.Limits, st.Limits), "%+v, was %+v", again.Limits, st.Limits)
		}
	})
}

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
	bubble(t, func(t *world) {
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
		check(t, k.Allow() && l.Allow("k") && k.TryAllow() && l.Key("k").TryAllow() && k.AllowN(4) && l.AllowN("k", 5),
			"denied")
		// No request waits for missing tokens, whatever its deadline.
		t.lasts(0, 0, func() {
			noErr(t, k.Wait(t.Context()))
			noErr(t, l.Key("k").WaitN(within(t, time.Second), 2))
		})
		shadows(t, l, 10, 3+4+9+3)
		// A request beyond the burst would be denied for ever, and is admitted all the same.
		r, err = l.Take(t.Context(), "k", 11)
		check(t, err == nil && r.OK && r.Shadowed, "%+v, %v", r, err)
		check(t, l.AllowN("k", 100) && l.Key("k").WaitN(t.Context(), 1000) == nil, "denied")
		r, err = k.TakeUpTo(t.Context(), 9)
		check(t, err == nil && r.OK && r.Taken == 9 && r.Shadowed, "%+v, %v", r, err)
		shadows(t, l, 10, 19+11+100+1000+9)
		equal(t, told, int64(19+1111+9), "told")
		time.Sleep(afterTTL)
		t.has("k", 0, 0)
		// In four hours four tokens come back, which are drawn: nothing was charged to the bucket.
		time.Sleep(4 * time.Hour)
		equal(t, admits(6, 0, k.Allow), 6, "admitted")
		shadows(t, l, 14, 1139+2)
	})
}

// A Wait waits for one call and no longer. Whom that serves is no shadow admission.
func TestShadowWaitsForOneCallOnly(t *testing.T) {
	bubble(t, func(t *world) {
		t.every(verdict{delay: 20 * time.Millisecond})
		l := t.start(by(shadow, hourly))
		t.lasts(20*time.Millisecond, 25*time.Millisecond, func() { noErr(t, l.Key("k").WaitN(t.Context(), 10)) })
		shadows(t, l, 10, 0)
		// Once the bucket is known to be empty, no request waits at all.
		t.lasts(20*time.Millisecond, 25*time.Millisecond, func() { noErr(t, l.Key("k").WaitN(t.Context(), 10)) })
		shadows(t, l, 10, 10)
		t.lasts(0, 0, func() { noErr(t, l.Key("k").WaitN(t.Context(), 10)) })
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
				debt += protocol.Reported(c.Request.Late, lease.LateDebt)
				return verdict{}
			})
			time.Sleep(5 * time.Second)
			l.Allow("k")
			time.Sleep(ttl)
			t.locked(func() { equal(t, debt, admitted, "owed") })
		})
	}
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
		check(t, st.TableFull == 5 && st.Shadowed == 5 && st.Denied == 0, "%+v", st)
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
