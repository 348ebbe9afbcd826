package hybrid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// expireIn lets d pass for the expiry of everything stored. Redis's own clock does not run faster for a test, so there
// every key's time to live is cut; one that would live for ever is an error.
func (p *place) expireIn(t *testing.T, d time.Duration) {
	t.Helper()
	if p.virtual {
		time.Sleep(d)
		return
	}
	for _, key := range p.redisKeys(t) {
		left, err := p.rdb.PTTL(t.Context(), key).Result()
		if err == nil && left > 0 {
			err = p.rdb.PExpire(t.Context(), key, left-d).Err() // deletes what has no time left
		}
		if err != nil || left == -1 {
			t.Fatalf("%s lives %v, %v", key, left, err)
		}
	}
}

// Redisson, testKeepAliveTime: using a limiter renews its time to live; Bucket4j: as long as a full refill takes.
func TestPeerUseRenewsAnIdleKeysExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given three keys in use, whose buckets are remembered for two minutes and not for four,
		l := p.limiter(t, hybrid.Config{Limits: limits(hybrid.PerMinute(1).WithBurst(2)), Policy: hybrid.Policy{TTL: 10 * time.Second}})
		keys := []string{"used", "looked at", "left alone"}
		for _, key := range keys {
			if !l.Allow(key) {
				t.Fatal("denied")
			}
		}
		// when one of them is used again before it expires, one is looked at, and one is left alone,
		p.expireIn(t, 100*time.Second)
		for _, key := range keys {
			if !p.remembers(t, key) {
				t.Fatalf("%q was forgotten before its time", key)
			}
		}
		l.Allow("used")
		if _, err := l.Peek(t.Context(), "looked at"); err != nil {
			t.Fatal(err)
		}
		p.settled(t, "used")
		p.expireIn(t, 100*time.Second)
		// then the first is remembered, and only the first: looking is no use.
		for i, key := range keys {
			if got, want := p.remembers(t, key), i == 0; got != want {
				t.Errorf("%q is remembered: %v, want %v; Redis has %v", key, got, want, p.redisKeys(t))
			}
		}
	})
}

// Redisson, testExpire and testExpire2: when a limiter has expired, no key of it is left. (It once left some for ever,
// redisson#4007.)
func TestPeerAnExpiredKeyLeavesNothingBehind(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given keys that three processes have used in all ways: leased ahead, denied, refunded, waited for, set, reset,
		limit := hybrid.PerMinute(6000).WithBurst(500)
		for range 3 {
			l := p.process(t, limit)
			for range 300 {
				l.Allow("asked")
			}
			l.AllowN("refunded", 5)
			l.Refund("refunded", 5)
			if err := l.WaitN(t.Context(), "waited for", 3); err != nil {
				t.Fatal(err)
			}
			if err := l.Reset(t.Context(), "asked"); err != nil {
				t.Fatal(err)
			}
			if err := l.SetLimits(t.Context(), "set", limit); err != nil {
				t.Fatal(err)
			}
			l.Allow("set")
			if err := l.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// when they are left alone until they expire - a month where limits were set at run time, minutes otherwise -
		p.expireIn(t, 10*time.Minute)
		for _, key := range p.redisKeys(t) {
			if !strings.Contains(key, "{set}") {
				t.Errorf("after ten minutes there is %s", key)
			}
		}
		if !p.remembers(t, "set") {
			t.Error("limits that were set are forgotten after ten minutes")
		}
		p.expireIn(t, 31*24*time.Hour)
		// then there is nothing,
		for _, key := range []string{"asked", "refunded", "waited for", "set"} {
			if p.remembers(t, key) {
				t.Errorf("%q is remembered", key)
			}
		}
		if keys := p.redisKeys(t); len(keys) > 0 {
			t.Errorf("Redis has %v", keys)
		}
		// and who comes finds what a first comer finds.
		if l := p.process(t, limit); !l.AllowN("asked", 500) {
			t.Errorf("a forgotten bucket is not full: %+v", l.Stats())
		}
	})
}

// The same without help: Redis forgets the whole of it by itself.
func TestPeerAnExpiredKeyLeavesNothingBehindByItself(t *testing.T) {
	p := onRedisTime(t)
	// Given a bucket that is full again in a millisecond, and leases of ten,
	short := hybrid.Policy{Target: time.Millisecond, TTL: 10 * time.Millisecond}
	l := p.limiter(t, hybrid.Config{Limits: limits(hybrid.PerSecond(1000).WithBurst(1)), Policy: short})
	eventually(t, "a token", func() bool { return l.Allow("k") })
	if err := l.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	// when nobody comes any more, then nothing is left.
	eventually(t, "an empty Redis", func() bool { return len(p.redisKeys(t)) == 0 })
}
