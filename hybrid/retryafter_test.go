package hybrid_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Whoever is denied and sleeps for RetryAfter gets the rate, and asks no oftener than there are
// tokens: every denial says when to come back, and who comes back then is not denied for the same
// reason. (x/time/rate's Reserve, redis_rate.)
func TestPeerWhoSleepsRetryAfterGetsTheRate(t *testing.T) {
	for limit, fleets := range map[hybrid.Limit][]int{
		hybrid.PerSecond(100):                {1, 3},
		hybrid.PerSecond(1000).WithBurst(50): {1, 3},
		hybrid.PerSecond(50).WithBurst(3):    {1, 3},
		hybrid.PerSecond(10).WithBurst(1):    {1},
	} {
		for _, processes := range fleets {
			t.Run(fmt.Sprintf("%v by %d", limit, processes), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, p *place) {
					const span = 30 * time.Second // what stands in the bucket and in leases at the end is then less than 1 %
					admitted, denied := make(chan int64, processes), make(chan int64, processes)
					for range processes {
						l := p.process(t, limit)
						go func() {
							ok, no := int64(0), int64(0)
							for from := time.Now(); time.Since(from) < span; {
								r, err := l.Take(t.Context(), "k", 1)
								switch {
								case err != nil:
									t.Error(err)
								case r.OK:
									ok++
									continue
								case r.RetryAfter <= 0:
									t.Errorf("denied with RetryAfter %v", r.RetryAfter)
								}
								no++
								time.Sleep(max(r.RetryAfter, 1))
							}
							admitted <- ok
							denied <- no
						}()
					}
					ok, no := int64(0), int64(0)
					for range processes {
						ok, no = ok+<-admitted, no+<-denied
					}
					most := limit.Capacity() + limit.Tokens*int64(span/time.Second)
					check(t, ok >= most*99/100, "%d of %d were admitted", ok, most)
					// At worst all of them come for each token.
					check(t, no <= int64(processes)*most, "%d denials", no)
				})
			})
		}
	}
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
					l, err := hybrid.New(lease.NewMemoryStore(manual), hybrid.Config{Limits: limits(hybrid.PerHour(10)), Clock: manual, Events: events})
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
			s.every(verdict{err: lease.ErrUnavailable})
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
	for i := range 30 {
		// Given a clock that nobody moves,
		manual := clock.NewManual(0)
		l, err := hybrid.New(lease.NewMemoryStore(manual), hybrid.Config{Limits: limits(hybrid.PerHour(100)), Clock: manual})
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
