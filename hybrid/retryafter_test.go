package hybrid_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Whoever is denied and sleeps for RetryAfter gets the rate, and asks no oftener than there are
// tokens: every denial says when to come back, and who comes back then is not denied for the same
// reason. (x/time/rate's Reserve, redis_rate.)
func TestPeerWhoSleepsRetryAfterGetsTheRate(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		for limit, fleets := range map[hybrid.Limit][]int{
			hybrid.PerSecond(100):                {1, 3},
			hybrid.PerSecond(1000).WithBurst(50): {1, 3},
			hybrid.PerSecond(50).WithBurst(3):    {1, 3},
			hybrid.PerSecond(10).WithBurst(1):    {1},
		} {
			if testkit.RaceEnabled && limit.Tokens >= 100 {
				continue // many decisions, by one goroutine each
			}
			for _, processes := range fleets {
				const span = 30 * time.Second // what stands in the bucket and in leases at the end is then less than 1 %
				key := fmt.Sprintf("%v by %d", limit, processes)
				var admitted, denied atomic.Int64
				var wg sync.WaitGroup
				for range processes {
					l := p.process(t, limit)
					wg.Go(func() {
						for from := time.Now(); time.Since(from) < span; {
							r, err := l.Take(t.Context(), key, 1)
							noErr(t, err)
							if r.OK {
								admitted.Add(1)
								continue
							}
							check(t, r.RetryAfter > 0, "denied with RetryAfter %v", r.RetryAfter)
							denied.Add(1)
							time.Sleep(max(r.RetryAfter, 1))
						}
					})
				}
				wg.Wait()
				most := limit.Capacity() + limit.Tokens*int64(span/time.Second)
				check(t, admitted.Load() >= most*99/100,
					"%s: %d of %d were admitted", key, admitted.Load(), most)
				// At worst all of them come for each token.
				check(t, denied.Load() <= int64(processes)*most, "%s: %d denials", key, denied.Load())
			}
		}
	})
}

// A clock that a test moves is all that decides: no goroutine has to have run meanwhile.
func TestAManualClockJustWorks(t *testing.T) {
	verbs := map[string]func(l *hybrid.Limiter, k *hybrid.Key) bool{
		"Take":     func(l *hybrid.Limiter, _ *hybrid.Key) bool { r, _ := l.Take(t.Context(), "k", 1); return r.OK },
		"Allow":    func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Allow("k") },
		"AllowN":   func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.AllowN("k", 1) },
		"Key.Take": func(_ *hybrid.Limiter, k *hybrid.Key) bool { r, _ := k.Take(t.Context(), 1); return r.OK },
		"Key":      func(_ *hybrid.Limiter, k *hybrid.Key) bool { return k.Allow() },
		"Wait":     func(l *hybrid.Limiter, _ *hybrid.Key) bool { return l.Wait(t.Context(), "k") == nil },
	}
	for name, asks := range verbs {
		for _, events := range []hybrid.Events{{}, {Denied: func(string, int64) {}}} {
			t.Run(fmt.Sprint(name, " listened to: ", events.Denied != nil), func(t *testing.T) {
				for i := range 100 {
					// Given a bucket that has just been emptied,
					manual := clock.NewManual(0)
					cfg := hybrid.Config{Limits: limits(hybrid.PerHour(10)), Clock: manual, Events: events}
					l, err := hybrid.New(lease.NewMemoryStore(manual), cfg)
					noErr(t, err)
					k := l.Key("k")
					for k.Allow() {
					}
					for range 5 {
						must(t, !k.Allow() && !l.Allow("k"), "more than the burst")
					}
					// when the time has passed in which it fills up,
					manual.Advance(time.Hour)
					// then there are tokens, at once. (Not always all: a call that the limiter
					// makes while the clock moves takes as long as that, and the lease that it
					// brings has ended.)
					if !asks(l, k) {
						t.Fatalf("run %d: denied: %+v", i, l.Stats())
					}
					l.Close()
				}
			})
		}
	}
}

// Where the store is away and the fallback gives nothing, a client that sleeps RetryAfter does not
// spin either.
func TestWhoSleepsRetryAfterInAnOutageDoesNotSpin(t *testing.T) {
	for _, mode := range []hybrid.Fallback{hybrid.FallbackDeny, hybrid.FallbackLocalShare} {
		bubbleOf(t, fmt.Sprint(mode), func(t *testing.T, s *faultyStore) {
			limit := hybrid.PerSecond(100)
			l := start(t, s, by(hybrid.Policy{Fallback: mode}, limit))
			l.Allow("k")
			s.every(away)
			time.Sleep(time.Second)
			ok, no := 0, 0
			for from := time.Now(); time.Since(from) < 10*time.Second; {
				r, err := l.Take(t.Context(), "k", 1)
				noErr(t, err)
				if r.OK {
					ok++
					continue
				}
				no++
				time.Sleep(r.RetryAfter)
			}
			check(t, no <= 1100 && no != 0, "%d denials", no)
			want := int64(1100)
			check(t, mode != hybrid.FallbackLocalShare || int64(ok) >= want*99/100,
				"%d of %d admitted by the local share", ok, want)
		})
	}
}

// Calls that are held back for others to go along go when those before them are back: time may
// stand still.
func TestNobodyHangsWhileAManualClockStands(t *testing.T) {
	for i := range testkit.PlainOrRace(30, 10) {
		// Given a clock that nobody moves,
		manual := clock.NewManual(0)
		cfg := hybrid.Config{Limits: limits(hybrid.PerHour(100)), Clock: manual}
		l, err := hybrid.New(lease.NewMemoryStore(manual), cfg)
		noErr(t, err)
		// when many ask for many keys at once,
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for j := range 600 {
					if l.Allow(fmt.Sprint("k", (j*7+g)%20)) {
						admitted.Add(1)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute): // for ever
			t.Fatalf("run %d hangs: %+v", i, l.Stats())
		}
		// then each key's burst is admitted.
		if admitted.Load() != 20*100 {
			t.Fatalf("run %d: %d of 2000 were admitted: %+v", i, admitted.Load(), l.Stats())
		}
		l.Close()
	}
}
