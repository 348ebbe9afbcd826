package hybrid_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func TestATightLoopAdmitsExactlyTheBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, burst := range []int64{1, 2, 3, 10, 100, 1000, 40000} {
			if burst > 1000 && (p.virtual && p.rdb != nil || testkit.RaceEnabled) {
				continue // thousands of calls, each a transaction
			}
			// Given a full bucket that refills far more slowly than the loop runs,
			l, key := p.process(t, hybrid.PerHour(1).WithBurst(burst)), fmt.Sprint(burst)
			// when one goroutine asks again and again, then exactly the burst is admitted.
			n := drain(l, key)
			check(t, n == burst, "%d of %d were admitted: %+v", n, burst, l.Stats())
			for range 9 {
				must(t, !l.Allow(key), "burst %d: one more was admitted", burst)
			}
		}
	})
}

// The goal is 99.5 % of what one central bucket admits.
func TestSteadyOverloadIsAdmittedAtTheRate(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(1000)))
		n := admits(20_000, 500*time.Microsecond, func() bool { return l.Allow("k") })
		check(t, n <= 11_000 && n >= 10_945, "admitted %d in 10 s at 1000/s with burst 1000", n)
		calls := l.Stats().Calls
		check(t, calls <= 200, "%d calls in 10 s, want at most 2/tau a second", calls)
	})
}

// Bursts of requests in no time at all, with pauses between them that are long enough for the delay
// after a shortfall to end, are decided one by one as golang.org/x/time/rate decides them.
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
			l := start(t, s, of(c.limit))
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

// Requests of different sizes that wait for one call are served from what it brings, each that
// fits.
func TestALargeRequestDoesNotBlockSmallOnes(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		// Given 30 tokens in the bucket, and a key that nobody has asked for yet here,
		cfg := of(hybrid.PerHour(1).WithBurst(40))
		l0, l := start(t, s, cfg), start(t, s, cfg)
		must(t, l0.AllowN("k", 10), "denied")
		l0.Shutdown(t.Context())
		hold := make(chan struct{})
		s.every(verdict{late: hold})
		// when 1, 40 and 1 wait for the same call,
		var got [3]bool
		for i, n := range []int64{1, 40, 1} {
			go func() { got[i] = l.AllowN("k", n) }()
			synctest.Wait()
		}
		close(hold)
		synctest.Wait()
		// then the small ones are admitted and the large one is not.
		check(t, got == [3]bool{true, false, true}, "%v; %+v", got, l.Stats())
	})
}

func TestNewAndAllowDoNotHangWhileRedisIsDown(t *testing.T) {
	// Given a server that has gone,
	server := redistest.Start(t)
	server.Kill()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	must(t, err == nil, "%v", err)
	for cold, want := range map[hybrid.ColdStart]bool{hybrid.ColdStartDeny: false, hybrid.ColdStartAllow: true} {
		// when a Limiter is made and asked, then ColdStart decides.
		got := start(t, store, by(hybrid.Policy{ColdStart: cold}, hybrid.PerSecond(10))).Allow("k")
		check(t, got == want, "ColdStart %v: Allow is %v", cold, got)
	}
}

func TestNothingIsLeftRunningAfterCloseOnRedis(t *testing.T) {
	l := onRedisTime(t).process(t, hybrid.PerSecond(1000))
	for range 500 {
		l.Allow("k")
	}
	l.Close()
	// They end by themselves, and there is nothing else to wait for.
	testkit.Eventually(t, "no goroutine of the limiter's", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("hybrid.(*scheduler)")) &&
			!bytes.Contains(stacks, []byte("redisbucket.(*Store)"))
	})
}

// Requests of different sizes on one key: what the bucket lacks for a large one says nothing about
// a small one.

// Allow behind a wait for more than there is costs no call of its own.
func TestAllowBehindALargeWaitMakesNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10).WithBurst(100)))
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		wait := background(func() { noErr(t, l.WaitN(t.Context(), "k", 100)) })
		time.Sleep(500 * time.Millisecond)
		_, before := s.counts()
		n := admits(2000, time.Millisecond, func() bool { return l.Allow("k") })
		check(t, n == 0, "Allow overtook a wait %d times", n)
		_, after := s.counts()
		check(t, after-before <= 10, "%d lease calls in 2 s", after-before)
		wait()
	})
}

func TestASmallRequestDuringTheCallOfALargeOneIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, of(hybrid.PerSecond(10).WithBurst(100)))
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		s.every(verdict{delay: 10 * time.Millisecond})
		wait := background(func() { l.AllowN("k", 100) })
		time.Sleep(5 * time.Millisecond)
		check(t, l.Allow("k"), "one token was denied, the bucket has %d", s.state(t, "k").Levels[0])
		wait()
	})
}

// A large request that is denied again and again does not keep TryAllow from a call of its own.
func TestTryAllowAfterALargeDenial(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(hybrid.Policy{TTL: time.Minute}, hybrid.PerHour(1).WithBurst(100)))
		l.AllowN("k", 50)
		time.Sleep(10 * time.Second)
		for range 2 {
			l.AllowN("k", 100)
			synctest.Wait()
		}
		d := until(20*time.Millisecond, func() bool { return l.TryAllow("k") })
		check(t, d <= time.Second, "denied for %v with 50 in the bucket", d)
	})
}

// After a large request fell short, a smaller one is served when its own tokens are there.
func TestTheDelayOfALargeRequestIsNotThatOfASmallOne(t *testing.T) {
	short := func(t *testing.T) *hybrid.Limiter {
		l := drained(t, newFaulty(), of(hybrid.PerSecond(100)))
		time.Sleep(100 * time.Millisecond)
		must(t, !l.AllowN("k", 100), "100 of 10")
		return l
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := waitFor(t, short(t), 250*time.Millisecond, 20)
		check(t, err == nil && d <= 110*time.Millisecond,
			"20 tokens are there in 100 ms: %v after %v", err, d)
	})
	synctest.Test(t, func(t *testing.T) {
		l := short(t)
		time.Sleep(150 * time.Millisecond)
		r, err := l.Take(t.Context(), "k", 20)
		check(t, err == nil && r.OK, "the bucket has 25: %+v, %v", r, err)
	})
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := drained(t, s, by(hybrid.Policy{TTL: time.Minute}, hybrid.PerSecond(10).WithBurst(1000)))
		ctx, cancel := context.WithCancel(t.Context())
		wait := background(func() { _ = l.WaitN(ctx, "k", 1000) })
		time.Sleep(time.Second)
		cancel()
		wait()
		d := took(func() { _ = l.WaitN(t.Context(), "k", 20) })
		check(t, d <= 2*time.Second, "20 tokens of 10/s behind a wait that was cancelled took %v", d)
	})
}

// The process that lowers a burst gives back what it holds instead of letting it run out: it goes
// on at once.
func TestWhoLowersABurstGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, by(hybrid.Policy{TTL: time.Minute}, hybrid.PerSecond(1000)))
		for range 10 {
			l.Allow("k")
		}
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(50)))
		synctest.Wait()
		d := until(time.Millisecond, func() bool { return l.Allow("k") })
		check(t, d <= 50*time.Millisecond, "nothing for %v", d)
		check(t, l.Stats().Burnt == 0, "%+v", l.Stats())
	})
}
