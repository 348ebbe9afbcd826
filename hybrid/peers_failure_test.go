package hybrid_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// spoil makes every call for key fail until heal: on Redis by a value of another type in the
// bucket's place.
func (p *place) spoil(t *testing.T, key string) {
	t.Helper()
	if p.rdb == nil {
		p.setJudge(func(c *lease.Call) (v verdict) {
			if c.Key == key {
				v.err = lease.ErrUnavailable
			}
			return v
		})
	} else if err := p.rdb.Set(t.Context(), "yuzhi:{"+key+"}", "not a bucket", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
}

func (p *place) heal(t *testing.T, key string) {
	t.Helper()
	p.setJudge(nil)
	if p.rdb != nil {
		p.del(t, "yuzhi:{"+key+"}")
	}
}

func (p *place) del(t *testing.T, keys ...string) {
	t.Helper()
	noErr(t, p.rdb.Del(t.Context(), keys...).Err())
}

// Bucket4j's batching executors: a batch that fails does not keep the next from being sent; and a
// call that fails within a batch does not fail the others.
func TestPeerAFailedBatchDoesNotBlockTheNext(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.limiter(t, by(denying, hourly))
		keys := []string{"a", "b", "bad", "c", "d", "e"}
		// Given calls that travel together, one of which fails,
		p.spoil(t, "bad")
		for _, key := range keys {
			l.TryAllow(key) // does not wait for the first before the second asks
		}
		// then the others have their tokens;
		for _, key := range keys {
			check(t, key == "bad" || l.Allow(key), "%q was denied because another key failed", key)
		}
		check(t, !l.Allow("bad"), "a key that fails was admitted")
		p.mu.Lock()
		largest := 0
		for _, n := range p.sizes {
			largest = max(largest, n)
		}
		p.mu.Unlock()
		check(t, !p.virtual || largest >= 2, "no calls travelled together")
		// when it is well again, it has its own,
		p.heal(t, "bad")
		d := took(func() { testkit.Eventually(t, "a token after the failure", func() bool { return l.Allow("bad") }) })
		check(t, !p.virtual || d <= ttl, "admitted %v after the failure was over", d)
		// and when many batches have failed, the next is sent all the same.
		p.every(away)
		const failures = 600 // more than may be under way at once
		for i := range failures {
			check(t, !l.Allow(fmt.Sprint("lost ", i)), "admitted without the store")
		}
		p.setJudge(nil)
		check(t, l.Allow("next"), "a key was denied because earlier batches had failed")
		for i := range 5 {
			testkit.Eventually(t, "a token after the failure", func() bool { return l.Allow(fmt.Sprint("lost ", i)) })
		}
	})
}

// singleflight (as in vearne/ratelimit) and Bucket4j's batching: one call is made for all who wait,
// and its error is everybody's.
func TestPeerErrorsFanOutToEveryWaiter(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given 20 who wait with Wait, and 20 with Take, for a call that is under way,
		l := p.limiter(t, by(denying, hourly))
		p.spoil(t, "k")
		var wg sync.WaitGroup
		from := time.Now()
		for range 20 {
			wg.Go(func() {
				// when it fails, then it fails for each of them,
				err := l.Wait(t.Context(), "k")
				check(t, errors.Is(err, hybrid.ErrUnavailable), "Wait: %v", err)
			})
			wg.Go(func() {
				r, err := l.Take(t.Context(), "k", 1)
				check(t, err == nil && !r.OK && r.Source == hybrid.SourceFallback,
					"Take: %+v, %v", r, err)
			})
		}
		wg.Wait()
		// at once, and without a call for each.
		d := time.Since(from)
		check(t, !p.virtual || d == 0, "the last was told after %v", d)
		st := l.Stats()
		check(t, st.Calls <= 5 && st.Admitted == 0 && (!p.virtual || st.Calls == 1), "%+v", st)
		// Nobody is in the way of those who come when it is well again.
		p.heal(t, "k")
		testkit.Eventually(t, "a token", func() bool { return l.Allow("k") })
	})
}

// Bucket4j's RecoveryStrategy and Redisson's testRemove: a bucket that is deleted underneath is
// made anew and goes on - here without admitting a token more than if it had not been lost.
func TestPeerABucketDeletedUnderneathRecovers(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		losses := map[string]func(key string){"everything": func(string) { p.replace(lease.NewMemoryStore(p.clock)) }}
		if p.rdb != nil {
			losses = map[string]func(key string){
				"everything":  func(string) { p.rdb.FlushAll(t.Context()) },
				"the scripts": func(string) { p.rdb.ScriptFlush(t.Context()) },
				"the bucket":  func(key string) { p.del(t, "yuzhi:{"+key+"}") },
				"the records": func(key string) {
					for _, k := range p.redisKeys(t) {
						if k != "yuzhi:{"+key+"}" {
							p.del(t, k)
						}
					}
				},
			}
		}
		const lifetime = 100 * time.Millisecond
		limit := hybrid.PerSecond(200).WithBurst(20)
		policy := hybrid.Policy{Target: 5 * time.Millisecond, TTL: lifetime, Fallback: hybrid.FallbackDeny}
		for name, lose := range losses {
			// Given a process that asks for more than the rate,
			l := p.limiter(t, by(policy, limit))
			from, admitted, bound := time.Now(), int64(0), newMeter(limit)
			ask := func() {
				if bound.admitIf(l.Allow(name)) {
					admitted++
				}
				time.Sleep(time.Millisecond) // the pace of the asking
			}
			for admitted < 30 {
				ask()
			}
			// when what it rests on is deleted, twice,
			for range 2 {
				lose(name)
				// then it is admitted tokens again, after a T at most,
				lost := time.Now()
				for before := admitted; admitted < before+10; {
					if ask(); time.Since(lost) > time.Minute {
						t.Fatalf("%s was lost: not admitted again; %+v", name, l.Stats())
					}
				}
				d := time.Since(lost)
				check(t, !p.virtual || d <= 2*lifetime+100*time.Millisecond,
					"%s was lost: 10 at 200/s took %v", name, d)
			}
			// and never more than one bucket has.
			elapsed := time.Since(from)
			most := limit.Capacity() + int64(elapsed)*limit.Tokens/int64(limit.Per)
			check(t, admitted <= most,
				"%s was lost: %d admitted in %v, one bucket has %d", name, admitted, elapsed, most)
			if p.virtual {
				bound.check(t)
			}
			noErr(t, l.Shutdown(t.Context()))
		}
	})
}
