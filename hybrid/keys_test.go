package hybrid_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// What cannot be asked is answered with an error by Take, with false by the others, and counted.
func TestInvalidRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10), hybrid.PerHour(5)))
		for _, c := range []struct {
			key  string
			n    int64
			want error
		}{
			{"", 1, hybrid.ErrInvalidKey},
			{"k", -1, hybrid.ErrInvalidN},
			{"k", math.MinInt64, hybrid.ErrInvalidN},
			{"k", 6, hybrid.ErrExceedsBurst}, // of the second limit
			{"k", math.MaxInt64, hybrid.ErrExceedsBurst},
		} {
			before := l.Stats().Invalid
			check(t, !l.AllowN(c.key, c.n) && !l.Key(c.key).AllowN(c.n),
				"%q, %d was admitted", c.key, c.n)
			r, err := l.Take(t.Context(), c.key, c.n)
			check(t, errors.Is(err, c.want) && !r.OK,
				"%q, %d: %+v, %v, want %v", c.key, c.n, r, err, c.want)
			got := l.Stats().Invalid - before
			check(t, got == 3, "%q, %d: counted %d times", c.key, c.n, got)
		}
		check(t, !l.Allow("") && !l.TryAllow("") && !l.Key("").Allow() && !l.Key("").TryAllow(),
			"an empty key was admitted")
		// A refund of a key that nobody has used is none.
		before := l.Stats()
		l.Refund("", 1)
		l.Refund("new", -1)
		l.Refund("new", 0)
		l.Refund("new", 5)
		keys := l.Stats().Keys
		check(t, l.Stats().Invalid == before.Invalid+2 && keys == before.Keys,
			"%+v, before %+v", l.Stats(), before)
		// n = 0 is true and costs nothing, not even an entry.
		check(t, l.AllowN("zero", 0) && l.Key("zero").AllowN(0) && l.Stats().Keys == keys,
			"0 tokens were denied, or made an entry")
		// Nothing of all this was taken, called for, or taken for demand.
		time.Sleep(time.Second)
		_, calls := s.counts()
		check(t, calls == 0, "%d calls", calls)
		st := l.Stats()
		check(t, st.Denied == 0 && st.Admitted == 0, "%+v", st)
		check(t, l.AllowN("k", 5) && !l.Allow("k"), "the burst is not what it was")
	})
}

// A request above the burst does not look like demand on a key that is in use.
func TestAnOversizedRequestIsNotDemand(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(1000)))
		for range 1000 {
			l.Allow("k")
			l.AllowN("k", math.MaxInt64)
			time.Sleep(10 * time.Millisecond)
			r := s.last()
			must(t, r.Want <= 120, "100 requests a second asked for %d tokens", r.Want)
		}
		st := l.Stats()
		check(t, st.Denied == 0 && st.Invalid == 1000, "%+v", st)
	})
}

// The limits belong to the Limiter from New on, and bad ones of a single key are that key's error.
func TestLimitsAreTheLimitersOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		mine := limits(hybrid.PerHour(2))
		l := start(t, s, hybrid.Config{Limits: mine, LimitsFor: func(key string) []hybrid.Limit {
			if key == "bad" {
				return limits(hybrid.PerSecond(0))
			}
			return nil
		}})
		mine[0] = hybrid.PerHour(100)
		check(t, l.AllowN("k", 2) && !l.Allow("k"), "the limit followed the caller's slice")
		_, err := l.Take(t.Context(), "bad", 1)
		check(t, errors.Is(err, lease.ErrInvalidLimit) && errors.Is(err, hybrid.ErrInvalidConfig),
			"%v", err)
	})
}

// An idle key leaves the table once its bucket is full again and all leases have ended; a Key goes
// on working.
func TestIdleKeysLeaveTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10)))
		k := l.Key("k")
		for k.Allow() {
		}
		denied := l.Stats().Denied
		time.Sleep(1200 * time.Millisecond) // time to full is 1 s, T is 400 ms
		equal(t, l.Stats().Keys, 1, "keys after 1.2 s")
		time.Sleep(2 * time.Second)
		st := l.Stats()
		check(t, st.Keys == 0 && st.Admitted == 10 && st.Denied == denied,
			"%+v: want no key left, and its account kept", st)
		equal(t, drain(l, "k"), 10, "admitted after the eviction")
	})
}

// At KeysMax the longest idle key makes room, one whose bucket is known to be empty included; keys
// in use stay, and a new key is refused while all are.
func TestKeysMaxEvictsTheLongestIdle(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(60).WithBurst(1)), KeysMax: 3,
			Policy: hybrid.Policy{TTL: time.Minute}})
		// Given a full table: a and b are idle, a for longer; both are denied for a minute,
		for _, key := range []string{"a", "b", "c"} {
			must(t, l.Allow(key) && !l.Allow(key), "the burst is 1")
			time.Sleep(time.Second)
		}
		calls := func(key string) (n int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, k := range s.keys {
				if k == key {
					n++
				}
			}
			return n
		}
		// when a fourth comes,
		must(t, l.Allow("d"), "a new key found no room")
		equal(t, l.Stats().Keys, 3, "keys")
		// then a is gone, and asks the bucket again, while b is still known to be empty.
		before := calls("b")
		check(t, !l.Allow("b") && calls("b") == before, "b was evicted before a")
		before = calls("a")
		check(t, !l.Allow("a") && calls("a") != before, "a was not evicted, or its bucket forgot")
	})
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a table full of keys that hold tokens,
		l := start(t, s, hybrid.Config{
			Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{MinBatch: 2}, KeysMax: 3,
		})
		for i := range 3 {
			must(t, l.Allow(fmt.Sprint(i)), "denied")
		}
		_, err := l.Take(t.Context(), "new", 1)
		isErr(t, err, hybrid.ErrUnavailable)
		for i := range 3 {
			check(t, l.Allow(fmt.Sprint(i)), "a key in use was denied because the table is full")
		}
		// When they have given back, there is room.
		time.Sleep(time.Second)
		check(t, l.Allow("new"), "denied")
	})
}

// Many more keys than fit: none is denied, and the counts of those that left stay.
func TestATableOfManyShortLivedKeys(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(2)), KeysMax: 50})
		last := int64(0)
		for i := range 2000 {
			must(t, l.AllowN(fmt.Sprint(i), 2), "key %d was denied", i)
			synctest.Wait()
			st := l.Stats()
			must(t, st.Keys <= 50 && st.Admitted >= last, "%+v, admitted before %d", st, last)
			last = st.Admitted
		}
		check(t, last == 4000, "admitted %d", last)
	})
}

// A request that no call is made for does not keep its key in the table: otherwise requests above
// the burst, under names that nobody uses twice, would fill it for good.
func TestAKeyThatNeverLeasedLeavesTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(10)), KeysMax: 4})
		for i := range 20 {
			check(t, !l.AllowN(fmt.Sprint(i), 11), "more than the burst was admitted")
			synctest.Wait()
		}
		check(t, l.Allow("another"), "no room for another key: %+v", l.Stats())
		time.Sleep(time.Minute)
		check(t, l.Stats().Keys == 0, "after a minute: %+v", l.Stats())
	})
}

// A process that asks for more than the burst only, and lost its store, finds out when the burst
// has grown.
func TestLargeRequestsFollowALimitAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		cfg := by(denying, hybrid.PerHour(10))
		setter, l := start(t, s, cfg), start(t, s, cfg)
		l.Allow("k")
		// Given a call that fails, and nobody who asks for less than eleven,
		s.every(away)
		drain(l, "k")
		time.Sleep(time.Minute)
		s.setJudge(nil)
		// when the burst becomes a hundred,
		noErr(t, setter.SetLimits(t.Context(), "k", hybrid.PerSecond(100)))
		// then they are served as soon as a probe says so, which comes within a T, and the tokens
		// are there.
		d := until(time.Millisecond, func() bool { return l.AllowN("k", 50) })
		check(t, d <= ttl+500*time.Millisecond, "served after %v: %+v", d, l.Stats())
	})
}
