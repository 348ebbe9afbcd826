// Package testnet starts Redis servers for tests of the examples.
package testnet

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Patience is the query of a Redis URL with timeouts that exceed a pause of the machine.
const Patience = "?dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"

// Redis starts a server that ends with the test, and returns its URL.
func Redis(t testing.TB) (url string) {
	t.Helper()
	return URL(redistest.Start(t).Addr)
}

// URL returns the URL of the server at address.
func URL(address string) string { return "redis://" + address + "/0" + Patience }

// Store returns a store in the Redis at url.
func Store(t testing.TB, url, prefix string) lease.Store {
	t.Helper()
	options, err := redis.ParseURL(url)
	testkit.NoErr(t, err)
	s, err := redisbucket.New(redis.NewClient(options), redisbucket.Config{Prefix: prefix})
	testkit.NoErr(t, err)
	return s
}

// OnRedis runs body, each time with new buckets, until body returns nil, because a slow machine may miss a
// deadline of the limiter. Each call of open returns the store of one more process.
func OnRedis(t testing.TB, body func(open func() lease.Store) error) {
	url, attempts := Redis(t), 0
	testkit.EventuallyNil(t, func() error {
		attempts++
		return body(func() lease.Store { return Store(t, url, fmt.Sprint("test ", attempts)) })
	})
}
