package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Unlimited and Blocked are explicit answers of LimitsFor. They hold while Redis answers and in an
// outage, under any Policy.Fallback. A key blocked by SetLimits stays so in this process, even where
// the store goes away before the next call.
func TestUnlimitedAndBlockedHoldInAnOutage(t *testing.T) {
	for fallback := range hybrid.Fallback(3) {
		bubble(t, func(t *world) {
			cfg := by(hybrid.Policy{Fallback: fallback}, hourly)
			cfg.LimitsFor = plans(func(key string) []hybrid.Limit {
				return map[string][]hybrid.Limit{
					"ours": limits(hybrid.Unlimited), "banned": limits(hybrid.Blocked),
				}[key]
			})
			l := t.start(cfg)
			ask := func(banned ...string) {
				t.Helper()
				equal(t, admits(500, 0, func() bool { return l.Allow("ours") }), 500, "admitted of no limit")
				for _, key := range banned {
					n := admits(100, 10*time.Millisecond, func() bool { return l.Allow(key) })
					equal(t, n, 0, "admitted of nothing, by "+key)
				}
			}
			ask("banned")
			equal(t, drain(l, "k"), 10, "admitted of Limits")
			must(t, l.Allow("set"), "denied")
			time.Sleep(time.Second) // what it held has gone back
			noErr(t, l.SetLimits(t.Context(), "set", hybrid.Blocked))
			t.every(away)
			ask("banned", "set")
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
			cfg := hybrid.Config{Limits: c.otherway, LimitsFor: plans(func(string) []hybrid.Limit { return c.limits })}
			cfg.Events.Misconfigured = func(key string, err error) {
				told++
				check(t, key == "k" || key == "other", "%q", key)
				isErr(t, err, hybrid.ErrInvalidConfig)
			}
			l, out := t.logging(t, cfg)
			for range 3 {
				check(t, !l.Allow("k") && !l.Key("k").TryAllow() && !l.Key("k").AllowN(2), "admitted")
				_, err := l.Take(t.Context(), "k", 1)
				isErr(t, err, hybrid.ErrInvalidConfig)
				isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrInvalidConfig)
			}
			l.Allow("other")
			logs(t, out, 1, "key=k ", "key=other ")
			logs(t, out, 2, "invalid limits for a key", "LimitsFor")
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
		cfg.LimitsFor = plans(func(key string) []hybrid.Limit {
			return map[string][]hybrid.Limit{"negative": limits(hybrid.Limit{Tokens: -1})}[key]
		})
		l, out := t.logging(t, cfg)
		for _, k := range []*hybrid.Key{l.Key("k"), l.KeyWithLimits("k"), l.Key("negative")} {
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
		cfg := hybrid.Config{LimitsFor: plans(func(string) []hybrid.Limit { return nil })}
		l, out := t.logging(t, cfg)
		for i := range 5000 {
			l.Allow(fmt.Sprint("key ", i))
		}
		time.Sleep(time.Minute)
		l.Allow("one more")
		logs(t, out, 1002, "invalid limits for a key")
		logs(t, out, 1, "keys=4000")
		equal(t, l.Stats().Misconfigured, 5001, "misconfigured")
	})
}

// A key that is not in use has nothing to refresh, and is not brought into use.
func TestRefreshOfAKeyThatIsNotInUse(t *testing.T) {
	bubble(t, func(t *world) {
		asked := 0
		l := t.start(hybrid.Config{LimitsFor: plans(func(string) []hybrid.Limit {
			asked++
			return limits(hourly)
		})})
		noErr(t, l.Refresh(context.Background(), "k"))
		noErr(t, l.Refresh(context.Background()))
		check(t, asked == 0 && l.Stats().Keys == 0, "asked %d times", asked)
		isErr(t, l.Refresh(context.Background(), ""), hybrid.ErrInvalidKey)
		// A key that is too long to be kept is asked for by name only.
		long := strings.Repeat("x", lease.KeyMax+1)
		l.Allow(long)
		noErr(t, l.Refresh(context.Background()))
		equal(t, asked, 1, "times asked")
		noErr(t, l.Refresh(context.Background(), long))
		equal(t, asked, 2, "times asked")
		noErr(t, l.Close())
		isErr(t, l.Refresh(context.Background(), "k"), hybrid.ErrClosed)
		isErr(t, l.Refresh(context.Background()), hybrid.ErrClosed)
	})
}

// Wrong limits of a handle are treated like wrong ones of LimitsFor, even where the key is in use.
func TestKeyWithWrongLimits(t *testing.T) {
	bubble(t, func(t *world) {
		cfg, announced := of(hourly), 0
		cfg.Events.Misconfigured = func(string, error) { announced++ }
		l, out := t.logging(t, cfg)
		l.Allow("k")
		for _, k := range []*hybrid.Key{l.KeyWithLimits("k"), l.KeyWithLimits("k", hybrid.PerSecond(-1))} {
			check(t, !k.Allow() && !k.Class(1).Allow(), "admitted")
			says(t, "Wait", k.Wait(t.Context()), hybrid.ErrInvalidConfig, "KeyWithLimits")
			_, err := k.Peek(t.Context())
			says(t, "Peek", err, hybrid.ErrInvalidConfig, "KeyWithLimits")
		}
		logs(t, out, 1, "invalid limits for a key")
		equal(t, l.Stats().Misconfigured, 6, "misconfigured")
		check(t, l.Allow("k"), "the key by its name is denied")
		// So are they where the key rests.
		time.Sleep(2 * time.Second)
		must(t, l.Stats().InUse == 0, "%+v", l.Stats())
		check(t, !l.KeyWithLimits("k").Allow(), "admitted")
		check(t, announced == 9 && l.Stats().Misconfigured == 7, "%d events, %+v", announced, l.Stats())
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
			if l.KeyWithLimits("k", plan).Allow() {
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
	bubbleOf(t, "a plan that changes", func(t *world) {
		l, out := t.logging(t, of(hourly))
		check(t, l.KeyWithLimits("k", small).Allow(), "denied")
		check(t, l.KeyWithLimits("k", large).Allow(), "denied")
		logs(t, out, 1, "other limits under the same version")
		for range 30 {
			l.KeyWithLimits("k", large).Allow()
			time.Sleep(100 * time.Millisecond)
		}
		limitsAre(t, l, "k", large)
		logs(t, out, 1, "other limits under the same version")
		// One that changes after a silence is in force with its first request.
		time.Sleep(3 * ttl)
		l.KeyWithLimits("k", small).Allow()
		limitsAre(t, l, "k", small)
		logs(t, out, 1, "other limits under the same version")
	})
}

// A blocked key has nothing, before its first request as after it, and denies any number of tokens without an
// error.
func TestABlockedKeyHasNothing(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.Blocked)
		for _, n := range []int64{1, 2, 500} {
			r, err := l.Peek(t.Context(), "k")
			check(t, err == nil && !r.OK && r.Remaining == 0 && r.RetryAfter > 0, "%+v, %v", r, err)
			levels, err := l.Levels(t.Context(), "k")
			check(t, err == nil && len(levels) == 1 && levels[0].Remaining == 0, "%+v, %v", levels, err)
			r, err = l.Take(t.Context(), "k", n)
			check(t, err == nil && !r.OK && r.RetryAfter > 0, "Take(%d): %+v, %v", n, r, err)
			made, err := l.Key("k").Reserve(t.Context(), n)
			check(t, err == nil && !made.OK(), "Reserve(%d): %v", n, err)
		}
		st := l.Stats()
		check(t, st.Denied == 2*(1+2+500) && st.Invalid == 0, "%+v", st)
	})
}

// plan is a LimitsFor whose answer changes.
type plan struct {
	limits atomic.Pointer[[]hybrid.Limit]
}

func (p *plan) set(l ...hybrid.Limit) { p.limits.Store(&l) }

func (p *plan) of(string) []hybrid.Limit { return *p.limits.Load() }

// takesOver is a little longer than a bucket keeps limits that no process proposes any more.
const takesOver = 3 * ttl

// more is a limit that takes the place of hourly.
var more = hybrid.PerHour(1).WithBurst(500)

// refreshes are the ways to refresh "k".
var refreshes = map[string]func(*hybrid.Limiter) error{
	"one key":  func(l *hybrid.Limiter) error { return l.Refresh(context.Background(), "k") },
	"all keys": func(l *hybrid.Limiter) error { return l.Refresh(context.Background()) },
}

// Refresh proposes the present answer of LimitsFor. It takes over when no process
// proposes the old limits any more.
func TestRefreshAsksLimitsForAgain(t *testing.T) {
	slow, fast := hybrid.PerHour(1).WithBurst(5), hybrid.PerHour(1).WithBurst(500)
	for name, refresh := range refreshes {
		bubbleOf(t, name, func(t *world) {
			var p plan
			p.set(slow)
			cfg := hybrid.Config{LimitsFor: plans(p.of)}
			a, b := t.start(cfg), t.start(cfg)
			use := func(d time.Duration) {
				used(d, func() { a.Allow("k") }, func() { b.Allow("k") })
			}
			use(time.Second)
			limitsAre(t, a, "k", slow)
			p.set(fast)
			use(2 * takesOver)
			limitsAre(t, a, "k", slow) // before any refresh
			noErr(t, refresh(a))
			use(2 * takesOver)
			limitsAre(t, a, "k", slow) // b still proposes it
			noErr(t, refresh(b))
			use(takesOver)
			limitsAre(t, a, "k", fast)
			_, err := a.Take(t.Context(), "k", 100)
			check(t, err == nil, "%v", err) // within the new burst, of which everything is used
			// A wrong answer changes nothing, and says so.
			p.set(hybrid.PerSecond(-1))
			says(t, "Refresh", refresh(a), hybrid.ErrInvalidConfig, "Tokens is -1")
			use(takesOver)
			limitsAre(t, b, "k", fast)
		})
	}
}

// An answer that was on its way while the limits changed and Refresh was called does not outlive
// it, whichever of the two comes last.
func TestRefreshOvertakesAnAnswerOnItsWay(t *testing.T) {
	old, recent := hybrid.PerHour(1).WithBurst(5), hybrid.PerHour(1).WithBurst(500)
	for _, when := range []string{"the key comes into use", "an earlier Refresh asks"} {
		bubbleOf(t, when, func(t *world) {
			var p plan
			p.set(old)
			var hold chan struct{} // holds the next answer back
			l := t.start(hybrid.Config{LimitsFor: plans(func(key string) []hybrid.Limit {
				answer, until := p.of(key), hold
				hold = nil
				if until != nil {
					<-until
				}
				return answer
			})})
			held := make(chan struct{})
			slow := func() { l.Allow("k") }
			if when != "the key comes into use" {
				l.Allow("k")
				slow = func() { noErr(t, l.Refresh(context.Background(), "k")) }
			}
			hold = held
			var wg sync.WaitGroup
			wg.Go(slow)
			synctest.Wait() // LimitsFor has read the old limits
			p.set(recent)
			noErr(t, l.Refresh(context.Background(), "k"))
			close(held)
			wg.Wait()
			used(takesOver, func() { l.Allow("k") })
			limitsAre(t, l, "k", recent)
		})
	}
}

// A Refresh also holds for a key at rest, and for one of which a draw is under way. Limits that this
// process itself has proposed until then are no conflict.
func TestRefreshIsNoConflictWithItself(t *testing.T) {
	drawn := func(cancelled bool) func(*world, *hybrid.Limiter, func()) {
		return func(t *world, l *hybrid.Limiter, change func()) {
			t.every(verdict{delay: 20 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := background(func() { _, _ = l.Take(ctx, "k", 1) })
			synctest.Wait()
			change()
			if cancelled {
				cancel() // so that an entry goes on with the draw
			}
			wait()
		}
	}
	for when, given := range map[string]func(t *world, l *hybrid.Limiter, change func()){
		"a draw is under way":       drawn(false),
		"a draw that was cancelled": drawn(true),
		"at rest": func(t *world, l *hybrid.Limiter, change func()) {
			must(t, l.Allow("k"), "denied")
			change()
			l.Key("k").TryAllow() // brings it into use before the bucket has taken the new limits over
			time.Sleep(takesOver)
		},
	} {
		for name, refresh := range refreshes {
			bubbleOf(t, when+", "+name, func(t *world) {
				var p plan
				p.set(hourly)
				l := t.start(hybrid.Config{LimitsFor: plans(p.of)})
				given(t, l, func() { p.set(more); noErr(t, refresh(l)) })
				used(takesOver, func() { l.Allow("k") })
				check(t, slices.Equal(l.CachedLimits("k"), limits(more)), "the limits are %v", l.CachedLimits("k"))
				equal(t, l.Stats().Conflicts, 0, "conflicts with itself")
			})
		}
	}
}

// KeyWithLimits takes the key's limits from a caller that knows them.
func TestKeyWithTakesThePlaceOfLimitsFor(t *testing.T) {
	bubble(t, func(t *world) {
		asked := 0
		l := t.start(hybrid.Config{LimitsFor: plans(func(string) []hybrid.Limit {
			asked++
			return limits(hourly)
		})})
		small, large := hybrid.PerHour(1).WithBurst(3), hybrid.PerHour(1).WithBurst(30)
		k := l.KeyWithLimits("k", small)
		r, err := k.Peek(t.Context())
		check(t, err == nil && r.Limit == small && r.Remaining == 3, "%+v, %v", r, err)
		must(t, k.AllowN(3) && !k.Allow() && asked == 0, "the burst is not 3, or LimitsFor was asked")
		limitsAre(t, l, "k", small)
		// They hold whenever the key comes back into use by this handle, and no Refresh changes them.
		time.Sleep(10 * time.Second)
		must(t, l.Stats().InUse == 0, "in use")
		k.Allow()
		noErr(t, l.Refresh(context.Background(), "k"))
		noErr(t, l.Refresh(context.Background()))
		used(takesOver, func() { k.Allow() })
		limitsAre(t, l, "k", small)
		equal(t, asked, 0, "times that LimitsFor was asked")
		// Others, given later, are proposed by a key that is in use.
		later := l.KeyWithLimits("k", large)
		used(takesOver, func() { later.Allow() })
		limitsAre(t, l, "k", large)
		// A key that came into use by its name follows the first request by the handle.
		l.Allow("named")
		given := l.KeyWithLimits("named", large)
		used(takesOver, func() { given.Allow() })
		limitsAre(t, l, "named", large)
		equal(t, asked, 1, "times that LimitsFor was asked")
	})
}

// says checks that err wraps want, and that its text has each of the parts.
func says(t testing.TB, what string, err, want error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		check(t, errors.Is(err, want) && strings.Contains(fmt.Sprint(err), part),
			"%s: %v, want %v with %q", what, err, want, part)
	}
}

func perSecond(tokens, burst int64) hybrid.Limit {
	return hybrid.Limit{Tokens: tokens, Per: time.Second, Burst: burst}
}

// Bad limits are refused by New, by SetLimits and on the first use of a key, with their value and
// its bound, before anything is written. They are a mistake of the configuration, and no outage.
func TestBadLimitsAreNamedBeforeAnythingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		limits []hybrid.Limit
		part   string
	}{
		"zero tokens":             {limits(perSecond(0, 0)), "Tokens is 0"},
		"negative tokens":         {limits(perSecond(-5, 0)), "Tokens is -5"},
		"zero per":                {limits(hybrid.Limit{Tokens: 1}), "Per is 0s"},
		"per below a microsecond": {limits(hybrid.Limit{Tokens: 1, Per: 999}), "Per is 999ns"},
		"negative burst":          {limits(perSecond(1, -1)), "Burst is -1"},
		"not exact": {limits(hybrid.Limit{Tokens: 1e9 + 7, Per: 24 * time.Hour, Burst: 1 << 50}),
			"the nearest valid limit is"},
		"too many": {limits(perSecond(1, 0), perSecond(2, 0), perSecond(3, 0), perSecond(4, 0), perSecond(5, 0)),
			"Limits has 5 entries, must have 1 to 4"},
		"the second of two": {limits(perSecond(1, 0), perSecond(-1, 0)), "Limits[1]"},
		"none":              {nil, "Limits has 0 entries, must have 1 to 4"},
	} {
		bubbleOf(t, name, func(t *world) {
			refused := func(where string, err error, parts ...string) {
				t.Helper()
				says(t, where, err, hybrid.ErrInvalidConfig, append(parts, c.part)...)
				check(t, !errors.Is(err, hybrid.ErrUnavailable), "%v", err)
				check(t, errors.Is(err, lease.ErrInvalidLimit) != strings.Contains(c.part, "1 to 4"),
					"%s: %v", where, err)
			}
			var err error
			l := t.process(hybrid.PerSecond(1))
			refused("SetLimits", l.SetLimits(t.Context(), "k", c.limits...))
			if c.limits != nil {
				_, err = hybrid.New(t, of(c.limits...))
				refused("New", err)
			}
			l = t.start(hybrid.Config{LimitsFor: plans(func(string) []hybrid.Limit { return c.limits })})
			_, err = l.Take(t.Context(), "k", 1)
			refused("Take", err, "LimitsFor")
			refused("Wait", l.Wait(t.Context(), "k"), "LimitsFor")
			_, err = l.Peek(t.Context(), "k")
			refused("Peek", err, "LimitsFor")
			_, err = l.Levels(t.Context(), "k")
			refused("Levels", err, "LimitsFor")
			check(t, !l.Allow("k") && l.Stats().Keys == 0, "Allow is true, or made an entry")
			_, calls := t.counts()
			check(t, calls == 0 && !t.state("k").Exists, "something was written")
			noErr(t, l.SetLimits(t.Context(), "other", hybrid.PerSecond(1))) // not refused for LimitsFor's
		})
	}
}

// New says everything that is wrong, at once.
func TestNewNamesEveryViolation(t *testing.T) {
	refused := func(store lease.Store, cfg hybrid.Config, want error, parts ...string) {
		t.Helper()
		_, err := hybrid.New(store, cfg)
		says(t, "New", err, want, parts...)
	}
	bad := hybrid.Config{
		Limits:  limits(perSecond(1, 0), perSecond(-2, 0), perSecond(3, 0), perSecond(4, 0), perSecond(-5, 0)),
		KeysMax: -7, Version: -8, CallTimeout: -9, Scope: 7,
		Policy: hybrid.Policy{
			Target: time.Second, TTL: time.Second, MinBatch: -3,
			Overcommit: -1, Weight: -6, ColdStart: 7, Fallback: -1,
		},
	}
	ofLimits := []string{"Limits has 5 entries, must have 1 to 4", "Tokens is -2", "Tokens is -5"}
	ofPolicy := []string{
		"TTL is 1s, must be at least 2s, two targets", "MinBatch is -3",
		"Overcommit is -1", "Weight is -6", "ColdStart is 7", "Fallback is -1",
	}
	good := newWorld(t)
	refused(good, bad, lease.ErrInvalidLimit, ofLimits...)
	refused(good, bad, lease.ErrInvalidPolicy, ofPolicy...)
	refused(good, bad, hybrid.ErrInvalidConfig, "KeysMax is -7", "Version is -8",
		"CallTimeout is -9ns", "Scope is 7", "ScopeProcess (1)")
	refused(good, by(hybrid.Policy{MinBatch: -10}, perSecond(1, 0)), lease.ErrInvalidPolicy, "MinBatch is -10")
	refused(good, hybrid.Config{}, hybrid.ErrInvalidConfig, "")
	refused(good, hybrid.Config{Clock: (*handClock)(nil)}, hybrid.ErrInvalidConfig,
		"Clock is a nil *hybrid_test.handClock")
	refused(good, of(make([]hybrid.Limit, 5)...), hybrid.ErrInvalidConfig, "")
	for _, store := range []lease.Store{nil, (*redisbucket.Store)(nil)} {
		refused(store, bad, hybrid.ErrInvalidConfig, append(append(ofLimits, ofPolicy...), "store is nil")...)
		refused(store, of(perSecond(1, 0)), hybrid.ErrInvalidConfig, "store is nil")
	}
}

// An invalid request fails with an error from Take and WaitN, and is false from the other methods. It
// counts as invalid and not as denied, and no listener hears of a negative n.
func TestInvalidRequests(t *testing.T) {
	bubble(t, func(t *world) {
		cfg, told := of(hybrid.PerSecond(10), hybrid.PerHour(5)), make(map[int64]int)
		cfg.Events.Denied = func(_ string, n int64) { told[n]++ }
		l := t.start(cfg)
		for _, c := range []struct {
			key  string
			n    int64
			want error
		}{
			{"", 1, hybrid.ErrInvalidKey},
			{"k", -1, hybrid.ErrInvalidN},
			{"k", math.MinInt64, hybrid.ErrInvalidN},
			{"k", 6, hybrid.ErrExceedsBurst}, // of the second limit
			{"k", math.MaxInt64, hybrid.ErrExceedsBurst},
		} {
			before := l.Stats().Invalid
			check(t, !l.AllowN(c.key, c.n) && !l.Key(c.key).AllowN(c.n), "%q, %d was admitted", c.key, c.n)
			r, err := l.Take(t.Context(), c.key, c.n)
			check(t, errors.Is(err, c.want) && !r.OK, "%q, %d: %+v, %v, want %v", c.key, c.n, r, err, c.want)
			isErr(t, l.Key(c.key).WaitN(t.Context(), c.n), c.want)
			if c.want != hybrid.ErrExceedsBurst {
				r, err = l.Key(c.key).TakeUpTo(t.Context(), c.n)
				check(t, errors.Is(err, c.want) && !r.OK && r.Taken == 0, "%q, %d: %+v, %v", c.key, c.n, r, err)
				before++
			}
			equal(t, l.Stats().Invalid-before, 4, "invalid")
			check(t, (told[c.n] == 0) == (c.n < 0), "the listener was told of %d %d times", c.n, told[c.n])
		}
		check(t, !l.Allow("") && !l.Key("").TryAllow() && !l.Key("").Allow() && !l.Key("").TryAllow(),
			"an empty key was admitted")
		// A refund of an unused key is dropped.
		before := l.Stats()
		l.Key("").Refund(1)
		l.Key("new").Refund(-1)
		l.Key("new").Refund(0)
		l.Key("new").Refund(5)
		after := l.Stats()
		check(t, after.Invalid == before.Invalid+2 && after.Keys == before.Keys, "%+v, before %+v", after, before)
		// Nothing of all this was taken, called for, or taken for demand.
		t.silent(time.Second)
		check(t, l.Stats().Calls == 0 && l.Stats().Denied == 0 && l.Stats().Admitted == 0, "%+v", l.Stats())
		told = make(map[int64]int)
		check(t, l.AllowN("k", 5) && !l.Allow("k"), "the burst is not what it was")
		check(t, told[1] == 1 && len(told) == 1, "the listener was told of %v", told)
	})
}

// database is a Config.LimitsFor that may be down, or hang.
type database struct {
	plan
	down, hangs atomic.Bool
	asked       atomic.Int64
}

var errDatabase = errors.New("no plans")

func (d *database) limits(ctx context.Context, key string) ([]hybrid.Limit, error) {
	d.asked.Add(1)
	if d.hangs.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if d.down.Load() {
		return nil, errDatabase
	}
	return d.of(key), nil
}

// An error of LimitsFor leaves the limits in force, also in a process that has never heard of them, and
// LimitsFor is asked again while the key is in use.
func TestFailedLimitsForLeavesTheLimitsInForce(t *testing.T) {
	bubble(t, func(t *world) {
		// Given a customer with 600 an hour, where others have 10,
		large := hybrid.PerHour(600)
		var db database
		db.set(large)
		cfg := hybrid.Config{Limits: limits(hybrid.PerHour(10)), LimitsFor: db.limits}
		told := 0
		cfg.Events.Misconfigured = func(string, error) { told++ }
		a := t.start(cfg)
		a.Allow("acme")
		// when the database is down, and a new process meets the customer and goes on for long,
		db.down.Store(true)
		b := t.start(cfg)
		use := func(d time.Duration) { used(d, func() { b.Allow("acme") }) }
		use(2 * takesOver)
		// then the limits stay, those of the process that knew them and those of the bucket,
		limitsAre(t, b, "acme", large)
		check(t, told > 0, "nothing was told")
		says(t, "Refresh", a.Refresh(t.Context(), "acme"), errDatabase)
		// a key without a bucket has Config.Limits,
		equal(t, drain(b, "new"), 10, "admitted of a new key")
		limitsAre(t, b, "new", hybrid.PerHour(10))
		// and the answer of the database counts when it is back.
		db.down.Store(false)
		asked := db.asked.Load()
		use(6*time.Second + takesOver)
		check(t, db.asked.Load() > asked, "LimitsFor was not asked again")
		used(takesOver, func() { b.Allow("new") })
		limitsAre(t, b, "new", large)
		use(time.Second) // the customer comes back into use
		asked = db.asked.Load()
		use(time.Minute)
		equal(t, db.asked.Load(), asked, "questions after an answer")
	})
}

// Without a bucket and without Config.Limits the error is that of the request. Allow waits for LimitsFor no
// longer than CallTimeout.
func TestFailedLimitsForIsTheErrorOfAKeyWithoutLimits(t *testing.T) {
	bubble(t, func(t *world) {
		var db database
		db.down.Store(true)
		l := t.start(hybrid.Config{LimitsFor: db.limits})
		_, err := l.Take(t.Context(), "k", 1)
		isErr(t, err, errDatabase)
		isErr(t, l.Wait(t.Context(), "k"), errDatabase)
		check(t, !l.Allow("k") && l.Stats().Keys == 0 && l.Stats().Misconfigured == 3, "%+v", l.Stats())
		db.hangs.Store(true)
		const timeout = lease.DefaultCallTimeout
		t.lasts(timeout, timeout, func() { check(t, !l.Allow("k"), "admitted") })
		t.lasts(time.Second, time.Second, func() {
			_, err := l.Take(within(t, time.Second), "k", 1)
			isErr(t, err, context.DeadlineExceeded)
		})
	})
}
