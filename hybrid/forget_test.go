package hybrid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// expireIn lets d pass for the expiry of everything stored. Redis's own clock does not run faster
// for a test, so there every key's time to live is cut; one that would live for ever is an error.
func (t *world) expireIn(d time.Duration) {
	t.Helper()
	if t.virtual() {
		time.Sleep(d)
		return
	}
	for _, key := range t.redisKeys() {
		left, err := t.rdb.PTTL(t.Context(), key).Result()
		if err == nil && left > 0 {
			err = t.rdb.PExpire(t.Context(), key, left-d).Err() // deletes what has no time left
		}
		must(t, err == nil && left != -1, "%s lives %v, %v", key, left, err)
	}
}

// Redisson, testKeepAliveTime: using a limiter renews its time to live; Bucket4j: as long as a full
// refill takes.
func TestPeerUseRenewsAnIdleKeysExpiry(t *testing.T) {
	everywhere(t, func(t *world) {
		// Given three keys in use, whose buckets are remembered for two minutes and not for four,
		l := t.start(by(hybrid.Policy{TTL: 10 * time.Second}, hybrid.PerMinute(1).WithBurst(2)))
		keys := []string{"used", "looked at", "left alone"}
		for _, key := range keys {
			must(t, l.Allow(key), "denied")
		}
		// when one of them is used again before it expires, one is looked at, and one is left
		// alone,
		t.expireIn(100 * time.Second)
		for _, key := range keys {
			must(t, t.remembers(key), "%q was forgotten before its time", key)
		}
		l.Allow("used")
		_, err := l.Peek(t.Context(), "looked at")
		must(t, err == nil, "%v", err)
		t.settled("used")
		t.expireIn(100 * time.Second)
		// then the first is remembered, and only the first: looking is no use.
		for i, key := range keys {
			if got, want := t.remembers(key), i == 0; got != want {
				t.Errorf("%q is remembered: %v, want %v; Redis has %v", key, got, want, t.redisKeys())
			}
		}
	})
}

// Redisson, testExpire and testExpire2: when a limiter has expired, no key of it is left. (It once
// left some for ever, redisson#4007.)
func TestPeerAnExpiredKeyLeavesNothingBehind(t *testing.T) {
	everywhere(t, func(t *world) {
		// Given keys that three processes have used in all ways: leased ahead, denied, refunded,
		// waited for, set, reset,
		limit := hybrid.PerMinute(6000).WithBurst(500)
		for range 3 {
			l := t.process(limit)
			for range 300 {
				l.Allow("asked")
			}
			l.AllowN("refunded", 5)
			l.Refund("refunded", 5)
			noErr(t, l.WaitN(t.Context(), "waited for", 3))
			noErr(t, l.Reset(t.Context(), "asked"))
			noErr(t, l.SetLimits(t.Context(), "set", limit))
			l.Allow("set")
			noErr(t, l.Shutdown(t.Context()))
		}
		// when they are left alone until they expire - a month where limits were set at run time,
		// minutes otherwise -
		t.expireIn(10 * time.Minute)
		for _, key := range t.redisKeys() {
			check(t, strings.Contains(key, "{set}"), "after ten minutes there is %s", key)
		}
		check(t, t.remembers("set"), "limits that were set are forgotten after ten minutes")
		t.expireIn(31 * 24 * time.Hour)
		// then there is nothing,
		for _, key := range []string{"asked", "refunded", "waited for", "set"} {
			check(t, !t.remembers(key), "%q is remembered", key)
		}
		keys := t.redisKeys()
		check(t, len(keys) == 0, "Redis has %v", keys)
		// and who comes finds what a first comer finds.
		l := t.process(limit)
		check(t, l.AllowN("asked", 500), "a forgotten bucket is not full: %+v", l.Stats())
	})
}

// The same without help: Redis forgets the whole of it by itself.
func TestPeerAnExpiredKeyLeavesNothingBehindByItself(outer *testing.T) {
	t := onRedisTime(outer)
	// Given a bucket that is full again in a millisecond, and leases of ten,
	short := hybrid.Policy{Target: time.Millisecond, TTL: 10 * time.Millisecond}
	l := t.start(by(short, hybrid.PerSecond(1000).WithBurst(1)))
	testkit.Eventually(t, "a token", func() bool { return l.Allow("k") })
	noErr(t, l.Shutdown(t.Context()))
	// when nobody comes any more, then nothing is left.
	testkit.Eventually(t, "an empty Redis", func() bool { return len(t.redisKeys()) == 0 })
}
