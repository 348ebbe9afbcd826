package hybrid_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// verdict decides the fate of one call.
type verdict struct {
	err   error         // it is not executed, and fails with this
	lost  bool          // it is executed, and no reply comes
	twice bool          // the network delivers it twice; the second reply arrives
	delay time.Duration // between execution and reply
	until chan struct{} // the reply is held back until this is closed
	late  chan struct{} // the execution is held back until this is closed
	stuck bool          // the call outlives its context, as in a client without deadlines

	foreign bool // the reply is to another call
}

// away is a store that cannot be reached.
var away = verdict{err: lease.ErrUnavailable}

// network is a Store over another, which does to each call what judge says and keeps a record.
type network struct {
	mu       sync.Mutex
	inner    lease.Store
	judge    func(c *lease.Call) verdict // nil delivers
	control  error                       // of Configure
	overdue  chan struct{}               // holds back the next answer of Configure
	sizes    []int                       // of the batches so far
	calls    []sentCall
	controls int // calls of Configure
	flying   int // batches under way
}

// sentCall is the network's record of a call.
type sentCall struct {
	key string
	lease.Request
}

func (s *network) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *network) setJudge(judge func(*lease.Call) verdict) { s.locked(func() { s.judge = judge }) }

// every makes v the fate of every call from now on.
func (s *network) every(v verdict) { s.setJudge(func(*lease.Call) verdict { return v }) }

// onKeys makes v the fate of every call from now on for keys that contain part.
func (s *network) onKeys(part string, v verdict) {
	s.setJudge(func(c *lease.Call) (fate verdict) {
		if strings.Contains(c.Key, part) {
			fate = v
		}
		return fate
	})
}

// errHangs makes every Configure hang until its context ends.
var errHangs = errors.New("hangs")

// setControl makes every Configure fail with err from now on; nil executes them.
func (s *network) setControl(err error) { s.locked(func() { s.control = err }) }

func (s *network) replace(by lease.Store) { s.locked(func() { s.inner = by }) }

func (s *network) store() (store lease.Store) {
	s.locked(func() { store = s.inner })
	return store
}

// counts is how many batches and calls went out so far.
func (s *network) counts() (batches, calls int) {
	s.locked(func() { batches, calls = len(s.sizes), len(s.calls) })
	return batches, calls
}

// during is how many batches and calls went out while f ran.
func (s *network) during(f func()) (batches, calls int) {
	batchesBefore, callsBefore := s.counts()
	f()
	batches, calls = s.counts()
	return batches - batchesBefore, calls - callsBefore
}

// idle reports whether no batch is under way.
func (s *network) idle() (yes bool) {
	s.locked(func() { yes = s.flying == 0 })
	return yes
}

// last is the last call.
func (s *network) last() (r lease.Request) {
	s.locked(func() { r = s.calls[len(s.calls)-1].Request })
	return r
}

// draws says of each call for key so far whether it was a draw.
func (s *network) draws(key string) (all []bool) {
	s.locked(func() {
		for _, c := range s.calls {
			if c.key == key {
				all = append(all, c.Request.Draw)
			}
		}
	})
	return all
}

// callsFor counts the calls for key so far.
func (s *network) callsFor(key string) int { return len(s.draws(key)) }

// Exchange implements lease.Store.
func (s *network) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	s.mu.Lock()
	s.flying++
	s.sizes = append(s.sizes, len(calls))
	groups := make(map[verdict][]*lease.Call) // calls with one fate arrive together
	for _, c := range calls {
		c.Node = 0
		s.calls = append(s.calls, sentCall{c.Key, c.Request})
		var fate verdict
		if s.judge != nil {
			fate = s.judge(c)
		}
		groups[fate] = append(groups[fate], c)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for v, group := range groups {
		wg.Go(func() {
			s.deliver(ctx, v, group)
			done(group)
		})
	}
	wg.Wait()
	s.locked(func() { s.flying-- })
}

func (s *network) deliver(ctx context.Context, v verdict, group []*lease.Call) {
	wait := ctx
	if v.stuck {
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
			for _, c := range group {
				if v.foreign {
					c.Grant.Seq++
				}
			}
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

// pause waits for until, or for d; false if ctx ended first.
func pause(ctx context.Context, until chan struct{}, d time.Duration) bool {
	if until == nil && d <= 0 {
		return true
	}
	var after <-chan time.Time
	if d > 0 {
		after = time.After(d)
	}
	select {
	case <-until:
	case <-after:
	case <-ctx.Done():
		return false
	}
	return true
}

// Configure implements lease.Store.
func (s *network) Configure(
	ctx context.Context, key string, op lease.Op, c lease.Config,
) (lease.State, error) {
	var err error
	var overdue chan struct{}
	s.locked(func() {
		s.controls++
		err, overdue = s.control, s.overdue
		s.overdue = nil
	})
	if err == errHangs {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	if err != nil {
		return lease.State{}, err
	}
	st, err := s.store().Configure(ctx, key, op, c)
	pause(ctx, overdue, 0)
	return st, err
}

// everywhere runs body twice: on a memory.Store in virtual time, where every count and every duration is
// exact, and on Redis by its own clock, where body may rely on nothing but counts and one-sided bounds. (The
// scripts answer as the memory.Store does, to the last bit: TestScriptsAgreeWithReference in redisbucket.)
func everywhere(t *testing.T, body func(t *world)) {
	bubbleOf(t, "memory", body)
	t.Run("redis", func(t *testing.T) {
		rdb := client(t, redistest.Start(t).Addr)
		store, err := redisbucket.New(rdb, redisbucket.Config{})
		noErr(t, err)
		body(&world{T: t, rdb: rdb, network: &network{inner: store}})
	})
}

func client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute, DialTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// virtual says whether time is the bubble's, and so exact.
func (t *world) virtual() bool { return t.clock != nil }

// left returns the tokens that a new process finds in the bucket. In virtual time it takes everything.
// By Redis's own clock it only looks: the other processes' shares stay reserved for up to a T.
func (t *world) left(key string, l hybrid.Limit) int64 {
	t.Helper()
	n := t.settled(key)
	if t.virtual() {
		time.Sleep(time.Second)
		n = drain(t.process(l), key)
	}
	return n
}

// settled waits until no process holds anything, and says what is in the bucket then. (What they
// have spent, they may not yet have reported: that is not in the bucket either.)
func (t *world) settled(key string) (left int64) {
	t.Helper()
	testkit.Eventually(t, "everything given back", func() bool {
		_, before := t.counts()
		idle := t.idle()
		for _, l := range t.processes {
			idle = idle && l.Stats().Held == 0
		}
		left = t.state(key).Levels[0]
		_, after := t.counts()
		return idle && before == after
	})
	return left
}

// eventually waits until the level of key's bucket is as wanted.
func (t *world) eventually(what, key string, holds func(level int64) bool) {
	t.Helper()
	testkit.Eventually(t, what, func() bool { return holds(t.state(key).Levels[0]) })
}

// remembers reports whether anything at all is stored for key.
func (t *world) remembers(key string) bool {
	t.Helper()
	found := func(k string) bool { return strings.Contains(k, "{"+key+"}") }
	return slices.ContainsFunc(t.redisKeys(), found) || t.state(key).Exists
}

// redisKeys is everything that is in Redis; nothing in memory.
func (t *world) redisKeys() []string {
	t.Helper()
	if t.rdb == nil {
		return nil
	}
	keys, err := t.rdb.Keys(t.Context(), "*").Result()
	noErr(t, err)
	return keys
}
