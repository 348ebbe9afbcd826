package hybrid_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// everywhere runs body three times: on a memory.Store and on a real Redis in virtual time, where
// every count and every duration is exact, and on Redis by its own clock, where body may rely on
// nothing but counts and one-sided bounds.
func everywhere(t *testing.T, body func(t *world)) {
	inVirtualTime(t, body)
	t.Run("redis by its own clock", func(t *testing.T) {
		rdb := client(t, redistest.Start(t).Addr)
		body(&world{T: t, rdb: rdb, network: &network{inner: storeOn(t, rdb, false)}})
	})
}

// inVirtualTime runs body twice: on a memory.Store and on a real Redis. A goroutine that waits for
// the network keeps a bubble's time where it is, so a real server fits into it: it answers in no
// time at all, and the test sets its time.
func inVirtualTime(t *testing.T, body func(t *world)) {
	bubbleOf(t, "memory", body)
	t.Run("redis in virtual time", func(t *testing.T) {
		addr := redistest.Start(t).Addr
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.rdb = client(t, addr)
			w.rdb.AddHook(&bubbled{t: t, clock: w.clock, raw: client(t, addr), expires: make(map[string]time.Time)})
			w.replace(storeOn(t, w.rdb, true))
			body(w)
		})
	})
}

func storeOn(t *testing.T, rdb *redis.Client, clientTime bool) lease.Store {
	store, err := redisbucket.New(rdb, redisbucket.Config{ClientTime: clientTime})
	noErr(t, err)
	return store
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
			noErr(b.t, b.raw.Del(ctx, key).Err())
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
