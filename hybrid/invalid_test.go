package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

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
		"negative per":            {limits(hybrid.Limit{Tokens: 1, Per: -time.Second}), "Per is -1s"},
		"per below a microsecond": {limits(hybrid.Limit{Tokens: 1, Per: 999}), "Per is 999ns"},
		"negative burst":          {limits(perSecond(1, -1)), "Burst is -1"},
		"not exact": {limits(hybrid.Limit{Tokens: 1e9 + 7, Per: 24 * time.Hour, Burst: 1 << 50}),
			"the nearest limit that can be held is"},
		"too many": {limits(perSecond(1, 0), perSecond(2, 0), perSecond(3, 0), perSecond(4, 0), perSecond(5, 0)),
			"5 limits, must be 1 to 4"},
		"the second of two": {limits(perSecond(1, 0), perSecond(-1, 0)), "limit 1"},
		"none":              {nil, "0 limits, must be 1 to 4"},
	} {
		bubbleOf(t, name, func(t *world) {
			refused := func(where string, err error, parts ...string) {
				t.Helper()
				says(t, where, err, hybrid.ErrInvalidConfig, append(parts, c.part)...)
				check(t, !errors.Is(err, hybrid.ErrUnavailable), "%v", err)
				check(t, errors.Is(err, lease.ErrInvalidLimit) != strings.Contains(c.part, "1 to 4"),
					"%s: %v", where, err)
			}
			l := t.process(hybrid.PerSecond(1))
			refused("SetLimits", l.SetLimits(t.Context(), "k", c.limits...))
			_, err := l.TrySetLimits(t.Context(), "k", c.limits...)
			refused("TrySetLimits", err)
			if c.limits != nil {
				_, err = hybrid.New(t, of(c.limits...))
				refused("New", err)
			}
			l = t.start(hybrid.Config{LimitsFor: func(string) []hybrid.Limit { return c.limits }})
			_, err = l.Take(t.Context(), "k", 1)
			refused("Take", err, "LimitsFor")
			refused("Wait", l.Wait(t.Context(), "k"), "LimitsFor")
			_, err = l.Peek(t.Context(), "k")
			refused("Peek", err, "LimitsFor")
			_, err = l.LimitsOf(t.Context(), "k")
			refused("LimitsOf", err, "LimitsFor")
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
			Target: time.Second, TTL: time.Second, MinBatch: 3, MaxBatch: 2,
			Overcommit: -1, Weight: -6, ColdStart: 7, Fallback: -1,
		},
	}
	ofLimits := []string{"5 limits, must be 1 to 4", "Tokens is -2", "Tokens is -5"}
	ofPolicy := []string{
		"TTL is 1s, must be at least 2*Target (2s)", "MinBatch is 3, must be at most MaxBatch (2)",
		"Overcommit is -1", "Weight is -6", "ColdStart is 7", "Fallback is -1",
	}
	good := newWorld(t)
	refused(good, bad, lease.ErrInvalidLimit, ofLimits...)
	refused(good, bad, lease.ErrInvalidPolicy, ofPolicy...)
	refused(good, bad, hybrid.ErrInvalidConfig, "KeysMax is -7", "Version is -8", "CallTimeout is -9ns",
		"Scope is 7", "ScopeProcess (1)")
	refused(good, by(hybrid.Policy{MinBatch: -10}, perSecond(1, 0)), lease.ErrInvalidPolicy, "MinBatch is -10")
	refused(good, hybrid.Config{}, hybrid.ErrInvalidConfig, "")
	refused(good, hybrid.Config{Clock: (*clock.Manual)(nil)}, hybrid.ErrInvalidConfig,
		"Clock is a nil *clock.Manual")
	refused(good, of(make([]hybrid.Limit, 5)...), hybrid.ErrInvalidConfig, "")
	for _, store := range []lease.Store{nil, (*redisbucket.Store)(nil), storeFunc(nil)} {
		refused(store, bad, hybrid.ErrInvalidConfig, append(append(ofLimits, ofPolicy...), "store is nil")...)
		refused(store, of(perSecond(1, 0)), hybrid.ErrInvalidConfig, "store is nil")
	}
}

// storeFunc is a Store whose nil is not that of a pointer. New refuses it unused.
type storeFunc func()

func (storeFunc) Exchange(context.Context, []*lease.Call, func([]*lease.Call)) {}

func (storeFunc) Configure(context.Context, string, lease.Op, lease.Config) (s lease.State, err error) {
	return s, err
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
			isErr(t, l.WaitN(t.Context(), c.key, c.n), c.want)
			equal(t, l.Stats().Invalid-before, 4, "invalid")
			check(t, (told[c.n] == 0) == (c.n < 0), "the listener was told of %d %d times", c.n, told[c.n])
		}
		check(t, !l.Allow("") && !l.TryAllow("") && !l.Key("").Allow() && !l.Key("").TryAllow(),
			"an empty key was admitted")
		// A refund of an unused key is dropped.
		before := l.Stats()
		l.Refund("", 1)
		l.Refund("new", -1)
		l.Refund("new", 0)
		l.Refund("new", 5)
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
