package hybrid_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/clock"
)

// bubbled makes a real Redis live in the virtual time of a bubble, as a hook of the client: every script call is told
// what time it is (Config.ClientTime), and the keys that it touches expire by that time and not by the server's own,
// which may stand still or run while the other does not.
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
