package hybrid

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter with these limits, one at least, for every key, whose buckets are in Redis, and
// with defaults for everything else; for a Policy, Events or limits by key use New. It is New with a
// redisbucket.Store and a Config that has Name and Limits. It does no I/O, so it works while Redis is down; a
// Ping before the first request has its connection open in time. Errors wrap ErrInvalidConfig and name every
// violation. One client may have many Limiters. Where each request brings its limits (KeyWithLimits), give
// Blocked: a key without limits of its own then has nothing.
//
// The name keeps the Limiters of one client apart: user 17 of "login" and user 17 of "api" have a bucket
// each. It may be empty where there is one Limiter; see Config.Name. A second one of the same client and name
// shares the buckets of the first, and is refused if its limits are others.
//
// The client stays the caller's. Shut the Limiter down, or close it, before the client. Its DialTimeout and
// ReadTimeout should be about 500 ms, for one server too: with those of go-redis, 5 s, a connection to a
// server that hangs is held for as long, and a client of a cluster finds the successor of its master 5 s
// later.
func Redis(client redis.UniversalClient, name string, limits ...Limit) (*Limiter, error) {
	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return New(store, Config{Name: name, Limits: limits})
}

// Memory returns a Limiter as Redis does, whose buckets are in this process: for tests, for development, and
// for a service that runs as one process. No other Limiter shares them, whatever the name; where several
// should, use New with one memory.Store. Their use so far is forgotten when the Limiter is.
func Memory(name string, limits ...Limit) (*Limiter, error) {
	return New(memory.New(nil), Config{Name: name, Limits: limits})
}
