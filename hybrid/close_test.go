package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Close tells everybody who waits, at once, though the store hangs; a reply that comes later is never spent. The
// bubble ends only if no goroutine is left.
func TestCloseWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		hold := make(chan struct{})
		s.every(verdict{until: hold, deaf: true})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(100))})
		k := l.Key("k")
		errs := make(chan error, 10)
		for range 10 {
			// Given requests that wait for a call,
			go func() {
				r, err := k.Take(context.Background(), 1)
				if r.OK {
					err = errors.New("admitted")
				}
				errs <- err
			}()
		}
		synctest.Wait()
		// when the limiter is closed, twice,
		if d := took(func() {
			if err := errors.Join(l.Close(), l.Close()); err != nil {
				t.Error(err)
			}
			// then all of them are told in the same moment,
			for range 10 {
				if err := <-errs; !errors.Is(err, hybrid.ErrClosed) {
					t.Errorf("%v", err)
				}
			}
		}); d != 0 {
			t.Errorf("it took %v", d)
		}
		// and the reply changes nothing.
		close(hold)
		synctest.Wait()
		st := l.Stats()
		if l.Allow("k") || l.AllowN("k", 2) || l.TryAllow("k") || k.Allow() || k.TryAllow() || l.Allow("new") {
			t.Error("a closed limiter admits")
		}
		if _, err := l.Take(context.Background(), "k", 1); !errors.Is(err, hybrid.ErrClosed) {
			t.Errorf("%v", err)
		}
		if after := l.Stats(); after.Leased != 0 || after.Held != 0 || after.Denied != st.Denied || after.Invalid != st.Invalid+7 {
			t.Errorf("%+v, before %+v", after, st)
		}
	})
}

// Close leaves what is held to expire at the store, without I/O.
func TestCloseMakesNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		_, before := s.counts()
		l.Close()
		time.Sleep(time.Minute)
		if _, after := s.counts(); after != before {
			t.Errorf("%d calls after Close", after-before)
		}
		if st := l.Stats(); st.Held != 0 || st.Burnt == 0 {
			t.Errorf("%+v", st)
		}
		if err := l.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown after Close: %v", err)
		}
	})
}

// Shutdown brings everything that is held back to the buckets, calls under way included.
func TestShutdownGivesEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		s.every(verdict{delay: 5 * time.Millisecond})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(1000)), Policy: hybrid.Policy{MinBatch: 50}})
		// Given twenty keys of which each has spent three tokens and holds many, and one whose first call is under way,
		for i := range 20 {
			if !l.AllowN(fmt.Sprint(i), 3) {
				t.Fatal("denied")
			}
		}
		if l.Stats().Held == 0 {
			t.Fatal("nothing is held")
		}
		l.TryAllow("late")
		synctest.Wait()
		// when the limiter shuts down,
		if err := l.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		// then every bucket has all that was not spent.
		for i := range 20 {
			if b := s.state(t, fmt.Sprint(i)); b.Levels[0] != 997 || b.Ledger != 0 {
				t.Errorf("key %d: the bucket has %d and %d leased", i, b.Levels[0], b.Ledger)
			}
		}
		if b := s.state(t, "late"); b.Ledger != 0 || b.Levels[0] != 1000 {
			t.Errorf("late: the bucket has %d and %d leased", b.Levels[0], b.Ledger)
		}
		if st := l.Stats(); st.Held != 0 || st.Burnt != 0 || st.Admitted != 60 {
			t.Errorf("%+v", st)
		}
		if l.Allow("0") {
			t.Error("admitted after Shutdown")
		}
	})
}

// Shutdown gives up with its context, and says so; a store that refuses is an error too, and takes no time.
func TestShutdownReportsWhatItCouldNotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: 10 * time.Second})
		hang := make(chan struct{})
		s.every(verdict{late: hang, deaf: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		if d := took(func() { err = l.Shutdown(ctx) }); d != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, d)
		}
		close(hang)

		s = newFaulty()
		l = warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
		s.every(verdict{err: lease.ErrUnavailable})
		if d := took(func() { err = l.Shutdown(t.Context()) }); d != 0 || !errors.Is(err, hybrid.ErrUnavailable) {
			t.Errorf("%v after %v", err, d)
		}
		if st := l.Stats(); st.Held != 0 || st.Burnt == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A second Shutdown waits for the first instead of cutting it short; Close cuts both short.
func TestShutdownTwice(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000))})
			s.every(verdict{delay: 10 * time.Millisecond})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if err := l.Shutdown(context.Background()); err != nil && !closing {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if closing {
				l.Close()
			}
			d := took(wg.Wait)
			if want := 10 * time.Millisecond; !closing && d < want || closing && d != 0 {
				t.Errorf("closing %v: it took %v", closing, d)
			}
			time.Sleep(20 * time.Millisecond)
			if b := s.state(t, "k"); !closing && b.Ledger != 0 {
				t.Errorf("%d still leased", b.Ledger)
			}
		})
	}
}

// Close cancels the calls under way only after everybody who waits was told: their failures are not answered by the
// fallback, which would admit.
func TestCloseIsNotAnsweredByTheFallback(t *testing.T) {
	for range 100 {
		s := newFaulty()
		l, err := hybrid.New(s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: time.Minute,
			Policy: hybrid.Policy{Fallback: hybrid.FallbackAllowAll, ColdStart: hybrid.ColdStartAllow}})
		if err != nil {
			t.Fatal(err)
		}
		// Given requests for many keys that wait for one call,
		hold := make(chan struct{})
		s.every(verdict{late: hold})
		const keys = 50
		answers := make(chan error, keys)
		for i := range keys {
			go func() {
				_, err := l.Take(context.Background(), fmt.Sprint(i), 1)
				answers <- err
			}()
		}
		for l.Stats().Keys < keys {
			runtime.Gosched()
		}
		// when the limiter is closed,
		l.Close()
		// then each of them is told so.
		for range keys {
			if err := <-answers; !errors.Is(err, hybrid.ErrClosed) {
				t.Fatalf("%v", err)
			}
		}
		close(hold)
	}
}
