package hybrid_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Waits that are cancelled at any moment - in the queue, half gathered, while the call is under
// way, with the reply, or in the moment of success - give back everything: what is missing from the
// bucket in the end is what was admitted, to the token.
func TestCancelledWaitsLeakNothing(t *testing.T) {
	seeds(t, 200, cancelAtRandom)
}

func cancelAtRandom(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := newFaulty()
	net := rand.New(rand.NewPCG(seed, 2))
	s.setJudge(func(*lease.Call) verdict { // a slow and uneven network that loses nothing
		return verdict{delay: time.Duration(net.Int64N(int64(30 * time.Millisecond)))}
	})
	// Given a bucket that hardly refills, and two processes,
	limit := hybrid.PerHour(1).WithBurst(20 + rnd.Int64N(60))
	cfg := by(hybrid.Policy{Fallback: hybrid.FallbackDeny, TTL: 2 * time.Second}, limit)
	ls := []*hybrid.Limiter{start(t, s, cfg), start(t, s, cfg)}
	var mu sync.Mutex
	admitted := int64(0)
	var wg sync.WaitGroup
	// when many wait for tokens and give up after a random while,
	for range 40 {
		l, n := ls[rnd.IntN(2)], 1+rnd.Int64N(limit.Burst)
		if rnd.IntN(2) == 0 {
			n = 1 + rnd.Int64N(3)
		}
		at := time.Duration(rnd.Int64N(int64(time.Second)))
		after := time.Duration(rnd.Int64N(int64(500 * time.Millisecond)))
		kind := rnd.IntN(4)
		wg.Go(func() {
			time.Sleep(at)
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(after, cancel).Stop()
			ok := false
			if kind == 0 {
				r, err := l.Take(ctx, "k", n)
				ok = err == nil && r.OK
			} else {
				err := l.WaitN(ctx, "k", n)
				ok = err == nil
				check(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if ok {
				admitted += n
			}
		})
	}
	wg.Wait()
	time.Sleep(10 * time.Second) // what is held goes back
	// then nobody's tokens are missing, and none too many are there.
	st := s.state(t, "k")
	sum := int64(0)
	for _, l := range ls {
		sum += l.Stats().Admitted
	}
	check(t, st.Levels[0]+st.Ledger+admitted == limit.Burst && sum == admitted,
		"%d admitted (Stats: %d), the bucket has %d, processes hold %d; the burst is %d",
		admitted, sum, st.Levels[0], st.Ledger, limit.Burst)
}

// A cancelled wait in front frees those behind it at once, with what it had gathered.
func TestACancelledWaitLetsTheNextGo(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hourly))
		l.AllowN("k", 5)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { isErr(t, l.WaitN(ctx, "k", 10), context.Canceled) })
		time.Sleep(time.Second)
		wg.Go(func() { noErr(t, l.WaitN(t.Context(), "k", 3)) })
		time.Sleep(time.Second)
		cancel()
		// The next call comes within a TTL.
		d := took(wg.Wait)
		check(t, d <= 400*time.Millisecond, "the next waited %v", d)
	})
}

// Close and Shutdown end every wait with ErrClosed; what had been gathered for it is not lost count
// of.
func TestClosingEndsEveryWait(t *testing.T) {
	for name, end := range map[string]func(*hybrid.Limiter) error{
		"close":    (*hybrid.Limiter).Close,
		"shutdown": func(l *hybrid.Limiter) error { return l.Shutdown(context.Background()) },
	} {
		bubbleOf(t, name, func(t *testing.T, s *faultyStore) {
			l := start(t, s, of(hourly))
			l.AllowN("k", 4)
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { isErr(t, l.WaitN(t.Context(), "k", 10), hybrid.ErrClosed) })
			}
			time.Sleep(time.Second)
			noErr(t, end(l))
			d := took(wg.Wait)
			check(t, d == 0, "the last woke after %v", d)
			check(t, l.Stats().Admitted == 4, "%+v", l.Stats())
		})
	}
}

// While the store is away, Wait is served as Policy.Fallback says, at its pace, or told at once.
func TestWaitingWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   hybrid.Policy
		cold     bool
		waits    int
		want     error
		from, to time.Duration
	}{
		{"deny", denying, false, 30, hybrid.ErrUnavailable, 0, 200 * time.Millisecond},
		// a call that fails, a burst of 10, then 10/s
		{"local share", hybrid.Policy{}, false, 30, nil, 2000 * time.Millisecond, 2200 * time.Millisecond},
		{"allow all", hybrid.Policy{Fallback: hybrid.FallbackAllowAll}, false, 30, nil, 0, 200 * time.Millisecond},
		{"cold, deny", hybrid.Policy{}, true, 30, hybrid.ErrUnavailable, 0, 200 * time.Millisecond},
		{"cold, allow", hybrid.Policy{ColdStart: hybrid.ColdStartAllow}, true, 30, nil, 0, 200 * time.Millisecond},
	} {
		bubbleOf(t, c.name, func(t *testing.T, s *faultyStore) {
			l := start(t, s, by(c.policy, hybrid.PerSecond(10)))
			if !c.cold {
				drain(l, "k")
			}
			s.every(verdict{lost: true})
			var wg sync.WaitGroup
			o := newOrder(c.waits)
			for i := range c.waits {
				wg.Go(func() {
					isErr(t, l.Wait(t.Context(), "k"), c.want)
					o.add(i)
				})
				synctest.Wait()
			}
			d := took(wg.Wait)
			check(t, d >= c.from && d <= c.to,
				"the last was told after %v, want %v to %v", d, c.from, c.to)
			if c.want == nil {
				o.check(t)
			}
			// More than the local share ever holds is not waited for.
			err := l.WaitN(t.Context(), "k", 10)
			check(t, c.policy.Fallback != hybrid.FallbackDeny || errors.Is(err, hybrid.ErrUnavailable),
				"%v", err)
		})
	}
}

// A wait that the fallback serves in the end leaves what it had gathered to the next wait, before
// Allow.
func TestAWaitServedByTheFallbackLeavesItsTokensToTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(hybrid.Policy{MinBatch: 5}, hybrid.PerSecond(100)))
		l.AllowN("k", 1)
		s.every(away)
		l.AllowN("k", 90) // fails: degraded, served by the share
		for l.AllowN("k", 10) {
		}
		held := l.Stats().Held
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.WaitN(t.Context(), "k", held+5) })
		synctest.Wait()
		var done atomic.Bool
		wg.Go(func() {
			_ = l.WaitN(t.Context(), "k", 2)
			done.Store(true)
		})
		synctest.Wait()
		for range 300 {
			time.Sleep(time.Millisecond)
			if l.TryAllow("k") {
				synctest.Wait() // whoever was served before may not have woken yet
				if !done.Load() {
					t.Errorf("TryAllow was served while Wait waited; %+v", l.Stats())
				}
				break
			}
		}
		wg.Wait()
	})
}

// A process that only waits finds out that the store is back: a wait that is refused asks for a
// probe.
func TestAProcessThatOnlyWaitsRecovers(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(denying, hybrid.PerSecond(10)))
		noErr(t, l.WaitN(t.Context(), "k", 10))
		s.every(away)
		isErr(t, l.Wait(t.Context(), "k"), hybrid.ErrUnavailable)
		time.Sleep(time.Hour)
		s.setJudge(nil)
		d := until(10*time.Millisecond, func() bool { return l.Wait(t.Context(), "k") == nil })
		check(t, d <= 2*ttl, "the first token came %v after the store", d)
	})
}
