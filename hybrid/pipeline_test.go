package hybrid_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Calls that are due together travel in one Exchange.
func TestCallsDueTogetherTravelTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		// Given a hundred keys that were all used at one time,
		for i := range 100 {
			l.TryAllow(fmt.Sprint(i))
		}
		time.Sleep(10 * time.Millisecond)
		before, callsBefore := s.counts()
		// when all give back what they do not need,
		time.Sleep(time.Second)
		// then they do it in a few batches.
		after, callsAfter := s.counts()
		check(t, callsAfter-callsBefore >= 100 && after-before <= 12,
			"%d calls in %d batches", callsAfter-callsBefore, after-before)
		check(t, before <= 3, "%d batches to start", before)
	})
}

// However many keys are busy, background renewals make at most a thousand batches a second.
func TestBatchesPerSecondAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		s.every(verdict{delay: time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		// Given a thousand keys, each used every 5 ms, at different times,
		var wg sync.WaitGroup
		var before, callsBefore int
		for i := range 1000 {
			wg.Go(func() {
				k := l.Key(fmt.Sprint(i))
				time.Sleep(time.Duration(i) * 101 * time.Microsecond)
				for range 400 {
					k.TryAllow()
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		before, callsBefore = s.counts()
		time.Sleep(time.Second)
		after, callsAfter := s.counts()
		wg.Wait()
		// then their calls are gathered.
		check(t, after-before <= 1000, "%d batches in a second", after-before)
		calls := callsAfter - callsBefore
		check(t, calls <= 20*1000, "%d calls in a second for 1000 keys", calls)
	})
}

// So are the calls that a timer makes due, though no two are due at one moment.
func TestTimedCallsAreGathered(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{MinBatch: 50}})
		// Given a thousand keys that were used one after the other, 50 us apart,
		for i := range 1000 {
			l.Allow(fmt.Sprint(i))
			time.Sleep(50 * time.Microsecond)
		}
		before, callsBefore := s.counts()
		// when each gives back a Target later, 50 us apart,
		time.Sleep(90 * time.Millisecond)
		// then the calls of a millisecond travel together.
		after, callsAfter := s.counts()
		check(t, callsAfter-callsBefore >= 500 && after-before <= 90,
			"%d calls in %d batches in 90 ms", callsAfter-callsBefore, after-before)
	})
}

// A crowd of keys is split, so that nobody waits for the last of a hundred thousand.
func TestABatchIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(10))})
		for i := range 2500 {
			l.TryAllow(fmt.Sprint(i))
		}
		noErr(t, l.Shutdown(t.Context()))
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range s.sizes {
			check(t, n <= 1000, "a batch of %d calls", n)
		}
	})
}

// Somebody who waits does not wait to be gathered, and what was held back goes along.
func TestAWaitingRequestSendsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		l.TryAllow("a")
		synctest.Wait()
		// Given a call that is held back because a batch has just gone,
		l.TryAllow("b")
		synctest.Wait()
		_, calls := s.counts()
		must(t, calls == 1, "%d calls", calls)
		// when somebody waits for a third key,
		d := took(func() { l.Allow("c") })
		check(t, d == 0, "waited %v for a store that answers at once", d)
		// then both travel together, now.
		batches, calls := s.counts()
		check(t, batches == 2 && calls == 3, "%d calls in %d batches", calls, batches)
	})
}

// A node that hangs delays its own keys only, though all keys come from one Limiter.
func TestASlowNodeDelaysItsOwnKeysOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		hang := make(chan struct{})
		defer close(hang)
		s.setJudge(func(c *lease.Call) verdict {
			if c.Key[0] == 's' {
				return verdict{late: hang, deaf: true}
			}
			return verdict{delay: time.Millisecond}
		})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		// Given calls for many keys of a node that hangs, in the same batches as those of the other,
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { l.Allow(fmt.Sprint("slow", i)) })
			// then the others' are answered all the same.
			if d := took(func() {
				check(t, l.Allow(fmt.Sprint("fast", i)), "a key of the node that works was denied")
			}); d > 3*time.Millisecond {
				t.Fatalf("a key of the node that works waited %v", d)
			}
		}
		wg.Wait()
	})
}
