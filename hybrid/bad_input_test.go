package hybrid_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Every bad limit and policy is refused by New, by SetLimits and on the first use of a key, with
// its value and its bound, before anything is written.
func TestBadLimitsAndPoliciesAreNamedBeforeAnythingIsWritten(t *testing.T) {
	second := func(tokens, burst int64) hybrid.Limit {
		return hybrid.Limit{Tokens: tokens, Per: time.Second, Burst: burst}
	}
	for _, c := range []struct {
		name   string
		limits []hybrid.Limit
		says   string
	}{
		{"no limit", limits(), "0 limits, must be 1 to 4"},
		{"zero tokens", limits(second(0, 0)), "Tokens is 0"},
		{"negative tokens", limits(second(-5, 0)), "Tokens is -5"},
		{"zero per", limits(hybrid.Limit{Tokens: 1}), "Per is 0s"},
		{"negative per", limits(hybrid.Limit{Tokens: 1, Per: -time.Second}), "Per is -1s"},
		{"per below a microsecond", limits(hybrid.Limit{Tokens: 1, Per: 999}), "Per is 999ns"},
		{"negative burst", limits(second(1, -1)), "Burst is -1"},
		{"not exact", limits(hybrid.Limit{Tokens: 1e9 + 7, Per: 24 * time.Hour, Burst: 1 << 50}),
			"the nearest limit that can be held is"},
		{"too many", limits(second(1, 0), second(2, 0), second(3, 0), second(4, 0), second(5, 0)),
			"5 limits, must be 1 to 4"},
		{"the second of two", limits(second(1, 0), second(-1, 0)), "limit 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFaulty()
			refused := func(where string, err error) {
				t.Helper()
				check(t, errors.Is(err, hybrid.ErrInvalidConfig) && strings.Contains(err.Error(), c.says),
					"%s: %v, want ErrInvalidConfig with %q", where, err, c.says)
			}
			if len(c.limits) > 0 {
				_, err := hybrid.New(s, hybrid.Config{Limits: c.limits})
				refused("New", err)
				l := start(t, s, hybrid.Config{LimitsFor: func(string) []hybrid.Limit { return c.limits }})
				_, err = l.Take(t.Context(), "k", 1)
				refused("Take", err)
				refused("Wait", l.Wait(t.Context(), "k"))
				_, err = l.Peek(t.Context(), "k")
				refused("Peek", err)
				_, err = l.LimitsOf(t.Context(), "k")
				refused("LimitsOf", err)
				err = l.SetLimits(t.Context(), "other", hybrid.PerSecond(1))
				check(t, err == nil, "good limits were refused for LimitsFor's: %v", err)
				check(t, !l.Allow("k"), "Allow is true")
			}
			l := start(t, s, of(hybrid.PerSecond(1)))
			refused("SetLimits", l.SetLimits(t.Context(), "k", c.limits...))
			_, err := l.TrySetLimits(t.Context(), "k", c.limits...)
			refused("TrySetLimits", err)
			_, calls := s.counts()
			check(t, calls == 0 && !s.state(t, "k").Exists, "something was written")
		})
	}
	_, err := hybrid.New(newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(1)), Policy: hybrid.Policy{
		Target: time.Second, TTL: time.Second, MinBatch: 3, MaxBatch: 2,
		Overcommit: -1, Weight: -1, ColdStart: 7, Fallback: -1,
	}})
	for _, part := range []string{
		"TTL is 1s, must be at least 2*Target (2s)", "MinBatch is 3, must be at most MaxBatch (2)",
		"Overcommit is -1", "Weight is -1", "ColdStart is 7", "Fallback is -1",
	} {
		check(t, errors.Is(err, lease.ErrInvalidPolicy) && strings.Contains(err.Error(), part),
			"%q is missing in: %v", part, err)
	}
}

// New says everything that is wrong, at once.
func TestNewNamesEveryViolation(t *testing.T) {
	second := func(tokens int64) hybrid.Limit { return hybrid.Limit{Tokens: tokens, Per: time.Second} }
	bad := hybrid.Config{
		Limits:  limits(second(1), second(-2), second(3), second(4), second(-5)),
		KeysMax: -7, Version: -8, CallTimeout: -9,
		Policy: hybrid.Policy{Weight: -6, MinBatch: -10},
	}
	says := []string{
		"5 limits, must be 1 to 4", "Tokens is -2", "Tokens is -5", "Weight is -6",
		"KeysMax is -7", "Version is -8", "CallTimeout is -9ns", "MinBatch is -10",
	}
	refused := func(store lease.Store, cfg hybrid.Config, want error, says ...string) {
		t.Helper()
		_, err := hybrid.New(store, cfg)
		isErr(t, err, want)
		for _, part := range says {
			check(t, strings.Contains(err.Error(), part), "%q is missing in: %v", part, err)
		}
	}
	for _, store := range []lease.Store{nil, (*redisbucket.Store)(nil), (*lease.MemoryStore)(nil)} {
		refused(store, bad, hybrid.ErrInvalidConfig, append(says, "store is nil")...)
		refused(store, of(second(1)), hybrid.ErrInvalidConfig, "store is nil")
	}
	refused(newFaulty(), bad, hybrid.ErrInvalidConfig, says...)
	refused(newFaulty(), bad, lease.ErrInvalidPolicy)
	refused(newFaulty(), bad, lease.ErrInvalidLimit)
	refused(newFaulty(), hybrid.Config{}, hybrid.ErrInvalidConfig)
	refused(newFaulty(), hybrid.Config{Limits: make([]hybrid.Limit, 5)}, hybrid.ErrInvalidConfig)
}

// A key that has no limits is a mistake of the configuration, and no outage.
func TestAKeyWithoutLimitsIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{LimitsFor: func(string) []hybrid.Limit { return nil }})
		_, take := l.Take(t.Context(), "k", 1)
		_, peek := l.Peek(t.Context(), "k")
		_, of := l.LimitsOf(t.Context(), "k")
		wait := l.Wait(t.Context(), "k")
		for verb, err := range map[string]error{"Take": take, "Wait": wait, "Peek": peek, "LimitsOf": of} {
			check(t, errors.Is(err, hybrid.ErrInvalidConfig) &&
				!errors.Is(err, hybrid.ErrUnavailable) && strings.Contains(err.Error(), "LimitsFor"),
				"%s: %v", verb, err)
		}
		_, calls := s.counts()
		check(t, calls == 0 && !l.Allow("k") && l.Stats().Keys == 0, "%d calls, %+v", calls, l.Stats())
	})
}

// No tokens cost nothing and create nothing, and the answer says what is known of the key, by
// either way to ask.
func TestTakingNothingSaysWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerHour(10)
		l := start(t, s, of(limit))
		ask := func(want hybrid.Result) {
			t.Helper()
			k := l.Key("k")
			for verb, take := range map[string]func() (hybrid.Result, error){
				"Limiter": func() (hybrid.Result, error) { return l.Take(t.Context(), "k", 0) },
				"Key":     func() (hybrid.Result, error) { return k.Take(t.Context(), 0) },
			} {
				r, err := take()
				check(t, err == nil && r == want, "%s.Take: %+v, %v, want %+v", verb, r, err, want)
			}
		}
		// Of a key that nobody has used nothing is known, and nothing is made;
		ask(hybrid.Result{OK: true})
		_, calls := s.counts()
		check(t, calls == 0 && l.Stats().Keys == 0, "%d calls, %+v", calls, l.Stats())
		// of one in use, how much is left.
		l.AllowN("k", 4)
		before, _ := s.counts()
		ask(hybrid.Result{OK: true, Limit: limit, Remaining: 6, ResetAfter: 24 * time.Minute})
		after, _ := s.counts()
		check(t, after == before, "it made a call")
	})
}

// Any bytes but none at all are a key, a key is a key of its own whatever it looks like, and a log
// stays one line.
func TestAnyBytesAreAKeyAndQuotedInLogs(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		keys := []string{"\x00", "a\r\nERROR forged", "\xff\xfe", "{", "}", "{}", "{a}b", "{a}c", "%7D", " ",
			strings.Repeat("x", 10_000), strings.Repeat("x", 10_001)}
		var logged bytes.Buffer
		l := start(t, s, logging(&logged, denying, hybrid.PerHour(2)))
		for _, key := range keys {
			check(t, l.Allow(key) && l.Key(key).Allow() && !l.Allow(key),
				"%.20q does not have a burst of its own", key)
		}
		time.Sleep(2 * ttl)
		s.every(away)
		for _, key := range keys {
			l.Allow(key)
		}
		time.Sleep(time.Second)
		synctest.Wait() // for the log
		for line := range strings.Lines(logged.String()) {
			check(t, strings.HasPrefix(line, "time=") &&
				!strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x00\r\n") && utf8.ValidString(line),
				"a key broke out of the log: %q", line)
		}
		check(t, strings.Contains(logged.String(), "key="), "no key is in the log: %s", logged.String())
	})
}

// A flood of new keys finds no memory and does not deny the keys that are in use.
func TestAFloodOfKeysDeniesNoKeyInUse(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), KeysMax: 100})
		for i := range 10_000 / testkit.Slowdown {
			for k := range 5 {
				check(t, l.Allow(fmt.Sprint("used ", k)), "denied within the limit")
			}
			l.TryAllow(fmt.Sprint("flood ", i))
			got := l.Stats().Keys
			must(t, got <= 100, "%d keys in a table of 100", got)
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A listener is told of what was denied, and a negative n is no denial; a table that is full is
// one, and no fault of the request's.
func TestWhatIsCountedAsWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int64
		l := start(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerHour(10)), KeysMax: 2, Events: hybrid.Events{
			Denied: func(_ string, n int64) { told = append(told, n) },
		}, Policy: hybrid.Policy{MinBatch: 5}})
		check(t, !l.AllowN("k", -3), "-3 were admitted")
		_, err := l.Take(t.Context(), "k", -4)
		isErr(t, err, hybrid.ErrInvalidN)
		s := l.Stats()
		check(t, len(told) == 0 && s.Invalid == 2 && s.Denied == 0, "told of %d, %+v", told, s)
		l.Allow("k")
		l.Allow("k2")
		_, err = l.Take(t.Context(), "k3", 4)
		isErr(t, err, hybrid.ErrUnavailable)
		s = l.Stats()
		check(t, s.Invalid == 2 && s.Denied == 4 && s.Crowded == 4 && len(told) == 1 && told[0] == 4,
			"told of %d, %+v", told, s)
	})
}
