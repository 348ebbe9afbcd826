package hybrid_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// order collects when each of a number of requests was served. Those that one reply serves wake in
// any order.
type order struct {
	mu   sync.Mutex
	when []time.Duration
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

// done reports whether all were served.
func (o *order) done() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n == len(o.when)
}

func (o *order) check(t *world) {
	t.Helper()
	for i := 1; i < len(o.when); i++ {
		must(t, o.when[i] >= o.when[i-1],
			"not first in, first out: %d was served at %v, the one before it at %v", i, o.when[i], o.when[i-1])
	}
}

// The first waiter is served first, whatever its n, and Allow does not overtake.
func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.drained(of(hybrid.PerSecond(10)))
		sizes := []int64{5, 1, 10, 1, 3} // 20 in all
		o := newOrder(len(sizes))
		wait := inTurn(len(sizes), func(i int) {
			noErr(t, l.WaitN(t.Context(), "k", sizes[i]))
			o.add(i)
		})
		stolen := admits(2200, time.Millisecond, func() bool { return !o.done() && l.Allow("k") })
		wait()
		o.check(t)
		d := o.when[len(o.when)-1]
		check(t, d >= 2*time.Second && d <= 2100*time.Millisecond, "20 tokens at 10/s took %v", d)
		check(t, stolen <= 1, "Allow was given %d tokens while others waited", stolen)
	})
}

// Ten thousand requests that wait for one key are served in order, each when its token exists, by
// its caller's goroutine, and together they make as many calls as one would.
func TestACrowdOfWaitersIsPacedByTokens(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		crowd int
		slack time.Duration // a token may lie in the bucket for half a Target
		calls int           // at most: one each half Target, or for each token where those are rarer
	}{
		// A token at a time: each waiter is served at a moment of its own, so the order is strict.
		{hybrid.PerSecond(10).WithBurst(1), 1_000, 13 * time.Millisecond, 1_000 + 10},
		{hybrid.PerSecond(10), 50, 50 * time.Millisecond, 50 + 18},
		{hybrid.PerSecond(1_000), 10_000, 51 * time.Millisecond, 200 + 10}, // some fifty at a time
		{hybrid.PerSecond(10_000), 10_000, 51 * time.Millisecond, 20 + 10}, // all in a second
		{hybrid.PerMinute(1), 3, time.Millisecond, 3 + 602},                // and one each three quarters of a TTL
	} {
		bubbleOf(t, c.limit, func(t *world) {
			key := t.drained(of(c.limit)).Key("k")
			_, before := t.counts()
			others := runtime.NumGoroutine()
			o := newOrder(c.crowd)
			wait := inTurn(c.crowd, func(i int) {
				noErr(t, key.Wait(t.Context()))
				o.add(i)
			})
			// Count while all sleep: in between the count is no more than a guess.
			most := 0
			for !o.done() {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				most = max(most, runtime.NumGoroutine()-others)
			}
			wait()
			o.check(t)
			for i, at := range o.when {
				due := time.Duration(i+1) * c.limit.Per / time.Duration(c.limit.Tokens)
				must(t, at-due <= c.slack, "%d was served %v after its token, want %v at most", i, at-due, c.slack)
			}
			check(t, most <= c.crowd+20, "%d goroutines for %d waiters", most, c.crowd)
			_, after := t.counts()
			check(t, after-before <= c.calls, "%d calls, want %d at most", after-before, c.calls)
		})
	}
}

// A large n is gathered over several grants while another process draws as much as it can: half of
// the time it has all after the two seconds that its half of the rate takes. (The rest depends on
// whose calls come first. One wait in ten takes more than 2.5 s, one in a thousand 8 s.)
func TestALargeWaitIsGatheredAgainstOthers(t *testing.T) {
	const runs = 31
	waits := make([]time.Duration, 0, runs)
	others, waited := int64(0), time.Duration(0)
	for range runs {
		bubble(t, func(t *world) {
			other, l := t.process(hybrid.PerSecond(100)), t.process(hybrid.PerSecond(100))
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
			d := took(func() { noErr(t, l.WaitN(t.Context(), "k", 100)) })
			stop()
			wait()
			others += taken.Load()
			check(t, d < 15*time.Second, "waited %v for 100 tokens at half of 100/s", d)
			waits = append(waits, d)
			waited += d
		})
	}
	slices.Sort(waits)
	share := float64(others) / waited.Seconds() // of one run it is a matter of whose call comes first
	check(t, share >= 45, "the other process got %.0f/s", share)
	check(t, waits[runs/2] < 2100*time.Millisecond, "100 tokens at half of 100/s take %v", waits)
}

// x/time/rate, TestWaitCancel and TestCancelLast: a wait that is cancelled gives back what was
// reserved for it, first to those behind it.
func TestPeerCancellingReturnsWhatWasReserved(t *testing.T) {
	everywhere(t, func(t *world) {
		other, l := t.process(hourly), t.process(hourly)
		must(t, other.AllowN("k", 4) && t.settled("k") == 6, "not 6 of 10 left")
		ctx, cancel := context.WithCancel(t.Context())
		large := background(func() { isErr(t, l.WaitN(ctx, "k", 10), context.Canceled) })
		t.eventually("the large wait first", "k", func(level int64) bool { return level < 6 })
		small := background(func() { noErr(t, l.WaitN(t.Context(), "k", 2)) })
		cancel()
		t.lasts(0, ttl, small)
		large()
		t.eventually("4 in the bucket", "k", func(level int64) bool { return level == 4 })
		equal(t, t.left("k", hourly), 4, "left")
		equal(t, l.Stats().Admitted, 2, "admitted")
	})
}
