package hybrid_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// order collects when each of a number of requests was served. Those that one reply serves wake in
// any order.
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
	check(t, slices.IsSorted(o.when), "not first in, first out: served at %v", o.when)
}

// drained is a limiter whose bucket "k" is empty.
func drained(t *testing.T, s lease.Store, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l := start(t, s, cfg)
	drain(l, "k")
	return l
}

// Who came first is served first, whatever its n, and Allow does not overtake.
func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hybrid.PerSecond(10)))
		// Given waiters of different sizes that came one after the other,
		sizes := []int64{5, 1, 10, 1, 3}
		o := newOrder(len(sizes))
		var wg sync.WaitGroup
		total := int64(0)
		for i, n := range sizes {
			total += n
			wg.Go(func() {
				noErr(t, l.WaitN(t.Context(), "k", n))
				o.add(i)
			})
			synctest.Wait()
		}
		// when others ask all the time without waiting,
		stolen := admits(2200, time.Millisecond, func() bool { return o.len() < len(sizes) && l.Allow("k") })
		wg.Wait()
		// then the waiters are served in their order, at the pace of the tokens, and the others get
		// none.
		o.check(t)
		d := o.when[len(o.when)-1]
		check(t, d >= 2*time.Second && d <= 2100*time.Millisecond, "%d tokens at 10/s took %v", total, d)
		check(t, stolen <= 1, "Allow was given %d tokens while others waited", stolen)
	})
}

// Each waiter is served when its token exists, not when somebody happens to look; and a thousand of
// them cost no more calls than one.
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
		bubble(t, func(t *testing.T, s *faultyStore) {
			l := drained(t, s, of(c.limit))
			from := time.Now()
			_, before := s.counts()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var latest time.Duration
			for i := range c.waiters {
				wg.Go(func() {
					noErr(t, l.Wait(t.Context(), "k"))
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
			check(t, latest <= c.slack,
				"%v: a waiter was served %v after its token, want %v at most", c.limit, latest, c.slack)
			// One call each half Target, or for each token where those are rarer, and one each
			// three quarters of a TTL.
			most := min(int(span/(c.slack))+2, c.waiters+int(span/(300*time.Millisecond))+2)
			check(t, after-before <= most,
				"%v: %d calls in %v, want %d at most", c.limit, after-before, span, most)
		})
	}
}

// A large n is gathered over several grants while another process draws as much as it can: half of
// the time it has all after the two seconds that its half of the rate takes. (The rest depends on
// whose calls come first. One wait in ten takes more than 2.5 s, one in a thousand 8 s.)
func TestALargeWaitIsGatheredAgainstOthers(t *testing.T) {
	const runs = 31
	waits := make([]time.Duration, 0, runs)
	for range runs {
		bubble(t, func(t *testing.T, s *faultyStore) {
			cfg := of(hybrid.PerSecond(100))
			// Given another process that takes whatever it can,
			other := start(t, s, cfg)
			var taken atomic.Int64
			over, stop := context.WithCancel(t.Context())
			wait := background(func() {
				for ; over.Err() == nil; time.Sleep(2 * time.Millisecond) {
					if other.Allow("k") {
						taken.Add(1)
					}
				}
			})
			time.Sleep(5 * time.Second)
			taken.Store(0)
			// when one waits for the whole burst,
			l := start(t, s, cfg)
			d := took(func() { noErr(t, l.WaitN(t.Context(), "k", 100)) })
			stop()
			wait()
			// then it has it, and the other was not starved.
			share := float64(taken.Load()) / d.Seconds()
			check(t, share >= 30, "the other process got %.0f/s beside it", share)
			check(t, d < 15*time.Second, "waited %v for 100 tokens at half of 100/s", d)
			waits = append(waits, d)
		})
	}
	slices.Sort(waits)
	check(t, waits[runs/2] < 2100*time.Millisecond, "100 tokens at half of 100/s take %v", waits)
}

// The deadline is judged at once, by what the bucket said.
func TestAWaitThatCannotBeInTimeFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, of(hybrid.PerSecond(10)))
		// 5 tokens take half a second.
		d, err := waitFor(t, l, 499*time.Millisecond, 5)
		check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && d == 0, "%v after %v", err, d)
		d, err = waitFor(t, l, 501*time.Millisecond, 5)
		check(t, err == nil && d == 500*time.Millisecond, "%v after %v", err, d)
		// Behind somebody who waits for 5, one token comes after 6.
		wait := background(func() { waitFor(t, l, time.Second, 5) })
		synctest.Wait()
		d, err = waitFor(t, l, 550*time.Millisecond, 1)
		check(t, errors.Is(err, hybrid.ErrWouldExceedDeadline) && d == 0,
			"behind another: %v after %v", err, d)
		wait()
		// What failed has cost nothing.
		equal(t, l.Stats().Admitted, 20, "admitted, want the burst and two waits of 5")
	})
}

// What is invalid fails without waiting, and a context that has ended before takes nothing.
func TestInvalidWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10)))
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
			err := l.WaitN(c.ctx, c.key, c.n)
			check(t, errors.Is(err, c.want), "WaitN(%q, %d): %v, want %v", c.key, c.n, err, c.want)
			err = l.Key(c.key).WaitN(c.ctx, 0)
			check(t, c.n != 0 || err == nil, "%v", err)
		}
		l.Close()
		isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrClosed)
	})
}

// Ten thousand requests that wait for one key are served in the order in which they came. Each is a
// goroutine of its caller's and needs no other, and together they make as many calls as one would.
func TestACrowdOfWaiters(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		crowd int
		calls int // at most
	}{
		// A token at a time: each waiter is served at a moment of its own, so the order is strict;
		// one call for each token, and no other.
		{hybrid.PerSecond(10).WithBurst(1), 1_000, 1_000 + 10},
		// Some fifty at a time: one call each half Target.
		{hybrid.PerSecond(1_000), 10_000, 200 + 10},
		// All in a second.
		{hybrid.PerSecond(10_000), 10_000, 20 + 10},
	} {
		bubbleOf(t, c.limit.String(), func(t *testing.T, s *faultyStore) {
			// Given a crowd that waits for an empty bucket,
			s.every(verdict{delay: time.Millisecond})
			l := drained(t, s, of(c.limit))
			key := l.Key("k")
			_, before := s.counts()
			idle := runtime.NumGoroutine()
			var left atomic.Int64
			left.Store(int64(c.crowd))
			o := newOrder(c.crowd)
			var wg sync.WaitGroup
			for i := range c.crowd {
				wg.Go(func() {
					noErr(t, key.Wait(t.Context()))
					o.add(i)
					left.Add(-1)
				})
				synctest.Wait() // it waits, behind those before it
			}
			waiting := runtime.NumGoroutine()
			// when the tokens come, (looked at while everybody sleeps: in between the count is no
			// more than a guess)
			most := 0
			for left.Load() > 0 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				most = max(most, runtime.NumGoroutine())
			}
			wg.Wait()
			// then they are served in order,
			for i := 1; i < c.crowd; i++ {
				must(t, o.when[i] >= o.when[i-1],
					"waiter %d was served at %v, and the one before it at %v", i, o.when[i], o.when[i-1])
			}
			// each by the goroutine that waits,
			const few = 20
			n := max(waiting, most) - idle
			check(t, n <= c.crowd+few, "%d goroutines for %d waiters", n, c.crowd)
			// for a few calls.
			_, after := s.counts()
			check(t, after-before <= c.calls, "%d calls, want %d at most", after-before, c.calls)
		})
	}
}
