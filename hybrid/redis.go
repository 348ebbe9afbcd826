package hybrid

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter whose buckets are in Redis. Every key has the given limits, at least one. All other
// settings have their defaults; to set a Policy, Events or limits by key, pass the Store of redisbucket.New
// to New. The function Redis does no I/O, so it succeeds while the server is down; Ping opens the connection
// before the first request. Errors wrap ErrInvalidConfig and name every violation. If every request brings
// its limits by KeyWithLimits, pass Blocked as the limit of all other requests.
//
// The name is part of the stored key: user 17 of "login" and user 17 of "api" have separate buckets. All
// processes of a service use the same name; every other use of the Redis database needs another name. Two
// services with an empty name share their buckets (see Config.Name).
//
// The caller closes the client after Shutdown or Close. Set the client's DialTimeout and ReadTimeout to about
// 500 ms. With the default of go-redis, 5 s, a hanging server blocks a connection for 5 s, and a cluster
// client finds a new master only after 5 s. In an outage go-redis itself logs each failed dial to standard
// error; redis.SetLogger redirects these lines.
func Redis(client redis.UniversalClient, name string, limits ...Limit) (*Limiter, error) {
	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return New(store, Config{Name: name, Limits: limits})
}

// Memory returns a Limiter like that of Redis, with its buckets in this process. Memory suits tests,
// development and a service of one process. No other Limiter shares the buckets, even under the same name; to
// share buckets, pass one memory.Store to New several times. The buckets end with the Limiter.
func Memory(name string, limits ...Limit) (*Limiter, error) {
	return New(memory.New(nil), Config{Name: name, Limits: limits})
}
