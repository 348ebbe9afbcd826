package hybridtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// FaultyStore is a lease.Store for tests of a service while Redis is slow or does not answer. A FaultyStore
// passes calls on to Store until a test calls Away or Slow. Goroutines may share a FaultyStore. Example:
//
//	synctest.Test(t, func(t *testing.T) {
//		store := &hybridtest.FaultyStore{Store: memory.New(nil)} // package lease/memory
//		limiter, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10)}})
//		// ... err, requests, store.Away(), time.Sleep, store.Back()
//		limiter.Close() // before the bubble ends
//	})
//
// To test two processes, make two Limiters, each with its own FaultyStore, over one memory.Store.
type FaultyStore struct {
	lease.Store // required

	mu    sync.Mutex
	away  bool
	delay time.Duration
}

var (
	_ lease.Pinger = (*FaultyStore)(nil)
	_ lease.Router = (*FaultyStore)(nil)
)

// Away makes every call fail at once, as if connections were refused. If Away comes before the first request
// of a Limiter, Policy.ColdStart decides; after a reply of the store, Policy.Fallback decides.
func (s *FaultyStore) Away() { s.set(true, 0) }

// Slow delays every answer by delay, and ends Away. The store executes the calls. If delay exceeds
// hybrid.Config.CallTimeout, a Limiter treats the store as one that does not answer.
func (s *FaultyStore) Slow(delay time.Duration) { s.set(false, delay) }

// Back ends Away and Slow. While requests come, a Limiter uses the store again after at most about a TTL,
// which is 0.4 s by default.
func (s *FaultyStore) Back() { s.set(false, 0) }

func (s *FaultyStore) set(away bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.delay = away, delay
}

// errAway means that the call was not executed.
var errAway = fmt.Errorf("hybridtest: the store is away: %w: %w", lease.ErrUnavailable, lease.ErrRefused)

func (s *FaultyStore) fault() (late time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return 0, errAway
	}
	return s.delay, nil
}

// Exchange implements lease.Store.
func (s *FaultyStore) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	late, err := s.fault()
	if err != nil {
		fail(calls, err)
		done(calls)
		return
	}
	s.Store.Exchange(ctx, calls, func(group []*lease.Call) {
		if err := wait(ctx, late); err != nil {
			fail(group, err)
		}
		done(group)
	})
}

func fail(calls []*lease.Call, err error) {
	for _, c := range calls {
		c.Grant, c.Err = lease.Grant{}, err
	}
}

// wait returns nil after late, or lease.ErrUnavailable if ctx ends first.
func wait(ctx context.Context, late time.Duration) error {
	if late <= 0 {
		return nil
	}
	select {
	case <-time.After(late):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hybridtest: the store is slow: %w: %w", lease.ErrUnavailable, context.Cause(ctx))
	}
}

// Configure implements lease.Store.
func (s *FaultyStore) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	late, err := s.fault()
	if err != nil {
		return lease.State{}, err
	}
	st, err := s.Store.Configure(ctx, key, op, c)
	if late := wait(ctx, late); late != nil {
		return lease.State{}, late
	}
	return st, err
}

// Ping implements lease.Pinger.
func (s *FaultyStore) Ping(ctx context.Context) error {
	late, err := s.fault()
	if p, ok := s.Store.(lease.Pinger); ok && err == nil {
		err = p.Ping(ctx)
	}
	if err == nil {
		err = wait(ctx, late)
	}
	return err
}

// NodeOf implements lease.Router.
func (s *FaultyStore) NodeOf(key string) int {
	if r, ok := s.Store.(lease.Router); ok {
		return r.NodeOf(key)
	}
	return -1
}

// NodeName implements lease.Router.
func (s *FaultyStore) NodeName(node int) string {
	if r, ok := s.Store.(lease.Router); ok {
		return r.NodeName(node)
	}
	return ""
}
