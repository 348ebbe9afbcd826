package hybrid_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Unlimited and Blocked are explicit answers of LimitsFor. They hold while Redis answers and in an
// outage, under any Policy.Fallback.
func TestLimitsForSaysUnlimitedAndBlocked(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{hybrid.FallbackDeny, hybrid.FallbackAllowAll} {
		inVirtualTime(t, func(t *world) {
			cfg := by(hybrid.Policy{Fallback: fallback}, hourly)
			cfg.LimitsFor = func(key string) []hybrid.Limit {
				return map[string][]hybrid.Limit{
					"ours": limits(hybrid.Unlimited), "banned": limits(hybrid.Blocked),
				}[key]
			}
			l := t.start(cfg)
			ask := func() {
				t.Helper()
				equal(t, admits(500, 0, func() bool { return l.Allow("ours") }), 500, "admitted of no limit")
				equal(t, admits(100, 10*time.Millisecond, func() bool { return l.Allow("banned") }), 0,
					"admitted of nothing")
			}
			ask()
			equal(t, drain(l, "k"), 10, "admitted of Limits")
			t.every(away)
			time.Sleep(time.Minute)
			ask()
		})
	}
}

// Wrong limits from LimitsFor are reported as a mistake in the configuration: the error says so, is
// logged once for a key, counted, and passed to the observer. They count as neither a denial nor an
// invalid argument.
func TestWrongLimitsOfAKeyAreNoOutage(t *testing.T) {
	for name, c := range map[string]struct {
		limits   []hybrid.Limit
		otherway []hybrid.Limit // Config.Limits
	}{
		"nil without Limits":         {nil, nil},
		"an empty list":              {[]hybrid.Limit{}, nil},
		"an empty list, with Limits": {[]hybrid.Limit{}, limits(hourly)},
		"an invalid limit":           {limits(hybrid.PerSecond(-1)), limits(hourly)},
		"too many":                   {slices.Repeat(limits(hourly), 5), limits(hourly)},
	} {
		bubbleOf(t, name, func(t *world) {
			told := 0
			cfg := hybrid.Config{Limits: c.otherway, LimitsFor: func(string) []hybrid.Limit { return c.limits }}
			cfg.Events.Misconfigured = func(key string, err error) {
				told++
				check(t, key == "k" || key == "other", "%q", key)
				isErr(t, err, hybrid.ErrInvalidConfig)
			}
			l, out := t.logging(t, cfg)
			for range 3 {
				check(t, !l.Allow("k") && !l.TryAllow("k") && !l.Key("k").AllowN(2), "admitted")
				_, err := l.Take(t.Context(), "k", 1)
				isErr(t, err, hybrid.ErrInvalidConfig)
				isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrInvalidConfig)
			}
			l.Allow("other")
			logs(t, out, 1, "key=k ", "key=other ")
			logs(t, out, 2, "limits that cannot be used", "LimitsFor")
			st := l.Stats()
			check(t, st.Misconfigured == 16 && st.Invalid == 0 && st.Denied == 0 && st.Keys == 0, "%+v", st)
			equal(t, told, 16, "events")
			t.silent(time.Second)
		})
	}
}

// With Policy.Shadow they are admitted: a mistake in a limit under trial stops no request.
func TestWrongLimitsInShadowStopNoRequest(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(shadow)
		cfg.LimitsFor = func(key string) []hybrid.Limit {
			return map[string][]hybrid.Limit{"negative": limits(hybrid.Limit{Tokens: -1})}[key]
		}
		l, out := t.logging(t, cfg)
		for _, k := range []*hybrid.Key{l.Key("k"), l.KeyWith("k"), l.Key("negative")} {
			r, err := k.Take(t.Context(), 2)
			check(t, err == nil && r.OK && r.Shadowed && k.Allow() && k.TryAllow(), "%+v, %v", r, err)
			noErr(t, k.Wait(t.Context()))
			check(t, l.Allow(k.Name()) && l.Wait(t.Context(), k.Name()) == nil, "%q is denied", k.Name())
		}
		logs(t, out, 1, "key=k ", "key=negative ")
		shadows(t, l, 0, 3*(5+2))
		equal(t, l.Stats().Misconfigured, 3*(4+2), "misconfigured")
	})
}

// A flood of keys with wrong limits has a thousand lines of the log, and then one in a while, which
// says how many there were.
func TestAFloodOfWrongLimitsDoesNotFloodTheLog(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := hybrid.Config{LimitsFor: func(string) []hybrid.Limit { return nil }}
		l, out := t.logging(t, cfg)
		for i := range 5000 {
			l.Allow(fmt.Sprint("key ", i))
		}
		time.Sleep(time.Minute)
		l.Allow("one more")
		logs(t, out, 1002, "limits that cannot be used")
		logs(t, out, 1, "keys=4000")
		equal(t, l.Stats().Misconfigured, 5001, "misconfigured")
	})
}

// A key that is not in use has nothing to refresh, and is not brought into use.
func TestRefreshOfAKeyThatIsNotInUse(t *testing.T) {
	bubble(t, func(t *world) {
		asked := 0
		l := t.start(hybrid.Config{LimitsFor: func(string) []hybrid.Limit {
			asked++
			return limits(hourly)
		}})
		noErr(t, l.Refresh("k"))
		noErr(t, l.RefreshAll())
		check(t, asked == 0 && l.Stats().Keys == 0, "asked %d times", asked)
		isErr(t, l.Refresh(""), hybrid.ErrInvalidKey)
		// A key that is too long to be kept is asked for by name only.
		long := strings.Repeat("x", lease.KeyMax+1)
		l.Allow(long)
		noErr(t, l.RefreshAll())
		equal(t, asked, 1, "times asked")
		noErr(t, l.Refresh(long))
		equal(t, asked, 2, "times asked")
		noErr(t, l.Close())
		isErr(t, l.Refresh("k"), hybrid.ErrClosed)
		isErr(t, l.RefreshAll(), hybrid.ErrClosed)
	})
}

// Wrong limits of a handle are treated like wrong ones of LimitsFor, even where the key is in use.
func TestKeyWithWrongLimits(t *testing.T) {
	bubble(t, func(t *world) {
		l, out := t.logging(t, of(hourly))
		l.Allow("k")
		for _, k := range []*hybrid.Key{l.KeyWith("k"), l.KeyWith("k", hybrid.PerSecond(-1))} {
			check(t, !k.Allow() && !k.Class(1).Allow(), "admitted")
			says(t, "Wait", k.Wait(t.Context()), hybrid.ErrInvalidConfig, "KeyWith")
			_, err := k.Peek(t.Context())
			says(t, "Peek", err, hybrid.ErrInvalidConfig, "KeyWith")
		}
		logs(t, out, 1, "limits that cannot be used")
		equal(t, l.Stats().Misconfigured, 6, "misconfigured")
		check(t, l.Allow("k"), "the key by its name is denied")
	})
}

// A plan that comes by another handle is in force with the next call, or that call says that it is
// not, in the log, an event and a count; and a change is in force two TTLs after the last use of the old one.
func TestAHandlesPlanIsInForceOrToldOf(t *testing.T) {
	small, large := hybrid.PerMinute(10), hybrid.PerMinute(100)
	bubbleOf(t, "plans that alternate", func(t *world) {
		cfg := of(hourly)
		events := 0
		cfg.Events.Conflict = func(key string, stored []hybrid.Limit) {
			events++
			check(t, key == "k" && slices.Equal(stored, limits(small)), "%s has %v", key, stored)
		}
		l, out := t.logging(t, cfg)
		yes := 0
		for i := range 200 {
			plan := small
			if i%2 == 1 {
				plan = large
			}
			if l.KeyWith("k", plan).Allow() {
				yes++
			}
			if i == 1 {
				logs(t, out, 1, "other limits under the same version")
				equal(t, l.Stats().Conflicts, 1, "conflicts")
				equal(t, events, 1, "events")
			}
			time.Sleep(100 * time.Millisecond)
		}
		// The smaller plan holds, for it was there first,
		check(t, yes <= 14, "%d admitted", yes)
		// and the log goes on to say so, once in a while.
		lines := strings.Count(out.String(), "other limits under the same version")
		check(t, lines >= 2 && lines <= 3, "%d lines in 20 s", lines)
	})
	bubbleOf(t, "plans of a key in steady use", func(t *world) {
		l, out := t.logging(t, of(hourly))
		plans := []hybrid.Limit{hybrid.PerSecond(100), hybrid.PerSecond(1000)}
		admits(500, 2*time.Millisecond, l.KeyWith("k", plans[0]).Allow)
		logs(t, out, 0, "other limits under the same version")
		for i := range 400 { // less than three TTLs
			l.KeyWith("k", plans[i%2]).Allow()
			time.Sleep(2 * time.Millisecond)
		}
		logs(t, out, 1, "other limits under the same version")
	})
	bubbleOf(t, "a plan that changes", func(t *world) {
		l, out := t.logging(t, of(hourly))
		check(t, l.KeyWith("k", small).Allow(), "denied")
		check(t, l.KeyWith("k", large).Allow(), "denied")
		logs(t, out, 1, "other limits under the same version")
		for range 30 {
			l.KeyWith("k", large).Allow()
			time.Sleep(100 * time.Millisecond)
		}
		limitsAre(t, l, "k", large)
		logs(t, out, 1, "other limits under the same version")
		// One that changes after a silence is in force with its first request.
		time.Sleep(3 * ttl)
		l.KeyWith("k", small).Allow()
		limitsAre(t, l, "k", small)
		logs(t, out, 1, "other limits under the same version")
	})
}

// A blocked key denies any number of tokens, without an error.
func TestBlockedDeniesAnyNumberOfTokens(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(of(hybrid.Blocked))
		for _, n := range []int64{1, 2, 500} {
			r, err := l.Take(t.Context(), "k", n)
			check(t, err == nil && !r.OK && r.RetryAfter > 0, "Take(%d): %+v, %v", n, r, err)
			made, err := l.Reserve(t.Context(), "k", n)
			check(t, err == nil && !made.OK(), "Reserve(%d): %v", n, err)
		}
		st := l.Stats()
		check(t, st.Denied == 2*(1+2+500) && st.Invalid == 0, "%+v", st)
	})
}

// A key blocked by SetLimits stays so in this process, even where the store goes away before the next
// call.
func TestBlockedHoldsThroughAnOutageThatComesAtOnce(t *testing.T) {
	for _, fallback := range []hybrid.Fallback{hybrid.FallbackLocalShare, hybrid.FallbackAllowAll} {
		bubble(t, func(t *world) {
			l := t.start(by(hybrid.Policy{Fallback: fallback}, hybrid.PerSecond(1000)))
			must(t, l.Allow("k"), "denied")
			time.Sleep(time.Second) // what it held has gone back
			noErr(t, l.SetLimits(t.Context(), "k", hybrid.Blocked))
			t.every(away)
			yes := admits(1000, time.Millisecond, func() bool { return l.Allow("k") })
			equal(t, yes, 0, "admitted")
		})
	}
}
