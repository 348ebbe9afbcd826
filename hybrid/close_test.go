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
)

// Close tells everybody who waits, at once, though the store hangs; a reply that comes later is
// never spent. The bubble ends only if no goroutine is left.
func TestCloseWakesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		hold := make(chan struct{})
		s.every(verdict{until: hold, deaf: true})
		l := start(t, s, of(hybrid.PerSecond(100)))
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
		d := took(func() {
			noErr(t, errors.Join(l.Close(), l.Close()))
			// then all of them are told in the same moment,
			for range 10 {
				isErr(t, <-errs, hybrid.ErrClosed)
			}
		})
		check(t, d == 0, "it took %v", d)
		// and the reply changes nothing.
		close(hold)
		synctest.Wait()
		st := l.Stats()
		check(t, !l.Allow("k") && !l.AllowN("k", 2) && !l.TryAllow("k") && !k.Allow() &&
			!k.TryAllow() && !l.Allow("new"),
			"a closed limiter admits")
		_, err := l.Take(context.Background(), "k", 1)
		isErr(t, err, hybrid.ErrClosed)
		after := l.Stats()
		check(t, after.Leased == 0 && after.Held == 0 && after.Denied == st.Denied &&
			after.Invalid == st.Invalid+7,
			"%+v, before %+v", after, st)
	})
}

// Close leaves what is held to expire at the store, without I/O.
func TestCloseMakesNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := warm(t, s, of(hybrid.PerSecond(1000)))
		l.Close()
		s.silent(t, time.Minute)
		st := l.Stats()
		check(t, st.Held == 0 && st.Burnt != 0, "%+v", st)
		noErr(t, l.Shutdown(t.Context()))
	})
}

// Shutdown brings everything that is held back to the buckets, calls under way included.
func TestShutdownGivesEverythingBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		p.every(verdict{delay: 5 * time.Millisecond})
		l := p.limiter(t, by(hybrid.Policy{MinBatch: 50}, hybrid.PerHour(1).WithBurst(1000)))
		// Given twenty keys of which each has spent three tokens and holds many, and one whose
		// first call is under way,
		for i := range 20 {
			must(t, l.AllowN(fmt.Sprint(i), 3), "denied")
		}
		must(t, l.Stats().Held > 0, "nothing is held")
		l.TryAllow("late")
		synctest.Wait()
		// when the limiter shuts down,
		noErr(t, l.Shutdown(t.Context()))
		// then every bucket has all that was not spent.
		for i := range 20 {
			p.has(t, fmt.Sprint(i), 997, 0)
		}
		p.has(t, "late", 1000, 0)
		st := l.Stats()
		check(t, st.Held == 0 && st.Burnt == 0 && st.Admitted == 60, "%+v", st)
		check(t, !l.Allow("0"), "admitted after Shutdown")
	})
}

// Shutdown gives up with its context, and says so; a store that refuses is an error too, and takes
// no time.
func TestShutdownReportsWhatItCouldNotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		l := warm(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: 10 * time.Second})
		hang := make(chan struct{})
		s.every(verdict{late: hang, deaf: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		d := took(func() { err = l.Shutdown(ctx) })
		check(t, d == time.Second && errors.Is(err, context.DeadlineExceeded), "%v after %v", err, d)
		close(hang)

		s = newFaulty()
		l = warm(t, s, of(hybrid.PerSecond(1000)))
		s.every(away)
		d = took(func() { err = l.Shutdown(t.Context()) })
		check(t, d == 0 && errors.Is(err, hybrid.ErrUnavailable), "%v after %v", err, d)
		st := l.Stats()
		check(t, st.Held == 0 && st.Burnt != 0, "%+v", st)
	})
}

// A second Shutdown waits for the first instead of cutting it short; Close cuts both short.
func TestShutdownTwice(t *testing.T) {
	for _, closing := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *faultyStore) {
			l := warm(t, s, of(hybrid.PerSecond(1000)))
			s.every(verdict{delay: 10 * time.Millisecond})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					err := l.Shutdown(context.Background())
					check(t, err == nil || closing, "%v", err)
				})
			}
			synctest.Wait()
			if closing {
				l.Close()
			}
			d := took(wg.Wait)
			want := 10 * time.Millisecond
			check(t, (closing || d >= want) && (!closing || d == 0), "closing %v: it took %v", closing, d)
			time.Sleep(20 * time.Millisecond)
			b := s.state(t, "k")
			check(t, closing || b.Ledger == 0, "%d still leased", b.Ledger)
		})
	}
}

// Close cancels the calls under way only after everybody who waits was told: their failures are not
// answered by the fallback, which would admit.
func TestCloseIsNotAnsweredByTheFallback(t *testing.T) {
	for range 100 {
		s := newFaulty()
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), CallTimeout: time.Minute,
			Policy: hybrid.Policy{Fallback: hybrid.FallbackAllowAll, ColdStart: hybrid.ColdStartAllow}})
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
			isErr(t, <-answers, hybrid.ErrClosed)
		}
		close(hold)
	}
}
