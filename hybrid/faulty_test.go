package hybrid_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// verdict is what happens to one call on its way.
type verdict struct {
	err   error         // it is not executed, and fails with this
	lost  bool          // it is executed, and no reply comes
	twice bool          // the network delivers it twice; the second reply arrives
	delay time.Duration // between execution and reply
	until chan struct{} // the reply is held back until this is closed
	late  chan struct{} // the execution is held back until this is closed
	deaf  bool          // the store does not notice that the context has ended, as a client without deadlines
}

// faultyStore is a Store over another with a network that does what judge says. A nil judge delivers.
type faultyStore struct {
	inner lease.Store

	mu      sync.Mutex
	judge   func(c *lease.Call) verdict
	control error // of Configure
	batches int
	sizes   []int
	calls   []lease.Request
	keys    []string
}

func newFaulty() *faultyStore { return &faultyStore{inner: lease.NewMemoryStore(nil)} }

func (s *faultyStore) setJudge(judge func(*lease.Call) verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = judge
}

// every makes v the fate of every call from now on.
func (s *faultyStore) every(v verdict) { s.setJudge(func(*lease.Call) verdict { return v }) }

// replace loses every bucket.
func (s *faultyStore) replace(by lease.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inner = by
}

func (s *faultyStore) store() lease.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner
}

func (s *faultyStore) counts() (batches, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches, len(s.calls)
}

func (s *faultyStore) last() lease.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[len(s.calls)-1]
}

// Exchange implements lease.Store.
func (s *faultyStore) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.mu.Lock()
	s.batches++
	s.sizes = append(s.sizes, len(calls))
	fates := make([]verdict, len(calls))
	for i, c := range calls {
		c.Node = 0
		s.calls = append(s.calls, c.Request)
		s.keys = append(s.keys, c.Key)
		if s.judge != nil {
			fates[i] = s.judge(c)
		}
	}
	s.mu.Unlock()
	// Calls with one fate arrive together.
	groups := make(map[verdict][]*lease.Call)
	for i, c := range calls {
		groups[fates[i]] = append(groups[fates[i]], c)
	}
	var wg sync.WaitGroup
	for v, group := range groups {
		wg.Go(func() {
			s.deliver(ctx, v, group)
			done(group)
		})
	}
	wg.Wait()
}

func (s *faultyStore) deliver(ctx context.Context, v verdict, group []*lease.Call) {
	wait := ctx
	if v.deaf {
		wait = context.Background()
	}
	if v.err == nil && pause(wait, v.late, 0) {
		s.store().Exchange(ctx, group, func([]*lease.Call) {})
		if v.twice {
			s.store().Exchange(ctx, group, func([]*lease.Call) {})
		}
		if v.lost {
			<-wait.Done()
		}
		if !v.lost && pause(wait, v.until, v.delay) {
			return
		}
	}
	for _, c := range group {
		c.Grant, c.Err = lease.Grant{}, v.err
		if v.err == nil {
			c.Err = lease.ErrUnavailable
		}
	}
}

// pause waits for until and then d; false if ctx ended first.
func pause(ctx context.Context, until chan struct{}, d time.Duration) bool {
	if until != nil {
		select {
		case <-until:
		case <-ctx.Done():
			return false
		}
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// errHangs makes every Configure hang until its context ends.
var errHangs = errors.New("hangs")

// setControl makes every Configure fail with err from now on; nil executes them.
func (s *faultyStore) setControl(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control = err
}

// Configure implements lease.Store.
func (s *faultyStore) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	s.mu.Lock()
	err := s.control
	s.mu.Unlock()
	if err == errHangs {
		<-ctx.Done()
		return lease.State{}, context.Cause(ctx)
	}
	if err != nil {
		return lease.State{}, err
	}
	return s.store().Configure(ctx, key, op, c)
}

// state is what the bucket says.
func (s *faultyStore) state(t *testing.T, key string) lease.State {
	t.Helper()
	st, err := s.Configure(context.Background(), key, lease.OpInspect, lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// start is a Limiter that is closed with the test.
func start(t *testing.T, s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s := l.Stats()
		if s.Leased != s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held {
			t.Errorf("tokens were lost or forged: %+v", s)
		}
		l.Close()
	})
	return l
}

var seedFlag = flag.Uint64("hybrid.seed", 0, "replay one seed of a random test; 0 draws new ones")

// seeds runs f in a bubble of its own with so many random seeds, and says how to replay one that fails.
func seeds(t *testing.T, runs int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	for range runs {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		}
		func() {
			defer func() { // a bubble that fails ends the test at once
				if t.Failed() {
					t.Logf("replay: go test ./hybrid -run '^%s$' -hybrid.seed=%d", t.Name(), seed)
				}
			}()
			synctest.Test(t, func(t *testing.T) { f(t, seed) })
		}()
		if *seedFlag != 0 {
			return
		}
	}
}

func limits(l ...hybrid.Limit) []hybrid.Limit { return l }

// took is how long f took, by the bubble's clock.
func took(f func()) time.Duration {
	from := time.Now()
	f()
	return time.Since(from)
}

// meter checks promise (1) over every window: it drains at the rate and may never hold more than the burst.
type meter struct {
	mu    sync.Mutex
	limit hybrid.Limit
	at    time.Time
	level int64 // tokens * Per
	peak  int64
	sum   int64
}

func newMeter(l hybrid.Limit) *meter { return &meter{limit: l, at: time.Now()} }

func (m *meter) admit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.level = max(0, m.level-int64(now.Sub(m.at))*m.limit.Tokens) + n*int64(m.limit.Per)
	m.at = now
	m.sum += n
	m.peak = max(m.peak, m.level)
}

func (m *meter) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if bound := m.limit.Capacity() * int64(m.limit.Per); m.peak > bound {
		t.Errorf("a window admitted %.3f tokens more than rate x window, the burst is %d",
			float64(m.peak)/float64(m.limit.Per), m.limit.Capacity())
	}
}
