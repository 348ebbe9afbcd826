package hybrid

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter whose buckets are in Redis. Every key has these limits, at least one. All other
// settings have their defaults; for a Policy, Events or limits by key, pass the Store of redisbucket.New to
// New. Redis does no I/O, so it works while the server is down; Ping opens the connection before the first
// request. Errors wrap ErrInvalidConfig and name every violation. If every request comes with its limits
// (KeyWithLimits), pass Blocked, which then applies to keys without limits.
//
// The name is part of the stored key: user 17 of "login" and user 17 of "api" have separate buckets. Give
// each Limiter of a Redis database a name of its own. Two services with an empty name share their buckets
// (see Config.Name).
//
// The caller keeps the client, and closes it after Shutdown or Close. Set its DialTimeout and ReadTimeout to
// about 500 ms. With the 5 s of go-redis, a hanging server blocks a connection for that long, and a cluster
// client finds a new master only 5 s later.
func Redis(client redis.UniversalClient, name string, limits ...Limit) (*Limiter, error) {
	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return New(store, Config{Name: name, Limits: limits})
}

// Memory returns a Limiter like Redis, with its buckets in this process. It is for tests, for development and
// for a service of one process. No other Limiter shares its buckets, whatever its name; to share buckets,
// pass one memory.Store to New several times. The buckets end with the Limiter.
func Memory(name string, limits ...Limit) (*Limiter, error) {
	return New(memory.New(nil), Config{Name: name, Limits: limits})
}
