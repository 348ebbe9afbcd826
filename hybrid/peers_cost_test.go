package hybrid_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// asked is the key of every lease call so far.
func (p *place) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.keys...)
}

// Redisson: more permits than the rate are an exception and not a wait. x/time/rate: AllowN above
// the burst fails, and the tokens are still there.
func TestPeerAboveBurstIsAnErrorAndTakesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		above := func() {
			t.Helper()
			r, err := l.Take(t.Context(), "k", 11)
			check(t, errors.Is(err, hybrid.ErrExceedsBurst) && !r.OK, "Take: %+v, %v", r, err)
			err = l.WaitN(t.Context(), "k", 11)
			check(t, errors.Is(err, hybrid.ErrExceedsBurst), "WaitN: %v", err)
			check(t, !l.AllowN("k", 11), "AllowN: admitted")
		}
		// When more than the burst is asked for on a key that nobody knows, then nothing is made of
		// it;
		above()
		check(t, !p.remembers(t, "k"), "the store remembers it")
		// on a key in use, then everything that is left is there, and it can be taken as one.
		must(t, l.AllowN("k", 3), "denied")
		above()
		check(t, l.AllowN("k", 7), "7 of 7 were denied: %+v", l.Stats())
	})
}

// redis_rate: AllowN of 0 costs nothing. x/time/rate: it is true also where nothing is left.
func TestPeerZeroCostsNothingAndCreatesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		nothing := func(key string) {
			t.Helper()
			r, err := l.Take(t.Context(), key, 0)
			check(t, err == nil && r.OK, "Take: %+v, %v", r, err)
			err = l.WaitN(t.Context(), key, 0)
			check(t, err == nil, "WaitN: %v", err)
			check(t, l.AllowN(key, 0) && l.Key(key).AllowN(0), "AllowN: denied")
		}
		// When none are asked for of a key that nobody knows, then nobody knows it afterwards;
		nothing("new")
		st := l.Stats()
		check(t, st.Keys == 0 && st.Calls == 0 && !p.remembers(t, "new"), "%+v", st)
		// of a key in use, then it costs none of them;
		must(t, l.AllowN("k", 4), "denied")
		nothing("k")
		equal(t, p.settled(t, "k"), 6, "of 6 left")
		// of an empty one, then they are had.
		drain(l, "k")
		nothing("k")
		check(t, l.Stats().Admitted == 10, "%+v", l.Stats())
	})
}

// x/time/rate and Bucket4j: what is turned down, by whichever verb, takes nothing with it.
func TestPeerARejectedCallNeverConsumes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given 6 tokens of 10,
		l := p.process(t, hourly)
		must(t, l.AllowN("k", 4), "denied")
		// when 7 are asked for again and again,
		for range 10 {
			must(t, !l.AllowN("k", 7), "7 of 6 were admitted")
			r, err := l.Take(t.Context(), "k", 7)
			must(t, err == nil && !r.OK, "%+v, %v", r, err)
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			isErr(t, l.WaitN(soon, "k", 7), hybrid.ErrWouldExceedDeadline)
			cancel()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			isErr(t, l.Wait(ended, "k"), context.Canceled)
		}
		// then 6 are still there, to the token.
		equal(t, p.left(t, "k", hourly), 6, "left")
		check(t, l.Stats().Admitted == 4, "%+v", l.Stats())
	})
}

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a
// release twice, #7329.)
func TestPeerRefundIsCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given an empty bucket,
		l := p.process(t, hourly)
		must(t, l.AllowN("k", 10), "denied")
		// when 4 come back,
		l.Refund("k", 4)
		// then there are 4, and not more of them after another report.
		testkit.Eventually(t, "4 in the bucket", func() bool { return p.state(t, "k").Levels[0] >= 4 })
		if !l.Allow("k") || p.settled(t, "k") != 3 {
			t.Errorf("after 4 came back and 1 was taken: %+v", p.state(t, "k"))
		}
		// When more come back than were ever taken,
		for range 5 {
			l.Refund("k", 1000)
		}
		testkit.Eventually(t, "a full bucket", func() bool { return p.state(t, "k").Levels[0] >= 10 })
		// then there is one burst, to look at and to take.
		equal(t, p.settled(t, "k"), 10, "in the bucket after a refund of 5000, the burst is 10")
		equal(t, p.left(t, "k", hourly), 10, "were taken after a refund of 5000, the burst is 10")
	})
}

// expireIn lets d pass for the expiry of everything stored. Redis's own clock does not run faster
// for a test, so there every key's time to live is cut; one that would live for ever is an error.
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
		must(t, err == nil && left != -1, "%s lives %v, %v", key, left, err)
	}
}

// Redisson, testKeepAliveTime: using a limiter renews its time to live; Bucket4j: as long as a full
// refill takes.
func TestPeerUseRenewsAnIdleKeysExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given three keys in use, whose buckets are remembered for two minutes and not for four,
		l := p.limiter(t, by(hybrid.Policy{TTL: 10 * time.Second}, hybrid.PerMinute(1).WithBurst(2)))
		keys := []string{"used", "looked at", "left alone"}
		for _, key := range keys {
			must(t, l.Allow(key), "denied")
		}
		// when one of them is used again before it expires, one is looked at, and one is left
		// alone,
		p.expireIn(t, 100*time.Second)
		for _, key := range keys {
			must(t, p.remembers(t, key), "%q was forgotten before its time", key)
		}
		l.Allow("used")
		_, err := l.Peek(t.Context(), "looked at")
		must(t, err == nil, "%v", err)
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

// Redisson, testExpire and testExpire2: when a limiter has expired, no key of it is left. (It once
// left some for ever, redisson#4007.)
func TestPeerAnExpiredKeyLeavesNothingBehind(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given keys that three processes have used in all ways: leased ahead, denied, refunded,
		// waited for, set, reset,
		limit := hybrid.PerMinute(6000).WithBurst(500)
		for range 3 {
			l := p.process(t, limit)
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
		p.expireIn(t, 10*time.Minute)
		for _, key := range p.redisKeys(t) {
			check(t, strings.Contains(key, "{set}"), "after ten minutes there is %s", key)
		}
		check(t, p.remembers(t, "set"), "limits that were set are forgotten after ten minutes")
		p.expireIn(t, 31*24*time.Hour)
		// then there is nothing,
		for _, key := range []string{"asked", "refunded", "waited for", "set"} {
			check(t, !p.remembers(t, key), "%q is remembered", key)
		}
		keys := p.redisKeys(t)
		check(t, len(keys) == 0, "Redis has %v", keys)
		// and who comes finds what a first comer finds.
		l := p.process(t, limit)
		check(t, l.AllowN("asked", 500), "a forgotten bucket is not full: %+v", l.Stats())
	})
}

// The same without help: Redis forgets the whole of it by itself.
func TestPeerAnExpiredKeyLeavesNothingBehindByItself(t *testing.T) {
	p := onRedisTime(t)
	// Given a bucket that is full again in a millisecond, and leases of ten,
	short := hybrid.Policy{Target: time.Millisecond, TTL: 10 * time.Millisecond}
	l := p.limiter(t, by(short, hybrid.PerSecond(1000).WithBurst(1)))
	testkit.Eventually(t, "a token", func() bool { return l.Allow("k") })
	noErr(t, l.Shutdown(t.Context()))
	// when nobody comes any more, then nothing is left.
	testkit.Eventually(t, "an empty Redis", func() bool { return len(p.redisKeys(t)) == 0 })
}
