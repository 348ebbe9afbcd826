package hybrid_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Bursts of requests in no time at all, with pauses between them that are long enough for the delay after a
// shortfall to end, are decided one by one as golang.org/x/time/rate decides them.
func TestBurstsAreDecidedAsByTimeRate(t *testing.T) {
	for _, c := range []struct {
		limit hybrid.Limit
		n     int64         // tokens a request; negative: 1 to -n at random
		pause time.Duration // the least
	}{
		{hybrid.PerSecond(10), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(10).WithBurst(3), 1, 300 * time.Millisecond},
		{hybrid.Every(70 * time.Millisecond), 1, 200 * time.Millisecond},
		{hybrid.PerSecond(1000), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(1000).WithBurst(50), 1, 300 * time.Millisecond},
		{hybrid.PerSecond(100).WithBurst(5000), 1, 300 * time.Millisecond},
		{hybrid.PerMinute(600).WithBurst(20), 3, time.Second},
		{hybrid.PerSecond(1000), 7, 300 * time.Millisecond},
		{hybrid.PerSecond(200).WithBurst(64), 64, time.Second},
		{hybrid.PerSecond(50).WithBurst(10), 4, 500 * time.Millisecond},
		{hybrid.PerSecond(50).WithBurst(10), -10, 500 * time.Millisecond},
		{hybrid.PerMinute(600).WithBurst(20), -5, time.Second},
		{hybrid.PerSecond(1000).WithBurst(3000), -50, 300 * time.Millisecond},
	} {
		bubbleOf(t, fmt.Sprintf("%v n %d", c.limit, c.n), func(t *testing.T, s *faultyStore) {
			r := rand.New(rand.NewPCG(1, 2))
			// Given the two limiters with full buckets,
			l := start(t, s, hybrid.Config{Limits: limits(c.limit)})
			ref := rate.NewLimiter(rate.Limit(c.limit.Rate()), int(c.limit.Capacity()))
			for round := range 40 {
				// when both are asked the same until a few requests are denied,
				for i, denied := 1, 0; denied < 5; i++ {
					n := c.n
					if n < 0 {
						n = 1 + r.Int64N(-n)
					}
					want := ref.AllowN(time.Now(), int(n))
					// then they agree.
					if got := l.AllowN("k", n); got != want {
						t.Fatalf("round %d, request %d of %d: %v, x/time/rate says %v; %+v", round, i, n, got, want, l.Stats())
					}
					if !want {
						denied++
					}
				}
				// The store counts in microseconds.
				time.Sleep(c.pause + time.Duration(r.Int64N(c.pause.Microseconds()))*time.Microsecond)
			}
		})
	}
}

// A request that is denied for its size costs nobody anything: what this process holds stays for the others,
// and what it holds counts for the next large one.
func TestADeniedLargeRequestCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given a bucket of 10 that refills in hours, of which 4 are spent,
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(10))})
		must(t, l.AllowN("k", 4), "4 of 10 were denied")
		// when 7 are asked for again and again,
		for range 5 {
			must(t, !l.AllowN("k", 7), "7 of 6 were admitted")
		}
		// then all 6 are still there.
		time.Sleep(2 * time.Hour) // 2 more: 8
		check(t, l.AllowN("k", 8), "8 of 8 were denied: %+v", l.Stats())
	})
}

// Requests of different sizes that wait for one call are served from what it brings, each that fits.
func TestALargeRequestDoesNotBlockSmallOnes(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given 30 tokens in the bucket, and a key that nobody has asked for yet here,
		l0 := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(40))})
		must(t, l0.AllowN("k", 10), "denied")
		l0.Shutdown(t.Context())
		hold := make(chan struct{})
		s.every(verdict{late: hold})
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(40))})
		answers := make(chan string, 3)
		go func() { answers <- fmt.Sprint("first ", l.Allow("k")) }()
		synctest.Wait()
		// when 40, and then 1 and 1 wait for the same call,
		go func() { answers <- fmt.Sprint("forty ", l.AllowN("k", 40)) }()
		synctest.Wait()
		go func() { answers <- fmt.Sprint("one ", l.Allow("k")) }()
		synctest.Wait()
		close(hold)
		synctest.Wait()
		// then the small ones are admitted and the large one is not.
		got := map[string]bool{<-answers: true, <-answers: true, <-answers: true}
		check(t, got["first true"] && got["one true"] && got["forty false"],
			"%v; %+v", got, l.Stats())
	})
}
