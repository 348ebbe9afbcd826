package hybrid_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Those who come while a key's first call is under way wait for it or share the next one.
func TestConcurrentColdStartsShareCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a store 10 ms away and a key that nobody has used,
		s.every(verdict{delay: 10 * time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		var ok atomic.Int64
		var wg sync.WaitGroup
		// when five hundred ask for it at once,
		for range 500 {
			wg.Go(func() {
				if l.Allow("k") {
					ok.Add(1)
				}
			})
		}
		d := took(wg.Wait)
		// then all are admitted, in two round trips at most.
		_, calls := s.counts()
		check(t, calls <= 2 && d <= 25*time.Millisecond, "%d calls, %v", calls, d)
		check(t, ok.Load() == 500, "%d of 500 admitted", ok.Load())
	})
}

// TryAllow before the first reply answers what Policy.ColdStart says, at once, and starts the call.
func TestTryAllowOnAColdKey(t *testing.T) {
	for _, c := range []struct {
		policy hybrid.ColdStart
		want   bool
	}{{hybrid.ColdStartDeny, false}, {hybrid.ColdStartAllow, true}} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			s.every(verdict{delay: 10 * time.Millisecond})
			l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(50)), Policy: hybrid.Policy{ColdStart: c.policy}})
			for range 3 {
				var got bool
				d := took(func() { got = l.TryAllow("k") })
				check(t, got == c.want && d == 0, "policy %v: %v after %v", c.policy, got, d)
			}
			time.Sleep(11 * time.Millisecond)
			check(t, l.TryAllow("k"),
				"policy %v: the call in the background brought nothing", c.policy)
			// What was admitted without tokens is repaid: 50 in all, however they were admitted.
			time.Sleep(time.Second)
			admitted := int64(1)
			if c.want {
				admitted += 3
			}
			for l.Allow("k") {
				admitted++
			}
			if admitted != 50 {
				t.Errorf("policy %v: %d admitted of a burst of 50; %+v", c.policy, admitted, l.Stats())
			}
		})
	}
}

// Allow on a cold key waits CallTimeout and not longer; then ColdStart decides.
func TestAllowOnAColdKeyWhileTheStoreHangs(t *testing.T) {
	for _, c := range []struct {
		policy hybrid.ColdStart
		want   bool
	}{{hybrid.ColdStartDeny, false}, {hybrid.ColdStartAllow, true}} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			hang := make(chan struct{})
			s.every(verdict{late: hang})
			l := start(t, s, hybrid.Config{
				Limits: limits(hybrid.PerHour(50)), Policy: hybrid.Policy{ColdStart: c.policy}, CallTimeout: 40 * time.Millisecond})
			var got bool
			d := took(func() { got = l.Allow("k") })
			check(t, got == c.want && d <= 40*time.Millisecond && d >= 30*time.Millisecond,
				"policy %v: %v after %v", c.policy, got, d)
			// The debt is repaid once the store is back, though nobody asks any more.
			close(hang)
			time.Sleep(5 * time.Second)
			want := int64(50)
			if c.want {
				want--
			}
			b := s.state(t, "k")
			check(t, b.Levels[0] == want && b.Ledger == 0,
				"policy %v: the bucket has %d and %d leased, want %d and 0", c.policy, b.Levels[0], b.Ledger, want)
		})
	}
}

// A request whose context ends stops waiting; the tokens drawn for it go back.
func TestTakeHonoursItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: 50 * time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		// Given a request of 5 on a cold key,
		var r hybrid.Result
		var err error
		// when its context ends before the reply,
		d := took(func() { r, err = l.Take(ctx, "k", 5) })
		// then it says so at once,
		check(t, !r.OK && errors.Is(err, context.DeadlineExceeded) && d == 20*time.Millisecond,
			"%+v, %v after %v", r, err, d)
		// and soon all ten tokens are there again, without anybody asking.
		time.Sleep(time.Second)
		b := s.state(t, "k")
		check(t, b.Levels[0] == 10 && b.Ledger == 0,
			"the bucket has %d and %d leased; %+v", b.Levels[0], b.Ledger, l.Stats())
		// An ended context never takes anything.
		_, err = l.Take(ctx, "k", 1)
		check(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		cause, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(hybrid.ErrInvalidN)
		_, err = l.Take(cause, "k", 1)
		check(t, errors.Is(err, context.Canceled) && errors.Is(err, hybrid.ErrInvalidN),
			"%v, want both the context's error and its cause", err)
	})
}

// Result says what the decision rests on and when to come back.
func TestTakeSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10), hybrid.PerMinute(60))})
		r, err := l.Take(t.Context(), "k", 4)
		check(t, err == nil && r.OK && r.Source == hybrid.SourceStore && r.Remaining == 6 && r.Limit == hybrid.PerSecond(10) && r.RetryAfter == 0,
			"first: %+v, %v", r, err)
		r, err = l.Take(t.Context(), "k", 8)
		check(t, err == nil && !r.OK && r.Limit == hybrid.PerSecond(10) && r.RetryAfter >= 200*time.Millisecond && r.RetryAfter <= 250*time.Millisecond,
			"8 of 6: %+v, %v", r, err)
		if r, err = l.Take(t.Context(), "k", 0); err != nil || !r.OK {
			t.Errorf("0: %+v, %v", r, err)
		}
	})
}

// Somebody who waits on a cold key does not change what TryAllow answers there.
func TestTryAllowOnAColdKeyBesideAWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: 50 * time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10)), Policy: hybrid.Policy{ColdStart: hybrid.ColdStartAllow}})
		var wg sync.WaitGroup
		wg.Go(func() { l.Wait(t.Context(), "k") })
		synctest.Wait()
		check(t, l.TryAllow("k"), "ColdStartAllow, and TryAllow denied before the first reply")
		wg.Wait()
	})
}
