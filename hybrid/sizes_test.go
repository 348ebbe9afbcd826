package hybrid_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Requests of different sizes on one key: what the bucket lacks for a large one says nothing about a small one.

// Allow behind a wait for more than there is costs no call of its own.
func TestAllowBehindALargeWaitMakesNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(100))})
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			noErr(t, l.WaitN(t.Context(), "k", 100))
		})
		time.Sleep(500 * time.Millisecond)
		_, before := s.counts()
		for range 2000 {
			must(t, !l.Allow("k"), "Allow overtook a wait")
			time.Sleep(time.Millisecond)
		}
		_, after := s.counts()
		check(t, after-before <= 10, "%d lease calls in 2 s", after-before)
		wg.Wait()
	})
}

func TestASmallRequestDuringTheCallOfALargeOneIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(100))})
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		s.every(verdict{delay: 10 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { l.AllowN("k", 100) })
		time.Sleep(5 * time.Millisecond)
		if !l.Allow("k") {
			t.Errorf("one token was denied, the bucket has %d", s.state(t, "k").Levels[0])
		}
		wg.Wait()
	})
}

// A large request that is denied again and again does not keep TryAllow from a call of its own.
func TestTryAllowAfterALargeDenial(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(100)), Policy: hybrid.Policy{TTL: time.Minute}})
		l.AllowN("k", 50)
		time.Sleep(10 * time.Second)
		for range 2 {
			l.AllowN("k", 100)
			synctest.Wait()
		}
		if d := took(func() {
			for !l.TryAllow("k") {
				time.Sleep(20 * time.Millisecond)
			}
		}); d > time.Second {
			t.Errorf("denied for %v with 50 in the bucket", d)
		}
	})
}

// After a large request fell short, a smaller one is served when its own tokens are there.
func TestTheDelayOfALargeRequestIsNotThatOfASmallOne(t *testing.T) {
	short := func(t *testing.T) *hybrid.Limiter {
		l := drained(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(100))})
		time.Sleep(100 * time.Millisecond)
		must(t, !l.AllowN("k", 100), "100 of 10")
		return l
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := waitFor(t, short(t), 250*time.Millisecond, 20)
		check(t, err == nil && d <= 110*time.Millisecond,
			"20 tokens are there in 100 ms: %v after %v", err, d)
	})
	synctest.Test(t, func(t *testing.T) {
		l := short(t)
		time.Sleep(150 * time.Millisecond)
		r, err := l.Take(t.Context(), "k", 20)
		check(t, err == nil && r.OK, "the bucket has 25: %+v, %v", r, err)
	})
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(1000)), Policy: hybrid.Policy{TTL: time.Minute}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.WaitN(ctx, "k", 1000) })
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		d := took(func() { _ = l.WaitN(t.Context(), "k", 20) })
		check(t, d <= 2*time.Second,
			"20 tokens of 10/s behind a wait that was cancelled took %v", d)
	})
}

// The process that lowers a burst gives back what it holds instead of letting it run out: it goes on at once.
func TestWhoLowersABurstGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{TTL: time.Minute}})
		for range 10 {
			l.Allow("k")
		}
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(50)))
		synctest.Wait()
		if d := took(func() {
			for !l.Allow("k") {
				time.Sleep(time.Millisecond)
			}
		}); d > 50*time.Millisecond {
			t.Errorf("nothing for %v", d)
		}
		st := l.Stats()
		check(t, st.Burnt == 0, "%+v", st)
	})
}
