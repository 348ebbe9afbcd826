package hybridtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// FaultyStore is a lease.Store that passes calls on to Store until a test calls Away or Slow. A FaultyStore
// is for tests of a service while Redis is away. Goroutines may share a FaultyStore. Example:
//
//	synctest.Test(t, func(t *testing.T) {
//		store := &hybridtest.FaultyStore{Store: memory.New(nil)} // package lease/memory
//		limiter, err := hybrid.New(store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(10)}})
//		// ... err, requests, store.Away(), time.Sleep, store.Back()
//		limiter.Close() // before the bubble ends
//	})
//
// Two Limiters stand for two processes if each has a FaultyStore of its own over one memory.Store.
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

// Away makes every call fail at once, as if connections were refused. Away before the first request of a
// Limiter tests a cold start: Policy.ColdStart decides, and Policy.Fallback only after a reply.
func (s *FaultyStore) Away() { s.set(true, 0) }

// Slow delays every answer by delay; the calls are executed. A delay above hybrid.Config.CallTimeout makes
// the store count as away.
func (s *FaultyStore) Slow(delay time.Duration) { s.set(false, delay) }

// Back ends Away and Slow. While requests come, the next probe of a Limiter finds the store back, at the
// latest about a TTL (0.4 s by default) later.
func (s *FaultyStore) Back() { s.set(false, 0) }

func (s *FaultyStore) set(away bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.delay = away, delay
}

// errAway means that the call was not executed.
var errAway = fmt.Errorf("hybridtest: the store is away: %w: %w", lease.ErrUnavailable, lease.ErrRefused)

// fault returns errAway, or the delay of answers.
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

// wait returns nil after late, or an error if ctx ends first. The caller cannot know that the call was made.
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
