package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func newLimiter(t *testing.T, cfg hybrid.Config) *hybrid.Limiter {
	t.Helper()
	l, err := hybrid.New(lease.NewMemoryStore(nil), cfg)
	noErr(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func TestATightLoopAdmitsExactlyTheBurst(t *testing.T) {
	for _, burst := range []int64{1, 2, 3, 10, 100, 1000, 40000} {
		synctest.Test(t, func(t *testing.T) {
			// Given a full bucket that refills far more slowly than the loop runs,
			l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(burst)}})
			// when one goroutine asks again and again,
			for i := range burst {
				if !l.Allow("k") {
					t.Fatalf("burst %d: request %d was denied; stats %+v", burst, i+1, l.Stats())
				}
			}
			// then exactly the burst is admitted.
			for range 10 {
				must(t, !l.Allow("k"), "burst %d: one more was admitted", burst)
			}
		})
	}
}

func TestSteadyOverloadIsAdmittedAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}})
		var wg sync.WaitGroup
		admitted := 0
		wg.Go(func() {
			for range 20000 {
				if l.TryAllow("k") {
					admitted++
				}
				time.Sleep(500 * time.Microsecond)
			}
		})
		wg.Wait()
		s := l.Stats()
		check(t, admitted <= 11000 && admitted >= 10850,
			"admitted %d in 10 s at 1000/s with burst 1000", admitted)
		check(t, s.Calls <= 200, "%d calls in 10 s, want at most 2/tau a second", s.Calls)
	})
}

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

// onRedis returns a Limiter on a real server, and the store behind it.
func onRedis(t *testing.T, addr string, cfg hybrid.Config) (*hybrid.Limiter, *redisbucket.Store) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	noErr(t, err)
	// A machine that stalls must not turn a wait for a lease into a denial.
	cfg.CallTimeout = 30 * time.Second
	l, err := hybrid.New(store, cfg)
	noErr(t, err)
	t.Cleanup(func() {
		l.Close()
		rdb.Close()
	})
	return l, store
}

func TestATightLoopAdmitsExactlyTheBurstOnRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	for key, burst := range map[string]int64{"one": 1, "two": 2, "ten": 10, "thousand": 1000, "many": 40000} {
		// Given a full bucket that refills one token an hour,
		l, _ := onRedis(t, addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1).WithBurst(burst)}})
		// when one goroutine asks again and again,
		for i := range burst {
			if !l.Allow(key) {
				t.Fatalf("burst %d: request %d was denied; %+v", burst, i+1, l.Stats())
			}
		}
		// then exactly the burst is admitted.
		for range 10 {
			must(t, !l.Allow(key), "burst %d: one more was admitted", burst)
		}
	}
}

func TestShutdownGivesEverythingBackToRedis(t *testing.T) {
	// Given a process that has leased more than it spent,
	l, store := onRedis(t, redistest.Start(t).Addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1000)}})
	for range 10 {
		must(t, l.Allow("k"), "denied")
	}
	// when it shuts down,
	noErr(t, l.Shutdown(t.Context()))
	// then the bucket has everything but what was admitted.
	st, err := store.Inspect(context.Background(), "k")
	check(t, err == nil && st.Ledger == 0 && st.Levels[0] == 990,
		"level %d, ledger %d, want 990 and 0; %v", st.Levels[0], st.Ledger, err)
	s := l.Stats()
	check(t, s.Leased == s.Admitted+s.Returned && s.Admitted == 10, "%+v", s)
}

func TestNewAndAllowDoNotHangWhileRedisIsDown(t *testing.T) {
	// Given a server that has gone,
	server := redistest.Start(t)
	addr := server.Addr
	server.Kill()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	store, err := redisbucket.New(rdb, redisbucket.Config{})
	noErr(t, err)
	for cold, want := range map[hybrid.ColdStart]bool{hybrid.ColdStartDeny: false, hybrid.ColdStartAllow: true} {
		// when a Limiter is made and asked,
		l, err := hybrid.New(store, hybrid.Config{Limits: []lease.Limit{hybrid.PerSecond(10)}, Policy: hybrid.Policy{ColdStart: cold}})
		noErr(t, err)
		// then ColdStart decides.
		got := l.Allow("k")
		check(t, got == want, "ColdStart %v: Allow is %v", cold, got)
		l.Close()
	}
}

func TestNothingIsLeftRunningAfterCloseOnRedis(t *testing.T) {
	l, _ := onRedis(t, redistest.Start(t).Addr, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}})
	for range 500 {
		l.Allow("k")
	}
	l.Close()
	// They end by themselves, and there is nothing else to wait for.
	for start := time.Now(); ; {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left := strings.Count(string(stacks), "hybrid.(*scheduler)") + strings.Count(string(stacks), "redisbucket.(*Store)")
		if left == 0 {
			return
		}
		must(t, time.Since(start) <= 30*time.Second, "still running:\n%s", stacks)
		runtime.Gosched()
	}
}

// Requests of different sizes on one key: what the bucket lacks for a large one says nothing about a small one.

// Allow behind a wait for more than there is costs no call of its own.
func TestAllowBehindALargeWaitMakesNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(100))})
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			noErr(t, l.WaitN(t.Context(), "k", 100))
		})
		time.Sleep(500 * time.Millisecond)
		_, before := s.counts()
		for range 2000 {
			must(t, !l.Allow("k"), "Allow overtook a wait")
			time.Sleep(time.Millisecond)
		}
		_, after := s.counts()
		check(t, after-before <= 10, "%d lease calls in 2 s", after-before)
		wg.Wait()
	})
}

func TestASmallRequestDuringTheCallOfALargeOneIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(100))})
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		s.every(verdict{delay: 10 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { l.AllowN("k", 100) })
		time.Sleep(5 * time.Millisecond)
		if !l.Allow("k") {
			t.Errorf("one token was denied, the bucket has %d", s.state(t, "k").Levels[0])
		}
		wg.Wait()
	})
}

// A large request that is denied again and again does not keep TryAllow from a call of its own.
func TestTryAllowAfterALargeDenial(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerHour(1).WithBurst(100)), Policy: hybrid.Policy{TTL: time.Minute}})
		l.AllowN("k", 50)
		time.Sleep(10 * time.Second)
		for range 2 {
			l.AllowN("k", 100)
			synctest.Wait()
		}
		if d := took(func() {
			for !l.TryAllow("k") {
				time.Sleep(20 * time.Millisecond)
			}
		}); d > time.Second {
			t.Errorf("denied for %v with 50 in the bucket", d)
		}
	})
}

// After a large request fell short, a smaller one is served when its own tokens are there.
func TestTheDelayOfALargeRequestIsNotThatOfASmallOne(t *testing.T) {
	short := func(t *testing.T) *hybrid.Limiter {
		l := drained(t, newFaulty(), hybrid.Config{Limits: limits(hybrid.PerSecond(100))})
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
		l := drained(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(10).WithBurst(1000)), Policy: hybrid.Policy{TTL: time.Minute}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.WaitN(ctx, "k", 1000) })
		time.Sleep(time.Second)
		cancel()
		wg.Wait()
		d := took(func() { _ = l.WaitN(t.Context(), "k", 20) })
		check(t, d <= 2*time.Second,
			"20 tokens of 10/s behind a wait that was cancelled took %v", d)
	})
}

// The process that lowers a burst gives back what it holds instead of letting it run out: it goes on at once.
func TestWhoLowersABurstGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *faultyStore) {
		l := start(t, s, hybrid.Config{Limits: limits(hybrid.PerSecond(1000)), Policy: hybrid.Policy{TTL: time.Minute}})
		for range 10 {
			l.Allow("k")
		}
		noErr(t, l.SetLimits(t.Context(), "k", hybrid.PerSecond(1000).WithBurst(50)))
		synctest.Wait()
		if d := took(func() {
			for !l.Allow("k") {
				time.Sleep(time.Millisecond)
			}
		}); d > 50*time.Millisecond {
			t.Errorf("nothing for %v", d)
		}
		st := l.Stats()
		check(t, st.Burnt == 0, "%+v", st)
	})
}
