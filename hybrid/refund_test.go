package hybrid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a
// release twice, #7329.) So here, and a key at rest is woken.
func TestPeerRefundsComeBackOnceAndAreCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *world) {
		for _, pause := range []time.Duration{0, 50 * time.Millisecond, ttl, 10 * ttl, time.Minute} {
			if pause > 0 && !t.virtual() {
				break
			}
			l, key := t.process(hourly), pause.String()
			must(t, l.AllowN(key, 8), "denied")
			time.Sleep(pause)
			must(t, pause < 10*ttl || l.Stats().InUse == 0, "not at rest after %v", pause)
			l.Refund(key, 2)
			l.Key(key).Refund(3)
			// The bucket has them again, and not more of them after another report.
			t.eventually("7 in the bucket", key, func(level int64) bool { return level >= 7 })
			must(t, l.Allow(key), "denied")
			equal(t, t.settled(key), 6, "in the bucket after 5 came back and 1 was taken")
			equal(t, l.Stats().Refunded, 5, "refunded")
			// Of more than were ever taken there is one burst.
			for range 5 {
				l.Refund(key, 1000)
			}
			t.eventually("a full bucket", key, func(level int64) bool { return level >= 10 })
			equal(t, t.settled(key), 10, "in the bucket after a refund of 5000, the burst is 10")
			equal(t, t.left(key, hourly), 10, "were taken after a refund of 5000, the burst is 10")
		}
	})
}

// A refund that a failed call did not take is brought as soon as the store is back, and does not
// keep its key for ever: the table has room again.
func TestARefundSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Limits: limits(hourly), KeysMax: 1})
		l.AllowN("k", 8)
		time.Sleep(time.Minute)
		t.every(away)
		l.Refund("k", 5)
		time.Sleep(2 * time.Second)
		t.setJudge(nil)
		time.Sleep(time.Hour)
		t.has("k", 8, 0) // 2 + 1 + 5
		time.Sleep(100 * 24 * time.Hour)
		equal(t, l.Stats().Keys, 0, "keys in the table after 100 idle days")
		_, err := l.Take(t.Context(), "d", 1)
		noErr(t, err)
	})
}

// Redisson and Bucket4j: after a reset the whole burst can be had, whatever was spent before, and
// however lately.
func TestPeerAResetFillsTheBucket(t *testing.T) {
	everywhere(t, func(t *world) {
		for _, c := range []struct{ burst, spent int64 }{
			{10, 10}, {100, 50}, {100, 100}, {10, 0}, {1, 1}, {1000, 999},
		} {
			limit, key := hybrid.PerHour(1).WithBurst(c.burst), fmt.Sprint(c)
			l := t.start(by(hybrid.Policy{MinBatch: 16}, limit))
			must(t, admits(int(c.spent), 0, func() bool { return l.Allow(key) }) == int(c.spent), "%v: denied", c)
			for range 2 {
				noErr(t, l.Reset(t.Context(), key))
				n := drain(l, key)
				check(t, n == c.burst, "%v: %d were admitted after a reset", c, n)
			}
			s := conserved(t, l)
			check(t, s.Burnt == 0, "%v: %+v", c, s)
		}
	})
}

// What others hold bounds what a reset can fill; they know of it a TTL later at the latest.
func TestAResetIsForAll(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		// Given another process that holds 4 of 10, having spent 1 of 5,
		cfg := by(hybrid.Policy{MinBatch: 5}, hourly)
		other, l := t.start(cfg), t.start(cfg)
		must(t, other.Allow("k") && other.Stats().Held == 4, "%+v", other.Stats())
		// when a process resets the bucket, then it can have what the other's lease leaves.
		noErr(t, l.Reset(t.Context(), "k"))
		equal(t, drain(l, "k"), 6, "of 10 were admitted beside a lease of 4")
		n := drain(other, "k")
		check(t, n >= 4 && !other.Allow("k"), "%d of the 4 held", n)
		noErr(t, l.Reset(t.Context(), "k"))
		check(t, l.Allow("k"), "denied after a reset")
		time.Sleep(afterTTL)
		check(t, other.Allow("k"), "another process is denied a TTL after the reset")
	})
}

// A reset of a bucket whose store is away ends like every other operation.
func TestAResetDoesNotHangWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hourly)
		l.Allow("k")
		t.setControl(lease.ErrUnavailable)
		for _, v := range []verdict{away, {lost: true}, {until: make(chan struct{})}} {
			t.every(v)
			t.lasts(0, time.Second, func() { isErr(t, l.Reset(t.Context(), "k"), hybrid.ErrUnavailable) })
			t.every(verdict{})
			time.Sleep(time.Minute)
		}
	})
}
