package hybrid

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// Redis returns a Limiter with these limits for every key, whose buckets are in Redis, and with
// defaults for everything else. It is New with a redisbucket.Store and a Config that has nothing
// but Limits. It does no I/O, so it works while Redis is down. Errors wrap ErrInvalidConfig and
// name every violation.
//
// One client has one Store, so a second call for the same client with other limits is refused like
// a second New: two limiters with the same keys would share their buckets. New with a Config.Name
// each, on one Store, is for who needs more than one.
//
// The client stays the caller's. Close the Limiter before it.
func Redis(client redis.UniversalClient, limits ...Limit) (*Limiter, error) {
	store, release, err := redisStores.of(client)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	l, err := New(store, Config{Limits: limits})
	if err != nil {
		release()
		return nil, err
	}
	context.AfterFunc(l.ctx, release)
	return l, nil
}

// redisStores are the Stores of the clients for which Redis has made a Limiter that is open.
var redisStores storesByClient

type storesByClient struct {
	mu  sync.Mutex
	all map[redis.UniversalClient]*sharedStore
}

// sharedStore is the Store of a client and how many Limiters use it.
type sharedStore struct {
	*redisbucket.Store
	users int
}

// of is the Store of a client, until release is called. A client whose type cannot be compared has
// another Store each time.
func (s *storesByClient) of(client redis.UniversalClient) (store *redisbucket.Store, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	comparable := client != nil && reflect.TypeOf(client).Comparable()
	if comparable {
		if have := s.all[client]; have != nil {
			have.users++
			return have.Store, func() { s.release(client) }, nil
		}
	}
	if store, err = redisbucket.New(client, redisbucket.Config{}); err != nil || !comparable {
		return store, func() {}, err
	}
	if s.all == nil {
		s.all = make(map[redis.UniversalClient]*sharedStore)
	}
	s.all[client] = &sharedStore{store, 1}
	return store, func() { s.release(client) }, nil
}

func (s *storesByClient) release(client redis.UniversalClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.all[client]
	if have.users--; have.users == 0 {
		delete(s.all, client)
	}
}
