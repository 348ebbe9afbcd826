package hybrid_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// check fails the test, which goes on, unless ok.
func check(t *testing.T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// equal fails the test unless got is want.
func equal[T comparable](t *testing.T, got, want T, what string) {
	if got != want {
		t.Helper()
		t.Errorf("%v %s, want %v", got, what, want)
	}
}

// must ends the test unless ok.
func must(t *testing.T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// noErr fails the test if err is not nil.
func noErr(t *testing.T, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// isErr fails the test unless err wraps all that is wanted, or is nil where that is nil.
func isErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		check(t, errors.Is(err, w), "the error is %v, want %v", err, w)
	}
}

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

// faultyStore is a Store over another with a network that does what judge says. A nil judge
// delivers.
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

// away is a store that cannot be reached.
var away = verdict{err: lease.ErrUnavailable}

// hangs holds back every call from now on, until the test ends, and its caller with it.
func (s *faultyStore) hangs(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	s.every(verdict{late: hang, deaf: true})
}

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
	noErr(t, err)
	return st
}

// has checks how many tokens are in the bucket, and how many it counts as leased.
func (s *faultyStore) has(t *testing.T, key string, level, ledger int64) {
	t.Helper()
	st := s.state(t, key)
	check(t, st.Levels[0] == level && st.Ledger == ledger,
		"the bucket of %q has %d, %d leased, want %d and %d", key, st.Levels[0], st.Ledger, level, ledger)
}

// silent checks that no call goes out for so long.
func (s *faultyStore) silent(t *testing.T, d time.Duration) {
	t.Helper()
	_, before := s.counts()
	time.Sleep(d)
	_, after := s.counts()
	check(t, after == before, "%d calls in %v", after-before, d)
}

// limitsAre checks what LimitsOf says.
func limitsAre(t *testing.T, l *hybrid.Limiter, key string, want ...hybrid.Limit) {
	t.Helper()
	got, err := l.LimitsOf(t.Context(), key)
	check(t, err == nil && slices.Equal(got, want), "the limits of %q are %v, %v, want %v", key, got, err, want)
}

// bubble runs body in virtual time, with a store of its own behind a network without faults.
func bubble(t *testing.T, body func(t *testing.T, s *faultyStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(t, newFaulty()) })
}

// bubbleOf is bubble as a subtest.
func bubbleOf(t *testing.T, name string, body func(t *testing.T, s *faultyStore)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, body) })
}

// start is a Limiter that is closed with the test.
func start(t *testing.T, s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(s, cfg)
	must(t, err == nil, "%v", err)
	t.Cleanup(func() {
		conserved(t, l)
		l.Close()
	})
	return l
}

// conserved checks that every token which was ever leased is somewhere, and returns the Stats.
func conserved(t *testing.T, l *hybrid.Limiter) hybrid.Stats {
	t.Helper()
	s := l.Stats()
	ok := s.Leased == s.Admitted-s.Fallback+s.Returned+s.Burnt+s.Held
	check(t, ok && s.Held >= 0 && s.Returned >= 0 && s.Burnt >= 0 && s.Denied >= 0,
		"tokens were lost or forged: %+v", s)
	return s
}

// seeds runs f in a bubble of its own for each of so many random seeds.
func seeds(t *testing.T, runs int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	for seed := range testkit.Seeds(t, runs) {
		synctest.Test(t, func(t *testing.T) { f(t, seed) })
	}
}

// hourly is a bucket of 10 that gets nothing back while a test runs.
var hourly = hybrid.PerHour(1).WithBurst(10)

// denying admits nothing while the store is away.
var denying = hybrid.Policy{Fallback: hybrid.FallbackDeny}

func limits(l ...hybrid.Limit) []hybrid.Limit { return l }

// of is a configuration with these limits, by one with a policy too.
func of(l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: l} }

func by(p hybrid.Policy, l ...hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: l, Policy: p} }

// drain takes tokens one by one until there are none, and counts them.
func drain(l *hybrid.Limiter, key string) (n int64) {
	for l.Allow(key) {
		n++
	}
	return n
}

// admits asks n times, with a pause after each, and counts how often the answer was yes.
func admits(n int, pause time.Duration, ask func() bool) (yes int) {
	for range n {
		if ask() {
			yes++
		}
		time.Sleep(pause)
	}
	return yes
}

// until polls until holds, and returns how long that took.
func until(pace time.Duration, holds func() bool) time.Duration {
	from := time.Now()
	for !holds() {
		time.Sleep(pace)
	}
	return time.Since(from)
}

// background runs f beside the test; wait waits for its end.
func background(f func()) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	return wg.Wait
}

// took is how long f took, by the bubble's clock.
func took(f func()) time.Duration {
	from := time.Now()
	f()
	return time.Since(from)
}

// wholeMicroseconds is t as a bucket reads it. The promise is about the bucket's clock, which
// counts whole microseconds. By one that counts nanoseconds a window could be up to 1 us shorter
// than the one in which the bucket refilled.
func wholeMicroseconds(t clock.Instant) int64 { return int64(t) / 1000 * 1000 }

// meter audits that admissions keep the promise over every window. Goroutines may share it.
type meter struct {
	mu    sync.Mutex
	exact *audit.Meter
	sum   int64
}

func newMeter(l hybrid.Limit) *meter {
	return &meter{exact: audit.NewMeter(audit.Bound{Tokens: l.Tokens, Per: l.Per, Burst: l.Capacity()})}
}

// admit records n tokens that were admitted now.
func (m *meter) admit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exact.Admit(wholeMicroseconds(clock.System().Now()), n)
	m.sum += n
}

// admitIf records a token if it was admitted, and returns whether it was.
func (m *meter) admitIf(ok bool) bool {
	if ok {
		m.admit(1)
	}
	return ok
}

func (m *meter) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	check(t, m.exact.ExceededBy() == 0, "the promise is exceeded by %d", m.exact.ExceededBy())
}
