package hybrid_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// spoil makes every call for key fail until heal: on Redis by a value of another type in the
// bucket's place.
func (t *world) spoil(key string) {
	if t.rdb != nil {
		noErr(t, t.rdb.Set(t.Context(), "yuzhi:{"+key+"}", "not a bucket", time.Hour).Err())
		return
	}
	t.onKeys(key, away)
}

func (t *world) heal(key string) {
	t.setJudge(nil)
	t.del("yuzhi:{" + key + "}")
}

func (t *world) del(keys ...string) {
	if t.rdb != nil {
		noErr(t, t.rdb.Del(t.Context(), keys...).Err())
	}
}

// Bucket4j's batching executors: a batch that fails does not keep the next from being sent; and a
// call that fails within a batch does not fail the others.
func TestPeerAFailedBatchDoesNotBlockTheNext(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.start(by(denying, hourly))
		keys := []string{"a", "b", "bad", "c", "d", "e"}
		// Of calls that travel together one fails;
		t.spoil("bad")
		for _, key := range keys {
			l.TryAllow(key) // does not wait for the first before the second asks
		}
		for _, key := range keys {
			check(t, l.Allow(key) == (key != "bad"), "%q is not answered by its own call", key)
		}
		t.mu.Lock()
		check(t, !t.virtual() || slices.Max(t.sizes) >= 2, "no calls travelled together")
		t.mu.Unlock()
		// when it is well again, it has its own,
		t.heal("bad")
		admitted := func(key string) {
			t.Helper()
			testkit.Eventually(t, "a token after the failure", func() bool { return l.Allow(key) })
		}
		t.lasts(0, ttl, func() { admitted("bad") })
		// and when many batches have failed, the next is sent all the same.
		t.every(away)
		const failures = 600 // more than may be under way at once
		for i := range failures {
			check(t, !l.Allow(fmt.Sprint("lost ", i)), "admitted without the store")
		}
		t.setJudge(nil)
		check(t, l.Allow("next"), "a key was denied because earlier batches had failed")
		for i := range 5 {
			admitted(fmt.Sprint("lost ", i))
		}
	})
}

// singleflight (as in vearne/ratelimit) and Bucket4j's batching: all waiting requests share one call
// and its error.
func TestPeerErrorsFanOutToEveryWaiter(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.start(by(denying, hourly))
		t.spoil("k")
		t.lasts(0, 0, together(40, func(i int) {
			if i%2 == 0 {
				isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrUnavailable)
				return
			}
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && !r.OK && r.Source == hybrid.SourceFallback, "Take: %+v, %v", r, err)
		}))
		st := l.Stats()
		check(t, st.Calls <= 40 && st.Admitted == 0 && (!t.virtual() || st.Calls == 1), "%+v", st)
		// After the failure no leftover state delays new requests.
		t.heal("k")
		testkit.Eventually(t, "a token", func() bool { return l.Allow("k") })
	})
}

// While the store is away, Wait is served at the pace of Policy.Fallback, or fails at once.
func TestWaitingWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   hybrid.Policy
		cold     bool
		want     error
		from, to time.Duration
	}{
		{"deny", denying, false, hybrid.ErrUnavailable, 0, 200 * time.Millisecond},
		// a call that fails, then 10/s of a bucket that was heard to be empty
		{"local share", hybrid.Policy{}, false, nil, 2900 * time.Millisecond, 3100 * time.Millisecond},
		{"allow all", hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, false, nil, 0, 200 * time.Millisecond},
		{"cold, deny", hybrid.Policy{}, true, hybrid.ErrUnavailable, 0, 200 * time.Millisecond},
		{"cold, allow", hybrid.Policy{ColdStart: hybrid.ColdStartAllow}, true, nil, 0, 200 * time.Millisecond},
	} {
		bubbleOf(t, c.name, func(t *world) {
			l := t.start(by(c.policy, hybrid.PerSecond(10)))
			if !c.cold {
				drain(l, "k")
			}
			t.every(verdict{lost: true})
			o := newOrder(30)
			t.lasts(c.from, c.to, inTurn(30, func(i int) {
				isErr(t, l.Wait(t.Context(), "k"), c.want)
				o.add(i)
			}))
			if c.want == nil {
				o.check(t)
			}
			// More than the local share ever holds is not waited for.
			err := l.WaitN(t.Context(), "k", 10)
			check(t, c.policy.Fallback != hybrid.FallbackDeny || errors.Is(err, hybrid.ErrUnavailable), "%v", err)
		})
	}
}

// A wait that the fallback serves in the end leaves what it had gathered to the next wait, before
// Allow.
func TestAWaitServedByTheFallbackLeavesItsTokensToTheNext(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(by(hybrid.Policy{MinBatch: 5}, hybrid.PerSecond(100)))
		l.AllowN("k", 1)
		t.every(away)
		l.AllowN("k", 90) // fails: degraded, served by the share
		for l.AllowN("k", 10) {
		}
		held := l.Stats().Held
		var done atomic.Bool
		wait := inTurn(2, func(i int) {
			_ = l.WaitN(t.Context(), "k", []int64{held + 5, 2}[i])
			done.Store(i == 1 || done.Load())
		})
		t.soon(300*time.Millisecond, func() bool { return l.TryAllow("k") })
		synctest.Wait() // requests served before may not have woken yet
		check(t, done.Load(), "TryAllow was served while Wait waited; %+v", l.Stats())
		wait()
	})
}
