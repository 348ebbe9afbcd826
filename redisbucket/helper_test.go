package redisbucket

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
)

// onEach runs f against miniredis and, where it is installed, a real server.
func onEach(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("miniredis", func(t *testing.T) { f(t, newStore(t, miniredis.RunT(t).Addr())) })
	t.Run("redis", func(t *testing.T) { f(t, newStore(t, redistest.Start(t).Addr)) })
}

func newStore(t testing.TB, addr string) *Store {
	t.Helper()
	return storeOver(t, redis.NewClient(&redis.Options{Addr: addr}))
}

// storeOver is a store over rdb, which is closed with the test.
func storeOver(t testing.TB, rdb redis.UniversalClient) *Store {
	t.Helper()
	t.Cleanup(func() { rdb.Close() })
	return storeOn(t, rdb)
}

// storeOn is a store over an rdb that outlives the test.
func storeOn(t testing.TB, rdb redis.UniversalClient) *Store {
	t.Helper()
	s, err := New(rdb, Config{})
	must(t, err)
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// request is a plausible call of holder "h".
func request(seq int64) lease.Request {
	return lease.Request{Holder: "h", Seq: seq, Want: 10, Weight: 1, Config: lease.Config{
		Limits: []lease.Limit{lease.PerSecond(100)}, TTL: 400 * time.Millisecond,
		Target: 100 * time.Millisecond,
	}}
}

// contents is everything in the database but the remaining time of keys.
func contents(t *testing.T, s *Store) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	keys := s.rdb.Keys(ctx, "*").Val()
	for _, k := range keys {
		fmt.Fprintf(&b, "%q: %s %q %q %v\n", k, s.rdb.Type(ctx, k).Val(), s.rdb.Get(ctx, k).Val(),
			s.rdb.LRange(ctx, k, 0, -1).Val(),
			s.rdb.HGetAll(ctx, k).Val())
	}
	return fmt.Sprint(len(keys), b.String())
}

// textOf is c as the scripts store it.
func textOf(t testing.TB, c lease.Config) string {
	t.Helper()
	text, err := appendConfig(nil, &c)
	must(t, err)
	return string(text)
}

// exchange makes one call.
func exchange(s *Store, key string, r lease.Request) (lease.Grant, error) {
	c := &lease.Call{Key: key, Request: r}
	s.Exchange(context.Background(), []*lease.Call{c}, func([]*lease.Call) {})
	return c.Grant, c.Err
}
