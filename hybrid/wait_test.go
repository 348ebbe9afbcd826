package hybrid_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// order collects when each of a number of requests was served. Those that one reply serves wake in any order.
type order struct {
	mu   sync.Mutex
	when []time.Duration // 0 for not yet
	n    int
	from time.Time
}

func newOrder(n int) *order { return &order{from: time.Now(), when: make([]time.Duration, n)} }

func (o *order) add(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.when[i] = time.Since(o.from)
	o.n++
}

func (o *order) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

func (o *order) check(t *testing.T) {
	t.Helper()
	if !slices.IsSorted(o.when) {
		t.Errorf("not first in, first out: served at %v", o.when)
	}
}

// drained is a limiter whose bucket "k" is empty.
func drained(t *testing.T, s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := start(t, s, cfg)
	for l.Allow("k") {
	}
	return l
}

// Who came first is served first, whatever its n, and Allow does not overtake.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := drained(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		// Given waiters of different sizes that came one after the other,
		sizes := []int64{5, 1, 10, 1, 3}
		o := newOrder(len(sizes))
		var wg sync.WaitGroup
		total := int64(0)
		for i, n := range sizes {
			total += n
			wg.Go(func() {
				if err := l.WaitN(t.Context(), "k", n); err != nil {
					t.Error(err)
				}
				o.add(i)
			})
			synctest.Wait()
		}
		// when others ask all the time without waiting,
		stolen := int64(0)
		wg.Go(func() {
			for o.len() < len(sizes) {
				if l.Allow("k") {
					stolen++
				}
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		// then the waiters are served in their order, at the pace of the tokens, and the others get none.
		o.check(t)
		if d := o.when[len(o.when)-1]; d < 2*time.Second || d > 2100*time.Millisecond {
			t.Errorf("%d tokens at 10/s took %v", total, d)
		}
		if stolen > 1 {
			t.Errorf("Allow was given %d tokens while others waited", stolen)
		}
	})
}

// Each waiter is served when its token exists, not when somebody happens to look; and a thousand of them cost no more
// calls than one.
func TestWaitingIsPacedByTokens(t *testing.T) {
	for _, c := range []struct {
		limit   hybrid.Limit
		waiters int
		slack   time.Duration // a token may lie in the bucket for half a Target
	}{
		{hybrid.PerSecond(10).WithBurst(1), 50, 13 * time.Millisecond},
		{hybrid.PerSecond(10), 50, 50 * time.Millisecond},
		{hybrid.PerSecond(1000), 5000, 51 * time.Millisecond},
		{hybrid.PerMinute(1), 3, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			l := drained(t, s, hybrid.Config{Limits: limits(c.limit)})
			from := time.Now()
			_, before := s.counts()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var latest time.Duration
			for i := range c.waiters {
				wg.Go(func() {
					if err := l.Wait(t.Context(), "k"); err != nil {
						t.Error(err)
					}
					d := time.Since(from)
					due := time.Duration(i+1) * c.limit.Per / time.Duration(c.limit.Tokens)
					mu.Lock()
					defer mu.Unlock()
					latest = max(latest, d-due)
				})
				synctest.Wait()
			}
			wg.Wait()
			_, after := s.counts()
			span := time.Since(from)
			t.Logf("%v: %d waiters in %v, at most %v after their tokens; %d calls", c.limit, c.waiters, span, latest, after-before)
			if latest > c.slack {
				t.Errorf("%v: a waiter was served %v after its token, want %v at most", c.limit, latest, c.slack)
			}
			// One call each half Target, or for each token where those are rarer, and one each three quarters of a TTL.
			if most := min(int(span/(c.slack))+2, c.waiters+int(span/(300*time.Millisecond))+2); after-before > most {
				t.Errorf("%v: %d calls in %v, want %d at most", c.limit, after-before, span, most)
			}
		})
	}
}

// A large n is gathered over several grants while others draw as well.
func TestALargeWaitIsGatheredAgainstOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		limit := hybrid.PerSecond(100)
		cfg := hybrid.Config{Limits: limits(limit)}
		// Given another process that takes whatever it can,
		other := start(t, s, cfg)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var taken atomic.Int64
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
					if other.Allow("k") {
						taken.Add(1)
					}
				}
			}
		})
		time.Sleep(5 * time.Second)
		l := start(t, s, cfg)
		taken.Store(0)
		// when one waits for the whole burst,
		d := took(func() {
			if err := l.WaitN(t.Context(), "k", 100); err != nil {
				t.Error(err)
			}
		})
		close(stop)
		wg.Wait()
		// then it has it after about two seconds, which is its half of the rate, and the other was not starved.
		t.Logf("100 of 100 after %v beside %d of the other's", d, taken.Load())
		if d > 2500*time.Millisecond {
			t.Errorf("waited %v for 100 tokens at half of 100/s", d)
		}
		if share := float64(taken.Load()) / d.Seconds(); share < 30 {
			t.Errorf("the other process got %.0f/s beside it", share)
		}
	})
}

// The deadline is judged at once, by what the bucket said.
func TestAWaitThatCannotBeInTimeFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := drained(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		within := func(d time.Duration, n int64) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			var err error
			spent := took(func() { err = l.WaitN(ctx, "k", n) })
			return spent, err
		}
		// 5 tokens take half a second.
		if d, err := within(499*time.Millisecond, 5); !errors.Is(err, hybrid.ErrWouldExceedDeadline) || d != 0 {
			t.Errorf("%v after %v", err, d)
		}
		if d, err := within(501*time.Millisecond, 5); err != nil || d != 500*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
		// Behind somebody who waits for 5, one token comes after 6.
		var wg sync.WaitGroup
		wg.Go(func() { within(time.Second, 5) })
		synctest.Wait()
		if d, err := within(550*time.Millisecond, 1); !errors.Is(err, hybrid.ErrWouldExceedDeadline) || d != 0 {
			t.Errorf("behind another: %v after %v", err, d)
		}
		wg.Wait()
		// What failed has cost nothing.
		if got := l.Stats().Admitted; got != 20 {
			t.Errorf("%d admitted, want the burst and two waits of 5", got)
		}
	})
}

// On a key that has never been asked about, the first reply tells.
func TestAColdWaitLearnsThatItIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty()
		drained(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1))})
		time.Sleep(500 * time.Millisecond)
		cold := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1))})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if d := took(func() {
			if err := cold.Wait(ctx, "k"); !errors.Is(err, hybrid.ErrWouldExceedDeadline) {
				t.Error(err)
			}
		}); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// What is invalid fails without waiting, and a context that has ended before takes nothing.
func TestInvalidWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(10))})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			ctx  context.Context
			key  string
			n    int64
			want error
		}{
			{t.Context(), "", 1, hybrid.ErrInvalidKey},
			{t.Context(), "k", -1, hybrid.ErrInvalidN},
			{t.Context(), "k", 11, hybrid.ErrExceedsBurst},
			{gone, "k", 1, context.Canceled},
			{t.Context(), "k", 0, nil},
			{t.Context(), "k", 10, nil},
		} {
			if err := l.WaitN(c.ctx, c.key, c.n); !errors.Is(err, c.want) {
				t.Errorf("WaitN(%q, %d): %v, want %v", c.key, c.n, err, c.want)
			}
			if err := l.Key(c.key).WaitN(c.ctx, 0); c.n == 0 && err != nil {
				t.Error(err)
			}
		}
		l.Close()
		if err := l.Wait(t.Context(), "k"); !errors.Is(err, hybrid.ErrClosed) {
			t.Error(err)
		}
	})
}
