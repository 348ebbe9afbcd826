package hybrid_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// named is a configuration with a name.
func named(name string, l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Name: name, Limits: l} }

// oddKeys are keys that look like what a name, a hash or the store's own makes of another.
func oddKeys() []string {
	hash, long := lease.HashKey("x"), strings.Repeat("y", lease.KeyMax)
	keys := []string{
		"17", "@", "@:", "@@", ":", "@login:17", "@:17", "@:@login:17",
		"@login:", "login:17", "@api:17", "%40login:17",
		"\x00", "\xff\xfe", "{", "}", "{login}", "@login:}", "@login:{17}", "@login:%h:", " ", "a\r\nb",
		strings.Repeat("}", 100),
		hash, lease.HashKey(hash), "@login:" + hash, "@:" + hash,
		long, long + "y", "@login:" + long, "@:" + long, lease.HashKey(long), lease.HashKey("@login:" + long),
		lease.HashKey("@:@login:" + long), "@" + long[1:], "@login:" + lease.HashKey(long),
	}
	for n := lease.KeyMax - 70; n < lease.KeyMax; n++ { // with some name they become too long
		keys = append(keys, long[:n])
	}
	return keys
}

// Two Limiters on one Store share a key's bucket if they have the same name, and only then,
// whatever bytes the key has. Their questions and changes are about the bucket of their requests.
func TestANameKeepsKeysApart(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		limit := hybrid.PerHour(2)
		names := []string{"", "login", "api", "l", strings.Repeat("n", 64)}
		limiters := func() (ls []*hybrid.Limiter) {
			for _, name := range names {
				ls = append(ls, t.start(named(name, limit)))
			}
			return ls
		}
		first, second := limiters(), limiters()
		for i, name := range names {
			for _, key := range oddKeys() {
				ok := first[i].Allow(key) && second[i].Key(key).Allow() && !first[i].Allow(key)
				must(t, ok, "%.40q of %q has not 2 tokens of its own", key, name)
				for _, l := range []*hybrid.Limiter{first[i], second[i]} {
					r, err := l.Peek(t.Context(), key)
					must(t, err == nil && r.Remaining == 0, "%.40q of %q: %+v, %v", key, name, r, err)
				}
			}
		}
		noErr(t, first[1].SetLimits(t.Context(), "17", hybrid.PerHour(7)))
		noErr(t, first[1].Reset(t.Context(), "17"))
		for i := range names {
			want := limit
			if i == 1 {
				want = hybrid.PerHour(7)
			}
			limitsAre(t, second[i], "17", want)
		}
		equal(t, drain(second[1], "17"), 7, "admitted after SetLimits and Reset")
	})
}

func TestALimiterSaysItsName(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Name: "api", Limits: limits(hourly), Priorities: []float64{0.5}})
		equal(t, l.Name(), "api", "is its name")
		equal(t, l.Key("k").Class(1).Limiter().Name(), "api", "is the name of a class")
		keys := l.Join(l.Key("b"), l.Key("a"), l.Key("b")).Keys()
		must(t, len(keys) == 2, "%d keys", len(keys))
		check(t, keys[0].Name() == "a" && keys[1].Name() == "b", "%v and %v", keys[0].Name(), keys[1].Name())
	})
}

// Every name and every key of a few of the characters that names and marks are made of have a
// stored key of their own.
func TestStoredKeysOfAllShortKeysDiffer(t *testing.T) {
	bubble(t, func(t *world) {
		keys := []string{""}
		for i := 0; len(keys) < 1+5+25+125+625; i++ { // all of up to four characters
			for _, c := range "@:a%}" {
				keys = append(keys, keys[i]+string(c))
			}
		}
		of := make(map[string]string) // which name and key a stored key belongs to
		for _, name := range []string{"", "a", "aa", "-"} {
			l := t.start(named(name, hourly))
			for _, key := range keys[1:] {
				l.Allow(key)
				var stored string
				t.locked(func() { stored = t.calls[len(t.calls)-1].key })
				who := fmt.Sprintf("%q of %q", key, name)
				must(t, of[stored] == "", "%q is of %s and of %s", stored, of[stored], who)
				of[stored] = who
			}
		}
		check(t, len(of) == 4*780, "%d stored keys", len(of))
	})
}

// Two Limiters of one Store, Name and Version that contradict each other would share buckets in
// which the limits of one of them win, which one being chance.
func TestNewRefusesALimiterThatContradictsAnother(t *testing.T) {
	store, other := memory.New(nil), memory.New(nil)
	opens := func(store lease.Store, cfg hybrid.Config) *hybrid.Limiter {
		t.Helper()
		l, err := hybrid.New(store, cfg)
		must(t, err == nil, "%v", err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	refused := func(cfg hybrid.Config, parts ...string) {
		t.Helper()
		_, err := hybrid.New(store, cfg)
		says(t, "New", err, hybrid.ErrInvalidConfig, append(parts, "Name")...)
	}
	burst := hybrid.PerSecond(100).WithBurst(1000)
	opens(store, of(burst))
	login := opens(store, named("login", burst))

	refused(of(hybrid.PerSecond(5)), "[100/s burst 1000]", "[5/s]")
	refused(of(burst, hybrid.PerHour(1)))
	refused(hybrid.Config{LimitsFor: func(string) []hybrid.Limit { return nil }})
	refused(named("login", hybrid.PerSecond(5)), `"login"`)
	refused(by(hybrid.Policy{Overcommit: 7}, burst), "Overcommit 0", "7")
	refused(by(hybrid.Policy{StartEmpty: true}, burst))
	refused(by(hybrid.Policy{Target: time.Second}, burst))
	refused(alone(hybrid.PerSecond(5))) // what is set for a key holds for both
	opens(store, named("quota", hybrid.Calendar(60, time.Minute, 0)))
	refused(named("quota", hybrid.Sliding(60, time.Minute)))
	refused(named("quota", hybrid.PerMinute(60)))
	refused(named("quota", hybrid.Calendar(60, time.Minute, time.Second)))

	// The same limits, another bucket, or a version that decides: none of these contradicts another
	// process.
	opens(store, hybrid.Config{Limits: limits(burst), CallTimeout: time.Second, Policy: denying})
	opens(store, named("api", hybrid.PerSecond(5)))
	opens(store, named("api", hybrid.PerSecond(5).WithBurst(5)))
	opens(store, hybrid.Config{Limits: limits(hybrid.PerSecond(5)), Version: 1})
	opens(other, of(hybrid.PerSecond(5)))
	opens(incomparable{store: store}, of(hybrid.PerSecond(5)))
	opens(store, named("quota", hybrid.Calendar(60, time.Minute, 0).WithBurst(60)))

	// A Limiter that has been closed counts no more, and one of two that are alike is not both.
	again := opens(store, named("login", burst))
	noErr(t, login.Shutdown(t.Context()))
	noErr(t, login.Close())
	refused(named("login", hybrid.PerSecond(5)))
	noErr(t, again.Close())
	opens(store, named("login", hybrid.PerSecond(5)))
}

// incomparable is a Store whose values Go cannot compare.
type incomparable struct {
	store
	_ []int
}

type store = lease.Store

func TestANameIsOfPlainCharacters(t *testing.T) {
	for _, name := range []string{"a:b", "@", "{", "}", " ", "ä", "a\n", strings.Repeat("x", 65)} {
		_, err := hybrid.New(memory.New(nil), named(name, hybrid.PerSecond(1)))
		says(t, name, err, hybrid.ErrInvalidConfig, "Name is ", "must be at most 64")
	}
	l, err := hybrid.New(memory.New(nil), named("aZ09_.-", hybrid.PerSecond(1)))
	noErr(t, err)
	noErr(t, l.Close())
}

// Without a Logger an operator still sees what he should: in the default one, also where that is
// set after New. Each line names the Limiter.
func TestTheDefaultLoggerIsUsed(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		away := &network{inner: memory.New(nil)}
		l, err := hybrid.New(away, named("login", hybrid.PerSecond(1000)))
		noErr(t, err)
		defer l.Close()
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		away.every(verdict{err: lease.ErrUnavailable})
		l.Allow("k")
		time.Sleep(ttl)
		synctest.Wait()
		for _, part := range []string{"lease calls fail", "limiter=login", "level=WARN"} {
			check(t, strings.Contains(out.String(), part), "%q is missing in %q", part, out.String())
		}
	})
}
