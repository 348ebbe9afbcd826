package hybrid

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter whose buckets are in Redis. Every key has the given limits, at least one. All other
// settings have their defaults; to set a Policy, Events or limits by key, pass the Store of redisbucket.New
// to New. The function Redis does no I/O; Ping opens the connection before the first request. Errors wrap
// ErrInvalidConfig and name every violation.
//
// The name separates services: user 17 of "login" and user 17 of "api" have separate buckets (see
// Config.Name).
//
// The caller closes the client after Shutdown or Close. Set the client's DialTimeout and ReadTimeout to about
// 500 ms. With the 5 s that go-redis sets, a hanging server blocks a connection for 5 s, and a cluster client
// finds a new master only after 5 s. In an outage go-redis itself logs each failed dial to standard error;
// redis.SetLogger redirects these lines.
func Redis(client redis.UniversalClient, name string, limits ...Limit) (*Limiter, error) {
	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return New(store, Config{Name: name, Limits: limits})
}

// Memory returns a Limiter with its buckets in this process, for tests, development or a service of one
// process. No other Limiter shares the buckets, even under the same name; to share buckets, pass one
// memory.Store to New several times. The buckets end with the Limiter.
func Memory(name string, limits ...Limit) (*Limiter, error) {
	return New(memory.New(nil), Config{Name: name, Limits: limits})
}
