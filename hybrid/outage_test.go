package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// warm is a limiter whose key "k" is in steady use and holds tokens.
func warm(t *testing.T, s *faultyStore, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := start(t, s, cfg)
	admits(500, 2*time.Millisecond, func() bool { return l.Allow("k") })
	must(t, l.Stats().Held != 0, "the key holds nothing")
	return l
}

// While a call hangs, a warm key serves what it holds without waiting.
func TestAWarmKeyServesWhileACallHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := warm(t, s, of(hybrid.PerSecond(1000)))
		// Given a store that hangs from now on, and holds its caller too,
		s.hangs(t)
		held := l.Stats().Held
		// when all that is held is taken, through the watermark where the prefetch starts,
		d := took(func() {
			for i := range held {
				must(t, l.Allow("k"), "request %d of %d held was denied", i+1, held)
				synctest.Wait()
			}
		})
		// then nobody has waited.
		check(t, d == 0, "waited %v", d)
		check(t, l.Stats().Held == 0, "something is left")
	})
}

// TryAllow never waits, Allow waits CallTimeout at most, and from the first failure on nobody waits
// at all.
func TestNobodyWaitsLongForAStoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		hang := make(chan struct{})
		defer close(hang)
		l := start(t, s, by(denying, hybrid.PerSecond(100)))
		l.AllowN("k", 100) // all there is
		time.Sleep(2 * time.Second)
		s.every(verdict{late: hang, deaf: true})
		for l.TryAllow("k") {
		}
		d := took(func() { l.TryAllow("k") })
		check(t, d == 0, "TryAllow waited %v", d)
		// Given callers that come all the time,
		var wg sync.WaitGroup
		begin := time.Now()
		var mu sync.Mutex
		var longest, last time.Duration
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				at := time.Since(begin)
				d := took(func() { l.Allow("k") })
				mu.Lock()
				defer mu.Unlock()
				if longest = max(longest, d); d > 0 {
					last = max(last, at)
				}
			})
		}
		wg.Wait()
		// then those of the first CallTimeout wait until it ends, and later ones not at all, for
		// five seconds.
		check(t, longest <= 100*time.Millisecond, "somebody waited %v", longest)
		check(t, last <= 100*time.Millisecond, "somebody who came after %v still waited", last)
		st := l.Stats()
		check(t, st.Errors != 0, "a call that hangs is not an error: %+v", st)
	})
}

// Probes come one at a time and ever less often, at least one every T; a call that succeeds ends
// the outage.
func TestProbesBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := warm(t, s, by(denying, hybrid.PerSecond(1000)))
		s.every(away)
		_, before := s.counts()
		admits(10_000, time.Millisecond, func() bool { return l.TryAllow("k") })
		_, after := s.counts()
		// T is 400 ms and the jitter is full: 50 probes in 10 s on average.
		n := after - before
		check(t, n >= 25 && n <= 100, "%d probes in 10 s", n)
		s.every(verdict{})
		admitted := admits(1400, time.Millisecond, func() bool { return l.TryAllow("k") })
		check(t, admitted >= 1000, "%d admitted in the 1.4 s after the outage", admitted)
	})
}

// Nobody probes on behalf of a key that nobody uses.
func TestAnIdleKeyDoesNotProbe(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := warm(t, s, of(hybrid.PerSecond(1000)))
		s.every(away)
		time.Sleep(5 * time.Second)
		s.silent(t, time.Hour)
		st := l.Stats()
		check(t, st.Held == 0 && st.Keys == 0, "%+v", st)
	})
}

// Once the holding is spent, an outage is served as Policy.Fallback says.
func TestFallbacks(t *testing.T) {
	for _, c := range []struct {
		name        string
		fallback    hybrid.Fallback
		least, most int64 // admitted of 20,000 requests in 10 s, limit 1000/s, two processes
	}{
		{"deny", hybrid.FallbackDeny, 0, 0},
		{"local share", hybrid.FallbackLocalShare, 5000, 5500},
		{"allow all", hybrid.FallbackAllowAll, 20000, 20000},
	} {
		bubbleOf(t, c.name, func(t *testing.T, s *faultyStore) {
			cfg := by(hybrid.Policy{Fallback: c.fallback}, hybrid.PerSecond(1000))
			other := start(t, s, cfg)
			l := start(t, s, cfg)
			for range 500 { // Given two processes that know of each other,
				l.Allow("k")
				other.Allow("k")
				time.Sleep(2 * time.Millisecond)
			}
			s.hangs(t)            // and a store that hangs,
			for l.TryAllow("k") { // when what is held is spent
			}
			time.Sleep(200 * time.Millisecond)
			fallback := l.Stats().Fallback
			admitted := int64(admits(20_000, 500*time.Microsecond, func() (ok bool) {
				d := took(func() { ok = l.Allow("k") })
				must(t, d == 0, "waited %v", d)
				return ok
			}))
			// then so many are admitted, and all of them are owed.
			check(t, admitted >= c.least && admitted <= c.most,
				"%d admitted, want %d to %d", admitted, c.least, c.most)
			got := l.Stats().Fallback - fallback
			check(t, got == admitted, "Stats counts %d as fallback, were %d", got, admitted)
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
		})
	}
}

// The requests that wait when a call turns out to hang are told by the fallback, not just denied.
func TestWaitersOfAHangingCallGetTheFallback(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, hybrid.PerSecond(100)))
		drain(l, "k")
		time.Sleep(time.Second)
		s.hangs(t)
		for l.TryAllow("k") {
		}
		time.Sleep(time.Second)
		var ok bool
		d := took(func() { ok = l.Allow("k") })
		check(t, ok && d <= 100*time.Millisecond, "%v after %v", ok, d)
	})
}

// What was admitted without tokens is repaid when the store is back: over the outage and after it
// no more is admitted than the bucket would have.
func TestDebtIsRepaid(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, hybrid.PerHour(1).WithBurst(100)))
		must(t, l.Allow("k"), "denied")
		s.every(away)
		admitted := 1 + int64(admits(30, 0, func() bool { return l.Allow("k") }))
		s.every(verdict{})
		time.Sleep(5 * time.Second)
		b := s.state(t, "k")
		check(t, b.Levels[0]+b.Ledger == 100-admitted,
			"admitted %d of 100, the bucket has %d and %d leased; %+v", admitted, b.Levels[0], b.Ledger, l.Stats())
	})
}

// A network slower than CallTimeout starves nobody: late replies count, and teach how long to wait.
func TestASlowNetworkDoesNotStarve(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: 150 * time.Millisecond})
		l := start(t, s, by(denying, hybrid.PerSecond(1000)))
		admitted := admits(10000, 2*time.Millisecond, func() bool { return l.TryAllow("k") })
		st := l.Stats()
		check(t, admitted >= 9900,
			"%d of 10000 requests at half of the limit were admitted: %+v", admitted, st)
		check(t, st.Errors <= 5, "%d calls were given up", st.Errors)
	})
}

// However long a store hangs, what is made of it stays within bounds: the time until a call is
// given up does not grow, nor does T with it.
func TestAHangingStoreTeachesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := warm(t, s, by(denying, hybrid.PerSecond(1000)))
		s.every(verdict{lost: true})
		admits(2000, 30*time.Millisecond, func() bool { return l.TryAllow("k") })
		r := s.last()
		check(t, r.Config.TTL == 400*time.Millisecond, "T has become %v", r.Config.TTL)
		s.every(verdict{})
		d := until(time.Millisecond, func() bool { return l.TryAllow("k") })
		check(t, d <= 2*ttl, "the first token came %v after the store", d)
	})
}
