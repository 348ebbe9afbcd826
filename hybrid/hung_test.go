package hybrid_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

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
