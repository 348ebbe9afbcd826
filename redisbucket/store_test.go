package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// onEach runs f against miniredis and, where it is installed, a real server.
func onEach(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("miniredis", func(t *testing.T) {
		testkit.RequireMiniredis(t)
		f(t, newStore(t, miniredis.RunT(t).Addr()))
	})
	t.Run("redis", func(t *testing.T) { f(t, newStore(t, redistest.Start(t).Addr)) })
}

func newStore(t testing.TB, addr string) *Store {
	t.Helper()
	return storeOver(t, redis.NewClient(patient(addr)))
}

// patience is the timeout of clients. go-redis's own, of some seconds, fails calls on a machine
// that stalls.
const patience = time.Minute

// patient returns the options of a client of the server at addr.
func patient(addr string) *redis.Options {
	return &redis.Options{Addr: addr, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		PoolTimeout: patience}
}

// storeOver returns a store over rdb, which is closed with the test.
func storeOver(t testing.TB, rdb redis.UniversalClient) *Store {
	t.Helper()
	t.Cleanup(func() { rdb.Close() })
	return storeOn(t, rdb)
}

// storeOn returns a store over an rdb that outlives the test.
func storeOn(t testing.TB, rdb redis.UniversalClient) *Store {
	t.Helper()
	s, err := New(rdb, Config{})
	testkit.NoErr(t, err)
	return s
}

// request returns a plausible call of holder "h". Its long TTL keeps the keys in Redis while a
// machine stalls.
func request(seq int64) lease.Request {
	return lease.Request{Holder: "h", Seq: seq, Want: 10, Weight: 1, Config: lease.Config{
		Limits: []lease.Limit{lease.PerSecond(100)}, TTL: time.Minute, Target: 100 * time.Millisecond,
	}}
}

// briefTTL is the TTL of most limits.
const briefTTL = 400 * time.Millisecond

// exchange makes one call.
func exchange(s *Store, key string, r lease.Request) (lease.Grant, error) {
	c := &lease.Call{Key: key, Request: r}
	s.Exchange(context.Background(), []*lease.Call{c}, func([]*lease.Call) {})
	return c.Grant, c.Err
}

// granted makes one call that must succeed.
func granted(t testing.TB, s *Store, key string, r lease.Request) lease.Grant {
	t.Helper()
	g, err := exchange(s, key, r)
	testkit.NoErr(t, err)
	return g
}

// checkError fails the test unless errors.Is(err, e) is want[e] for each e.
func checkError(t *testing.T, what string, err error, want map[error]bool) {
	t.Helper()
	for is, want := range want {
		testkit.Check(t, errors.Is(err, is) == want, "%s: %v, is %v: want %v", what, err, is, want)
	}
}

// contents returns everything in the database except the remaining time of keys.
func contents(s *Store) string {
	ctx := context.Background()
	var b strings.Builder
	keys := s.rdb.Keys(ctx, "*").Val()
	for _, k := range keys {
		fmt.Fprintf(&b, "%q: %s %q %q %v\n", k, s.rdb.Type(ctx, k).Val(), s.rdb.Get(ctx, k).Val(),
			s.rdb.LRange(ctx, k, 0, -1).Val(), s.rdb.HGetAll(ctx, k).Val())
	}
	return fmt.Sprint(len(keys), b.String())
}

// textOf returns c as the scripts store it.
func textOf(t testing.TB, c lease.Config) string {
	t.Helper()
	text, err := appendConfig(nil, &c)
	testkit.NoErr(t, err)
	return string(text)
}

func TestNewReportsEveryViolation(t *testing.T) {
	for _, rdb := range []redis.UniversalClient{
		nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil),
	} {
		_, err := New(rdb, Config{Prefix: "a{b", InFlight: -1})
		testkit.Must(t, errors.Is(err, ErrInvalidConfig), "%v", err)
		for _, what := range []string{"client is nil", `"a{b"`, "-1"} {
			testkit.Check(t, strings.Contains(err.Error(), what), "%T: %q is not in %v", rdb, what, err)
		}
	}
}

func TestARingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}})
	defer ring.Close()
	// The error names the cost, and all other violations.
	_, err := New(ring, Config{InFlight: -1})
	testkit.Check(t, errors.Is(err, ErrInvalidConfig) && strings.Contains(err.Error(), "a full burst") &&
		strings.Contains(err.Error(), "InFlight"), "%v", err)
}

func TestTheClockIsTheServers(t *testing.T) {
	testkit.RequireMiniredis(t)
	// given a server whose clock shows 2001
	server := miniredis.RunT(t)
	server.SetTime(time.Unix(1_000_000_000, 0))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	at := granted(t, storeOver(t, rdb), "k", request(1)).ServerTime
	testkit.Check(t, at == 1_000_000_000_000_000, "server time is %d", at)
}

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store) {
		hybridtest.CheckStore(t, func(t *testing.T) lease.Store {
			testkit.NoErr(t, s.rdb.FlushAll(t.Context()).Err())
			return s
		})
	})
}

func TestKeysExpire(t *testing.T) {
	const month = 30 * 24 * time.Hour
	onEach(t, func(t *testing.T, s *Store) {
		ctx, bucket := context.Background(), s.bucketKey("k")
		for name, c := range map[string]struct {
			change func(*lease.Config)
			least  time.Duration
		}{
			"full after a second": {func(*lease.Config) {}, 1800 * time.Millisecond},
			"full after a month": {func(c *lease.Config) { c.Limits = []lease.Limit{lease.Every(month)} },
				month + 800*time.Millisecond},
			"empty buckets are kept": {func(c *lease.Config) { c.StartEmpty = true }, month},
		} {
			s.rdb.Del(ctx, bucket, recordKey(bucket, "h"))
			r := request(1)
			r.Config.TTL = briefTTL
			c.change(&r.Config)
			begun := time.Now()
			told := granted(t, s, "k", r).Expiry
			// then the bucket outlives what the holder was told: the time to full, 2T, and at most a slice
			// more
			const slice = 1 << 16 * time.Microsecond
			kept := s.rdb.PTTL(ctx, bucket).Val()
			passed := time.Since(begun)
			testkit.Check(t, told >= c.least && told <= c.least+slice, "%s: told %v, want %v", name, told, c.least)
			testkit.Check(t, kept+passed >= told && kept <= told+2*time.Second, "%s: told %v, kept %v after %v",
				name, told, kept, passed)
			// and the record outlives its slice by two
			kept = s.rdb.PTTL(ctx, recordKey(bucket, "h")).Val()
			passed = time.Since(begun)
			testkit.Check(t, kept+passed >= briefTTL+2*slice && kept <= 3*time.Second,
				"%s: the record lives %v after %v", name, kept, passed)
		}
	})
}
