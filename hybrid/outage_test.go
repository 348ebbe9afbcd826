package hybrid_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// warm is a limiter whose key "k" is in steady use and holds tokens.
func warm(t *testing.T, s *faultyStore, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := start(t, s, cfg)
	for range 500 {
		l.Allow("k")
		time.Sleep(2 * time.Millisecond)
	}
	if l.Stats().Held == 0 {
		t.Fatal("the key holds nothing")
	}
	return l
}

// While a call hangs, a warm key serves what it holds without waiting.
func TestAWarmKeyServesWhileACallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		// Given a store that hangs from now on, and holds its caller too,
		hang := make(chan struct{})
		defer close(hang)
		s.every(verdict{late: hang, deaf: true})
		held := l.Stats().Held
		// when all that is held is taken, through the watermark where the prefetch starts,
		d := took(func() {
			for i := range held {
				if !l.Allow("k") {
					t.Fatalf("request %d of %d held was denied", i+1, held)
				}
				synctest.Wait()
			}
		})
		// then nobody has waited.
		if d != 0 {
			t.Errorf("waited %v", d)
		}
		if l.Stats().Held != 0 {
			t.Error("something is left")
		}
	})
}

// TryAllow never waits, Allow waits CallTimeout at most, and from the first failure on nobody waits at all.
func TestNobodyWaitsLongForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		hang := make(chan struct{})
		defer close(hang)
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(100)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		l.AllowN("k", 100) // all there is
		time.Sleep(2 * time.Second)
		s.every(verdict{late: hang, deaf: true})
		for l.TryAllow("k") {
		}
		if d := took(func() { l.TryAllow("k") }); d != 0 {
			t.Errorf("TryAllow waited %v", d)
		}
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
		// then those of the first CallTimeout wait until it ends, and later ones not at all, for five seconds.
		if longest > 100*time.Millisecond {
			t.Errorf("somebody waited %v", longest)
		}
		if last > 100*time.Millisecond {
			t.Errorf("somebody who came after %v still waited", last)
		}
		if st := l.Stats(); st.Errors == 0 {
			t.Errorf("a call that hangs is not an error: %+v", st)
		}
	})
}

// Probes come one at a time and ever less often, at least one every T; a call that succeeds ends the outage.
func TestProbesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		s.every(verdict{err: lease.ErrUnavailable})
		_, before := s.counts()
		for range 10000 {
			l.TryAllow("k")
			time.Sleep(time.Millisecond)
		}
		_, after := s.counts()
		// T is 400 ms and the jitter is full: 50 probes in 10 s on average.
		t.Logf("%d probes in 10 s", after-before)
		if n := after - before; n < 25 || n > 100 {
			t.Errorf("%d probes in 10 s", n)
		}
		s.every(verdict{})
		admitted := 0
		for range 400 {
			if l.TryAllow("k") {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		for range 1000 {
			if l.TryAllow("k") {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		if admitted < 1000 {
			t.Errorf("%d admitted in the 1.4 s after the outage", admitted)
		}
	})
}

// Nobody probes on behalf of a key that nobody uses.
func TestAnIdleKeyDoesNotProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		s.every(verdict{err: lease.ErrUnavailable})
		time.Sleep(5 * time.Second)
		_, before := s.counts()
		time.Sleep(time.Hour)
		if _, after := s.counts(); after != before {
			t.Errorf("%d calls in an idle hour", after-before)
		}
		if st := l.Stats(); st.Held != 0 || st.Keys != 0 {
			t.Errorf("%+v", st)
		}
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
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				cfg := hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{Fallback: c.fallback}}
				other := start(t, s, cfg)
				l := start(t, s, cfg)
				for range 500 { // Given two processes that know of each other,
					l.Allow("k")
					other.Allow("k")
					time.Sleep(2 * time.Millisecond)
				}
				hang := make(chan struct{})
				defer close(hang)
				s.every(verdict{late: hang, deaf: true}) // and a store that hangs,
				for l.TryAllow("k") {                    // when what is held is spent
				}
				time.Sleep(200 * time.Millisecond)
				fallback := l.Stats().Fallback
				admitted := int64(0)
				for range 20000 {
					ok := false
					if d := took(func() { ok = l.Allow("k") }); d > 0 {
						t.Fatalf("waited %v", d)
					}
					if ok {
						admitted++
					}
					time.Sleep(500 * time.Microsecond)
				}
				// then so many are admitted, and all of them are owed.
				if admitted < c.least || admitted > c.most {
					t.Errorf("%d admitted, want %d to %d", admitted, c.least, c.most)
				}
				if got := l.Stats().Fallback - fallback; got != admitted {
					t.Errorf("Stats counts %d as fallback, were %d", got, admitted)
				}
				r, err := l.Take(t.Context(), "k", 1)
				if err != nil || r.Source != hybrid.SourceFallback {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// The requests that wait when a call turns out to hang are told by the fallback, not just denied.
func TestWaitersOfAHangingCallGetTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(100)), Policy: hybrid.Policy{Fallback: hybrid.FallbackAllowAll}})
		for l.Allow("k") {
		}
		time.Sleep(time.Second)
		hang := make(chan struct{})
		defer close(hang)
		s.every(verdict{late: hang, deaf: true})
		for l.TryAllow("k") {
		}
		time.Sleep(time.Second)
		var ok bool
		if d := took(func() { ok = l.Allow("k") }); !ok || d > 100*time.Millisecond {
			t.Errorf("%v after %v", ok, d)
		}
	})
}

// What was admitted without tokens is repaid when the store is back: over the outage and after it no more
// is admitted than the bucket would have.
func TestDebtIsRepaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(100)), Policy: hybrid.Policy{Fallback: hybrid.FallbackAllowAll}})
		admitted := int64(0)
		count := func(ok bool) {
			if ok {
				admitted++
			}
		}
		count(l.Allow("k"))
		s.every(verdict{err: lease.ErrUnavailable})
		for range 30 {
			count(l.Allow("k"))
		}
		s.every(verdict{})
		time.Sleep(5 * time.Second)
		if b := s.state(t, "k"); b.Levels[0]+b.Ledger != 100-admitted {
			t.Errorf("admitted %d of 100, the bucket has %d and %d leased; %+v", admitted, b.Levels[0], b.Ledger, l.Stats())
		}
	})
}

// A network slower than CallTimeout starves nobody: late replies count, and teach how long to wait.
func TestASlowNetworkDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		s.every(verdict{delay: 150 * time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		admitted := 0
		for range 10000 {
			if l.TryAllow("k") {
				admitted++
			}
			time.Sleep(2 * time.Millisecond)
		}
		st := l.Stats()
		t.Logf("%d of 10000; %+v", admitted, st)
		if admitted < 9000 {
			t.Errorf("%d of 10000 requests at half of the limit were admitted: %+v", admitted, st)
		}
		if st.Errors > 5 {
			t.Errorf("%d calls were given up", st.Errors)
		}
	})
}

// However long a store hangs, what is made of it stays within bounds: the time until a call is given up does not
// grow, nor does T with it.
func TestAHangingStoreTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny}})
		s.every(verdict{lost: true})
		for range 2000 {
			l.TryAllow("k")
			time.Sleep(30 * time.Millisecond)
		}
		if r := s.last(); r.Config.TTL != 400*time.Millisecond {
			t.Errorf("T has become %v", r.Config.TTL)
		}
		s.every(verdict{})
		from := time.Now()
		for !l.TryAllow("k") {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(from); d > 900*time.Millisecond {
			t.Errorf("the first token came %v after the store", d)
		}
	})
}
