package hybrid

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter with these limits for every key, whose buckets are in Redis, and with defaults for
// everything else. It is New with a redisbucket.Store and a Config that has nothing but Limits. It does no
// I/O, so it works while Redis is down. Errors wrap ErrInvalidConfig and name every violation.
//
// A second call for the same client with other limits is refused, as by New: two limiters with the
// same keys would share their buckets. To have both, use New and give each a Config.Name.
//
// The client stays the caller's. Close the Limiter before it. Its DialTimeout and ReadTimeout should
// be about 500 ms: with those of go-redis, 5 s, a client of a cluster finds the successor of a master
// that hangs 5 s later.
func Redis(client redis.UniversalClient, limits ...Limit) (*Limiter, error) {
	store, err := redisbucket.New(client, redisbucket.Config{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return New(store, Config{Limits: limits})
}
