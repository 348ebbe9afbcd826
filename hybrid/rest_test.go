package hybrid_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// rested is a limiter whose key was used, gave back, and went to rest.
func rested(t *testing.T, s *faultyStore, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := start(t, s, cfg)
	must(t, l.Allow("k"), "denied")
	time.Sleep(2 * time.Second)
	st := l.Stats()
	must(t, st.Keys == 1 && st.InUse == 0 && st.Admitted == 1, "the key should be at rest: %+v", st)
	return l
}

// A key at rest remembers its bucket: it notices the loss, and whoever lost it starts empty.
func TestAKeyAtRestNoticesThatItsBucketWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		limit := hybrid.PerHour(100)
		bound := newMeter(limit)
		l := rested(t, s, by(denying, limit))
		other := start(t, s, by(denying, limit))
		for range 99 {
			must(t, other.Allow("k"), "denied")
		}
		bound.admit(100)
		// When the bucket is lost, and the key that rests is used again,
		s.replace(lease.NewMemoryStore(nil))
		for range 100 {
			bound.admitIf(l.Allow("k"))
		}
		// then nothing is admitted above the bound.
		bound.check(t)
	})
}

// Limits that were set at run time come back with the key, though the store has lost them.
func TestAKeyAtRestRemembersLimitsThatWereSet(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerHour(100)))
		want := hybrid.PerHour(7)
		noErr(t, l.SetLimits(t.Context(), "k", want))
		l.Allow("k")
		time.Sleep(2 * time.Second)
		st := l.Stats()
		must(t, st.InUse == 0, "%+v", st)
		s.replace(lease.NewMemoryStore(nil))
		l.Allow("k")
		synctest.Wait()
		limitsAre(t, l, "k", want)
	})
}

// A refund wakes a key at rest, and reaches the bucket.
func TestARefundReachesTheBucketOfAKeyAtRest(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := rested(t, s, of(hybrid.PerHour(100)))
		before := s.state(t, "k").Levels[0]
		l.Refund("k", 1)
		time.Sleep(2 * time.Second)
		st := s.state(t, "k")
		check(t, st.Levels[0]+st.Ledger >= before+1, "the bucket had %d and has %d", before, st.Levels[0])
	})
}

// In an outage a key that rested is not a cold one: it gets its local share.
func TestAKeyAtRestKnowsItsShareInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := rested(t, s, of(hybrid.PerMinute(10)))
		s.every(away)
		admitted := drain(l, "k")
		check(t, admitted == 10, "%d admitted at once, the local burst is 10", admitted)
		// A key with a local bucket does not rest: it would forget what it has spent of it, and
		// have another local burst in the next outage.
		s.setJudge(nil)
		l.Allow("k") // sends a probe
		time.Sleep(3 * time.Second)
		s.every(away)
		admitted += drain(l, "k")
		check(t, admitted <= 11,
			"%d admitted in two outages of a few seconds, the local burst is 10 and a token flows in 6 s", admitted)
	})
}

// Keys of any name and length are told apart, at rest and in use, and a Key follows its own through
// both.
func TestManyKeysComeAndRestAndComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerHour(3)))
		name := func(i int) string { return fmt.Sprint(strings.Repeat("x", i%40), i) }
		const n = 5000 / testkit.Slowdown
		keys := make([]*hybrid.Key, n)
		for i := range n {
			keys[i] = l.Key(name(i))
			must(t, l.Allow(name(i)), "%d: denied", i)
		}
		time.Sleep(5 * time.Second)
		st := l.Stats()
		must(t, st.Keys == n && st.InUse == 0, "%+v", st)
		for i, k := range keys {
			must(t, k.Allow() && l.Allow(name(i)) && !k.Allow(), "%d: not three admitted in all", i)
		}
		st = l.Stats()
		check(t, st.Keys == n && st.Admitted == 3*n, "%+v", st)
		// After the time to fill all of them leave.
		time.Sleep(2 * time.Hour)
		st = l.Stats()
		check(t, st.Keys == 0 && st.Admitted == 3*n, "%+v", st)
	})
}

// A call that hangs does not keep the lease alive that it was to renew.
func TestALeaseEndsWhileItsRenewalHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a process that holds tokens for 400 ms and waits up to a second for a call,
		l := start(t, s, hybrid.Config{
			Limits:      limits(hybrid.PerSecond(10000)),
			Policy:      hybrid.Policy{TTL: 400 * time.Millisecond, Fallback: hybrid.FallbackDeny},
			CallTimeout: time.Second,
		})
		k := l.Key("k")
		began := time.Now()
		for time.Since(began) < time.Second {
			for range 5 {
				k.Allow()
			}
			time.Sleep(time.Millisecond)
		}
		// when its next call hangs,
		s.every(verdict{delay: time.Hour})
		_, before := s.counts()
		for calls := before; calls == before; _, calls = s.counts() {
			k.TryAllow()
			time.Sleep(time.Millisecond)
		}
		must(t, l.Stats().Held != 0, "nothing is held beside the call")
		time.Sleep(400 * time.Millisecond)
		// then what it held is gone when the lease ends, although the call is still awaited.
		synctest.Wait()
		st := l.Stats()
		check(t, st.Held == 0 && st.Errors == 0, "%+v", st)
		check(t, !k.TryAllow(), "a token of the lease that ended was spent")
	})
}

// A handle goes on working when its entry was evicted while the bucket was known to be empty.
func TestAKeyRejoinsAfterEvictionInTheDeniedState(t *testing.T) {
	verbs := map[string]func(*hybrid.Key) bool{
		"Allow":    (*hybrid.Key).Allow,
		"TryAllow": (*hybrid.Key).TryAllow,
		"AllowN":   func(k *hybrid.Key) bool { return k.AllowN(1) },
		"Take": func(k *hybrid.Key) bool {
			r, err := k.Take(context.Background(), 1)
			return err == nil && r.OK
		},
	}
	for name, verb := range verbs {
		bubble(t, func(t *testing.T, s *faultyStore) {
			// Given a table of one key, which is denied for ten seconds,
			l := start(t, s, hybrid.Config{Limits: limits(hybrid.Every(10 * time.Second)), KeysMax: 1})
			k := l.Key("a")
			must(t, k.Allow() && !k.Allow(), "the burst is 1")
			synctest.Wait()
			// when another key takes its place, and the ten seconds have passed,
			must(t, l.Allow("b"), "b found no room")
			time.Sleep(20 * time.Second)
			// then the handle is served again.
			ok := verb(k)
			if !ok { // TryAllow starts a call and is served by what that brings
				time.Sleep(10 * time.Millisecond)
				ok = verb(k)
			}
			if !ok {
				t.Errorf("%s is denied for ever: %+v", name, l.Stats())
			}
		})
	}
}
