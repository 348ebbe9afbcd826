package hybrid_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// At KeysMax the longest idle key makes room, one whose bucket is known to be empty included; keys
// in use stay, and a new key is denied while all are.
func TestKeysMaxEvictsTheLongestIdle(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := by(hybrid.Policy{TTL: time.Minute}, hybrid.PerHour(60).WithBurst(1))
		cfg.KeysMax = 3
		cfg.LimitsFor = plans(func(key string) []hybrid.Limit {
			if key == "a" {
				return limits(hybrid.PerHour(20).WithBurst(1)) // it would leave last by itself
			}
			return nil
		})
		l := t.start(cfg)
		// In a full table a and b are idle, a for longer; both are denied for a minute at least.
		for _, key := range []string{"a", "b", "c"} {
			must(t, l.Allow(key) && !l.Allow(key), "the burst is 1")
			time.Sleep(time.Second)
		}
		must(t, l.Allow("d"), "a new key found no room")
		equal(t, l.Stats().Keys, 3, "keys")
		before := t.callsFor("b")
		check(t, !l.Allow("b") && t.callsFor("b") == before, "b was evicted before a")
		before = t.callsFor("a")
		check(t, !l.Allow("a") && t.callsFor("a") != before, "a was not evicted, or its bucket forgot")
	})
	bubble(t, func(t *world) {
		// The keys that fill the table hold tokens.
		told := int64(0)
		cfg := by(hybrid.Policy{MinBatch: 2}, hybrid.PerSecond(1000))
		cfg.KeysMax = 3
		cfg.Events.Denied = func(_ string, n int64) { told += n }
		l := t.start(cfg)
		for i := range 3 {
			must(t, l.Allow(fmt.Sprint(i)), "denied")
		}
		_, err := l.Take(t.Context(), "new", 4)
		isErr(t, err, hybrid.ErrTableFull)
		st := l.Stats()
		check(t, st.Denied == 4 && st.TableFull == 4 && st.Invalid == 0 && told == 4, "told of %d, %+v", told, st)
		for i := range 3 {
			check(t, l.Allow(fmt.Sprint(i)), "a key in use was denied because the table is full")
		}
		time.Sleep(time.Second)
		check(t, l.Allow("new"), "denied")
	})
}

// Many more keys than fit: none is denied, nor are those in use all the time, and the counts of
// those that left stay. Keys for which no call is made, as too much was asked for, leave too.
func TestAFloodOfKeysDeniesNobody(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := of(hybrid.PerHour(1).WithBurst(2))
		cfg.KeysMax = 50
		cfg.LimitsFor = plans(func(key string) []hybrid.Limit {
			if strings.HasPrefix(key, "used") {
				return limits(hybrid.PerSecond(1000))
			}
			return nil
		})
		l := t.start(cfg)
		for i := range testkit.ShortOrLong(t, 1_000, 10_000/testkit.Slowdown, "keys") {
			for k := range 5 {
				check(t, l.Allow(fmt.Sprint("used ", k)), "denied within the limit")
			}
			must(t, l.AllowN(fmt.Sprint("flood ", i), 2), "key %d was denied", i)
			check(t, !l.AllowN(fmt.Sprint("over ", i), 3), "more than the burst was admitted")
			st := l.Stats()
			must(t, st.Keys <= 50 && st.Admitted == 7*int64(i+1), "%+v after %d keys", st, i+1)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Hour)
		check(t, l.Stats().Keys == 0, "%+v", l.Stats())
	})
}

// A handle goes on working when its entry was evicted while the bucket was known to be empty.
func TestAKeyRejoinsAfterEvictionInTheDeniedState(t *testing.T) {
	for name, verb := range map[string]func(*hybrid.Key) bool{
		"Allow":    (*hybrid.Key).Allow,
		"TryAllow": (*hybrid.Key).TryAllow,
		"Take":     func(k *hybrid.Key) bool { r, _ := k.Take(context.Background(), 1); return r.OK },
	} {
		bubbleOf(t, name, func(t *world) {
			l := t.start(hybrid.Config{Limits: limits(hybrid.Every(10 * time.Second)), KeysMax: 1})
			k := l.Key("a")
			must(t, k.Allow() && !k.Allow(), "the burst is 1")
			synctest.Wait()
			must(t, l.Allow("b"), "b found no room")
			time.Sleep(20 * time.Second)
			// TryAllow starts a call and is served by what that brings.
			yes := admits(2, 10*time.Millisecond, func() bool { return verb(k) })
			check(t, yes > 0, "denied for ever: %+v", l.Stats())
		})
	}
}

// Keys of any name and length are distinct, at rest and in use, and a Key follows its own through
// both. They leave once their buckets are full again and all leases have ended; a Key goes on.
func TestManyKeysComeAndRestAndComeBack(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerHour(3))
		name := func(i int) string { return fmt.Sprint(strings.Repeat("x", i%40), i) }
		n := testkit.ShortOrLong(t, 500, 5000/testkit.Slowdown, "keys")
		keys := make([]*hybrid.Key, n)
		for i := range n {
			keys[i] = l.Key(name(i))
			must(t, l.Allow(name(i)), "%d: denied", i)
		}
		time.Sleep(5 * time.Second)
		must(t, l.Stats().Keys == n && l.Stats().InUse == 0, "%+v", l.Stats())
		for i, k := range keys {
			must(t, k.Allow() && l.Allow(name(i)) && !k.Allow(), "%d: not three admitted in all", i)
		}
		check(t, l.Stats().Keys == n && l.Stats().Admitted == 3*int64(n), "%+v", l.Stats())
		time.Sleep(59 * time.Minute) // the time to fill is an hour
		equal(t, l.Stats().Keys, n, "keys")
		denied := l.Stats().Denied
		time.Sleep(time.Hour)
		st := l.Stats()
		check(t, st.Keys == 0 && st.Admitted == 3*int64(n) && st.Denied == denied, "%+v, denied before: %d", st, denied)
		equal(t, admits(20, 0, keys[0].Allow), 3, "admitted after the eviction")
	})
}

// A key at rest remembers its bucket.
func TestAKeyAtRestRemembersItsBucket(t *testing.T) {
	bubbleOf(t, "it notices the loss, and the new bucket starts empty", func(t *world) {
		limit := hybrid.PerHour(100)
		bound := newMeter(limit)
		l, other := t.rested(by(denying, limit)), t.start(by(denying, limit))
		must(t, other.AllowN("k", 99), "denied")
		bound.admit(100)
		t.loseAll()
		admits(100, 0, func() bool { return bound.admitIf(l.Allow("k")) })
		bound.check(t)
	})
	bubbleOf(t, "limits that were set come back with it, though the store has lost them", func(t *world) {
		l := t.process(hybrid.PerHour(100))
		want := hybrid.PerHour(7)
		noErr(t, l.SetLimits(t.Context(), "k", want))
		l.Allow("k")
		time.Sleep(2 * time.Second)
		must(t, l.Stats().InUse == 0, "%+v", l.Stats())
		t.loseAll()
		l.Allow("k")
		synctest.Wait()
		limitsAre(t, l, "k", want)
	})
	bubbleOf(t, "in an outage it has its part of what its bucket had left", func(t *world) {
		l := t.rested(of(hybrid.PerMinute(10)))
		t.every(away)
		admitted := drain(l, "k")
		check(t, admitted == 9, "%d admitted at once, the bucket had 9 of 10 left", admitted)
		// A key with a local share does not rest: it would forget what it has spent of it.
		t.setJudge(nil)
		l.Allow("k") // sends a probe
		time.Sleep(3 * time.Second)
		t.every(away)
		admitted += drain(l, "k")
		check(t, admitted <= 10,
			"%d admitted in two outages of a few seconds, the bucket had 9 and a token flows in 6 s", admitted)
	})
}

// expireIn lets d pass for the expiry of everything stored. Redis's own clock does not run faster
// for a test, so there every key's time to live is cut; one that would live for ever is an error.
func (t *world) expireIn(d time.Duration) {
	t.Helper()
	if t.virtual() {
		time.Sleep(d)
		return
	}
	for _, key := range t.redisKeys() {
		left, err := t.rdb.PTTL(t.Context(), key).Result()
		if err == nil && left > 0 {
			err = t.rdb.PExpire(t.Context(), key, left-d).Err() // deletes what has no time left
		}
		must(t, err == nil && left != -1, "%s lives %v, %v", key, left, err)
	}
}

// Redisson, testExpire and testExpire2: when a limiter has expired, no key of it is left. (It once
// left some for ever, redisson#4007.)
func TestPeerAnExpiredKeyLeavesNothingBehind(t *testing.T) {
	everywhere(t, func(t *world) {
		// Given keys that three processes have used in all ways,
		limit := hybrid.PerMinute(6000).WithBurst(500)
		for range 3 {
			l := t.process(limit)
			admits(300, 0, func() bool { return l.Allow("asked") })
			l.AllowN("refunded", 5)
			l.Key("refunded").Refund(5)
			noErr(t, l.Key("waited for").WaitN(t.Context(), 3))
			noErr(t, l.Reset(t.Context(), "asked"))
			noErr(t, l.SetLimits(t.Context(), "set", limit))
			l.Allow("set")
			noErr(t, l.Shutdown(t.Context()))
		}
		// Only limits set at run time outlive ten minutes.
		t.expireIn(10 * time.Minute)
		for _, key := range t.redisKeys() {
			check(t, strings.Contains(key, "{set}"), "after ten minutes there is %s", key)
		}
		check(t, t.remembers("set"), "limits that were set are forgotten after ten minutes")
		t.expireIn(31 * 24 * time.Hour)
		for _, key := range []string{"asked", "refunded", "waited for", "set"} {
			check(t, !t.remembers(key), "%q is remembered", key)
		}
		check(t, len(t.redisKeys()) == 0, "Redis has %v", t.redisKeys())
		// A later process finds a full bucket, like a first one.
		l := t.process(limit)
		check(t, l.AllowN("asked", 500), "a forgotten bucket is not full: %+v", l.Stats())
	})
}

// named is a configuration with a name.
func named(name string, l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Name: name, Limits: l} }

// oddKeys are keys that look like what a name, a hash or the store's own makes of another.
func oddKeys() []string {
	hash, long := keyhash.Of("x"), strings.Repeat("y", lease.KeyMax)
	keys := []string{
		"17", "@", "@:", "@@", ":", "@login:17", "@:17", "@:@login:17",
		"@login:", "login:17", "ogin17", "ogin:17", "@api:17", "%40login:17",
		"\x00", "\xff\xfe", "{", "}", "{login}", "@login:}", "@login:{17}", "@login:%h:", " ", "a\r\nb",
		strings.Repeat("}", 100),
		hash, keyhash.Of(hash), "@login:" + hash, "@:" + hash,
		long, long + "y", "@login:" + long, "@:" + long, keyhash.Of(long), keyhash.Of("@login:" + long),
		keyhash.Of("@:@login:" + long), "@" + long[1:], "@login:" + keyhash.Of(long),
	}
	for n := lease.KeyMax - 70; n < lease.KeyMax; n++ { // with some name they become too long
		keys = append(keys, long[:n])
	}
	return keys
}

// Two Limiters on one Store share a key's bucket if they have the same name, and only then,
// whatever bytes the key has. Their questions and changes are about the bucket of their requests.
func TestANameKeepsKeysApart(t *testing.T) {
	everywhere(t, func(t *world) {
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
		got := drain(second[1], "17") // in real time a denial may come before the last token
		check(t, got == 7 || !t.virtual() && got > 2 && got < 7, "%d admitted after SetLimits and Reset", got)
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
	refused(hybrid.Config{LimitsFor: plans(func(string) []hybrid.Limit { return nil })})
	refused(named("login", hybrid.PerSecond(5)), `"login"`)
	refused(by(hybrid.Policy{Overcommit: 7}, burst), "Overcommit 0", "7")
	refused(by(hybrid.Policy{StartEmpty: true}, burst))
	refused(by(hybrid.Policy{Target: time.Second}, burst))
	refused(alone(hybrid.PerSecond(5))) // what is set for a key holds for both
	opens(store, named("quota", hybrid.Calendar(60, time.Minute, 0)))
	refused(named("quota", hybrid.Sliding(60, time.Minute)))
	refused(named("quota", hybrid.PerMinute(60)))
	refused(named("quota", hybrid.Calendar(60, time.Minute, time.Second)))

	// The same limits, another bucket, or a version that decides: none of these contradicts another process.
	opens(store, hybrid.Config{Limits: limits(burst), CallTimeout: time.Second, Policy: denying})
	opens(store, named("api", hybrid.PerSecond(5)))
	opens(store, named("api", hybrid.PerSecond(5).WithBurst(5)))
	opens(store, hybrid.Config{Limits: limits(hybrid.PerSecond(5)), Version: 1})
	opens(other, of(hybrid.PerSecond(5)))
	opens(struct {
		lease.Store
		_ []int // so that Go cannot compare its values
	}{Store: store}, of(hybrid.PerSecond(5)))
	opens(store, named("quota", hybrid.Calendar(60, time.Minute, 0).WithBurst(60)))

	// A Limiter that has been closed counts no more, and one of two that are alike is not both.
	again := opens(store, named("login", burst))
	noErr(t, login.Shutdown(t.Context()))
	noErr(t, login.Close())
	refused(named("login", hybrid.PerSecond(5)))
	noErr(t, again.Close())
	opens(store, named("login", hybrid.PerSecond(5)))
}

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
		for _, part := range []string{"lease calls fail", "node=0", "level=WARN"} {
			check(t, strings.Contains(out.String(), part), "%q is missing in %q", part, out.String())
		}
	})
}

// onMiniredis is a client of a server of the test's own.
func onMiniredis(t *testing.T) *redis.Client {
	testkit.RequireMiniredis(t)
	return client(t, miniredis.RunT(t).Addr())
}

// opensRedis is a Limiter by one call.
func opensRedis(t *testing.T, rdb *redis.Client, name string, limit hybrid.Limit) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.Redis(rdb, name, limit)
	must(t, err == nil, "%v", err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestRedisIsALimiterInOneCall(t *testing.T) {
	testkit.RequireMiniredis(t)
	addr := miniredis.RunT(t).Addr()
	synctest.Test(t, func(t *testing.T) { // where a slow machine is no outage
		// Given two limiters of one client, as two parts of a program make them,
		rdb := client(t, addr)
		one, other := opensRedis(t, rdb, "", hourly), opensRedis(t, rdb, "", hourly)
		// then they share the buckets,
		must(t, one.AllowN("k", 6) && !other.AllowN("k", 6), "6 of 10, twice")
		// also when one of them is closed and made again.
		noErr(t, other.Close())
		must(t, !opensRedis(t, rdb, "", hourly).AllowN("k", 6), "6 of 4")
		// One of another name has buckets of its own, and may have other limits.
		api := opensRedis(t, rdb, "api", hybrid.PerHour(20))
		must(t, api.AllowN("k", 20) && !api.Allow("k"), "20 of 20, and one more")
	})
}

func TestMemoryIsALimiterInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given two of one name,
		one, err := hybrid.Memory("api", hourly)
		noErr(t, err)
		defer one.Close()
		other, err := hybrid.Memory("api", hybrid.PerHour(5))
		noErr(t, err)
		defer other.Close()
		// then each has its own buckets.
		must(t, one.AllowN("k", 10) && !one.Allow("k") && other.AllowN("k", 5) && !other.Allow("k"), "one bucket")
		_, err = hybrid.Memory("no spaces")
		isErr(t, err, hybrid.ErrInvalidConfig)
	})
}

// Two limiters of one program with the same keys would share buckets, in which only the limits of
// one of them can hold.
func TestRedisRefusesASecondLimiterWithOtherLimits(t *testing.T) {
	rdb := onMiniredis(t)
	login := opensRedis(t, rdb, "", hybrid.PerMinute(5))
	_, err := hybrid.Redis(rdb, "", hybrid.PerSecond(100))
	isErr(t, err, hybrid.ErrInvalidConfig)
	// So is one with a Store of its own, as that has the same buckets, unless it has another name or prefix.
	for _, c := range []struct {
		prefix, name string
		want         error
	}{
		{"", "", hybrid.ErrInvalidConfig}, {"yuzhi:", "", hybrid.ErrInvalidConfig},
		{"", "api", nil}, {"api:", "", nil},
	} {
		store, err := redisbucket.New(rdb, redisbucket.Config{Prefix: c.prefix})
		noErr(t, err)
		l, err := hybrid.New(store, hybrid.Config{Name: c.name, Limits: limits(hybrid.PerSecond(100))})
		check(t, errors.Is(err, c.want), "prefix %q, name %q: %v", c.prefix, c.name, err)
		if err == nil {
			l.Close()
		}
	}
	// Another client may be another server, and a closed Limiter contradicts no other.
	opensRedis(t, onMiniredis(t), "", hybrid.PerSecond(100))
	login.Close()
	opensRedis(t, rdb, "", hybrid.PerSecond(100))
}

func TestRedisNamesWhatIsMissing(t *testing.T) {
	_, err := hybrid.Redis((*redis.Client)(nil), "", hourly)
	isErr(t, err, hybrid.ErrInvalidConfig)
	_, err = hybrid.Redis(onMiniredis(t), "")
	isErr(t, err, hybrid.ErrInvalidConfig)
}

// A process without requests wakes up a few times until its keys are forgotten, and then never.
func TestAProcessWithoutRequestsSleeps(t *testing.T) {
	bubble(t, func(t *world) {
		c := &watchedClock{}
		cfg := of(hybrid.PerSecond(1000))
		cfg.Clock = c
		l := t.start(cfg)
		for _, key := range []string{"a", "b", "c"} {
			must(t, l.Allow(key), "denied")
		}
		time.Sleep(time.Minute)
		must(t, l.Stats().InUse == 0, "%+v", l.Stats())
		fired := c.fired.Load()
		time.Sleep(24 * time.Hour)
		equal(t, c.fired.Load(), fired, "timers fired")
	})
}
