package hybrid_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// The tests in peers_*_test.go are behaviours that the test suites of other rate limiters fix and
// that users will expect here too; each is named after the behaviour and says whose it is. One body
// runs on every store.

// everywhere runs body three times: on a MemoryStore and on a real Redis in virtual time, where
// every count and every duration is exact, and on Redis by its own clock, where body may rely on
// nothing but counts and one-sided bounds.
func everywhere(t *testing.T, body func(t *testing.T, p *place)) {
	inVirtualTime(t, body)
	t.Run("redis by its own clock", func(t *testing.T) { body(t, onRedisTime(t)) })
}

// inVirtualTime runs body twice: on a MemoryStore and on a real Redis. A goroutine that waits for
// the network keeps a bubble's time where it is, so a real server fits into it: it answers in no
// time at all, and is told what time it is.
func inVirtualTime(t *testing.T, body func(t *testing.T, p *place)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { body(t, inMemory()) })
	})
	t.Run("redis in virtual time", func(t *testing.T) {
		addr := redistest.Start(t).Addr
		synctest.Test(t, func(t *testing.T) { body(t, onARedis(t, addr, true)) })
	})
}

// place is where the buckets of one test are: an empty store behind a network that may be told to
// fail.
type place struct {
	*faultyStore
	virtual  bool
	clock    *clock.Skewed // the server's, to be stepped; nil where that is Redis's own
	rdb      *redis.Client // nil in memory
	controls atomic.Int64  // calls of Configure
	flying   atomic.Int64  // of Exchange, under way
	all      []*hybrid.Limiter
}

func inMemory() *place {
	c := clock.NewSkewed(clock.System(), clock.Skew{})
	return &place{faultyStore: &faultyStore{inner: lease.NewMemoryStore(c)}, virtual: true, clock: c}
}

// onRedisTime is a Redis that keeps its own time, in the world outside of any bubble.
func onRedisTime(t *testing.T) *place {
	t.Helper()
	return onARedis(t, redistest.Start(t).Addr, false)
}

func onARedis(t *testing.T, addr string, virtual bool) *place {
	t.Helper()
	client := func() *redis.Client {
		rdb := redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute, WriteTimeout: time.Minute, DialTimeout: time.Minute,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { rdb.Close() })
		return rdb
	}
	p := &place{virtual: virtual, rdb: client()}
	if virtual {
		p.clock = clock.NewSkewed(clock.System(), clock.Skew{})
		p.rdb.AddHook(&bubbled{t: t, clock: p.clock, raw: client(), expires: make(map[string]time.Time)})
	}
	store, err := redisbucket.New(p.rdb, redisbucket.Config{ClientTime: virtual})
	noErr(t, err)
	p.faultyStore = &faultyStore{inner: store}
	return p
}

// Configure implements lease.Store.
func (p *place) Configure(ctx context.Context, key string, op lease.Op, c lease.Config) (lease.State, error) {
	p.controls.Add(1)
	return p.faultyStore.Configure(ctx, key, op, c)
}

// Exchange implements lease.Store.
func (p *place) Exchange(ctx context.Context, calls []*lease.Call, done func([]*lease.Call)) {
	p.flying.Add(1)
	defer p.flying.Add(-1)
	p.faultyStore.Exchange(ctx, calls, done)
}

// limiter is one process. Where time is real, a machine that stalls must turn no wait for a lease
// into a denial, and let no lease run out that the test counts on.
func (p *place) limiter(t *testing.T, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	if !p.virtual && cfg.CallTimeout == 0 {
		cfg.CallTimeout = 30 * time.Second
	}
	l := start(t, p, cfg)
	p.all = append(p.all, l)
	return l
}

// process is a limiter with default settings.
func (p *place) process(t *testing.T, l ...hybrid.Limit) *hybrid.Limiter {
	t.Helper()
	return p.limiter(t, hybrid.Config{Limits: l})
}

// left is what a process that has just started finds in the bucket. In virtual time it takes
// everything; by Redis's own clock it looks, because a T may have to pass first: until then the
// other processes' shares are kept for them.
func (p *place) left(t *testing.T, key string, l hybrid.Limit) int64 {
	t.Helper()
	n := p.settled(t, key)
	if p.virtual {
		time.Sleep(time.Second)
		n = drain(p.process(t, l), key)
	}
	return n
}

// settled waits until no process holds anything, and says what is in the bucket then. (What they
// have spent, they may not yet have reported: that is not in the bucket either.)
func (p *place) settled(t *testing.T, key string) (left int64) {
	t.Helper()
	testkit.Eventually(t, "everything given back", func() bool {
		_, before := p.counts()
		held := p.flying.Load()
		for _, l := range p.all {
			held += l.Stats().Held
		}
		left = p.state(t, key).Levels[0]
		_, after := p.counts()
		return held == 0 && before == after
	})
	return left
}

// remembers reports whether anything at all is stored for key.
func (p *place) remembers(t *testing.T, key string) bool {
	t.Helper()
	for _, k := range p.redisKeys(t) {
		if strings.Contains(k, "{"+key+"}") {
			return true
		}
	}
	return p.state(t, key).Exists
}

// redisKeys is everything that is in Redis; nothing in memory.
func (p *place) redisKeys(t *testing.T) []string {
	t.Helper()
	if p.rdb == nil {
		return nil
	}
	keys, err := p.rdb.Keys(t.Context(), "*").Result()
	noErr(t, err)
	return keys
}

// bubbled makes a real Redis live in the virtual time of a bubble, as a hook of the client: every
// script call is told what time it is (Config.ClientTime), and the keys that it touches expire by
// that time and not by the server's own, which may stand still or run while the other does not.
type bubbled struct {
	t     *testing.T
	clock clock.Clock
	raw   *redis.Client // without the hook

	mu      sync.Mutex
	expires map[string]time.Time // by the bubble's time
}

// run executes cmds as one transaction, and takes over the expiry of their keys within it.
func (b *bubbled) run(ctx context.Context, cmds ...redis.Cmder) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(ctx)
	lives := make(map[string]*redis.DurationCmd)
	_, err := b.raw.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for _, cmd := range cmds {
			args := cmd.Args()
			script := cmd.Name() == "evalsha" || cmd.Name() == "eval"
			if script {
				args[3+args[2].(int)+1] = strconv.FormatInt(int64(b.clock.Now())/1000, 10)
			}
			_ = tx.Process(ctx, cmd)
			if !script {
				continue
			}
			for _, key := range args[3 : 3+args[2].(int)] {
				lives[key.(string)] = tx.PTTL(ctx, key.(string))
				tx.Persist(ctx, key.(string))
			}
		}
		return nil
	})
	for key, life := range lives {
		switch left := life.Val(); {
		case left > 0:
			b.expires[key] = time.Now().Add(left)
		case left == -1 && b.expires[key].IsZero():
			b.t.Errorf("%s has no expiry", key)
		}
	}
	return err
}

// forget deletes what has expired.
func (b *bubbled) forget(ctx context.Context) {
	for key, at := range b.expires {
		if time.Until(at) <= 0 {
			delete(b.expires, key)
			if err := b.raw.Del(ctx, key).Err(); err != nil {
				b.t.Error(err)
			}
		}
	}
}

// DialHook implements redis.Hook.
func (b *bubbled) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b *bubbled) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = b.run(ctx, cmd)
		return cmd.Err() // its own error, such as NOSCRIPT, is none of the transaction's
	}
}

// ProcessPipelineHook implements redis.Hook.
func (b *bubbled) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return b.run(ctx, cmds...) }
}
