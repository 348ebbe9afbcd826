package hybrid_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// x/time/rate, TestSimultaneousRequests: of many requests at once exactly the burst is admitted;
// here too where they come to several processes.
func TestPeerExactlyBurstOutOfSimultaneousRequests(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		limit := hybrid.PerHour(1).WithBurst(25)
		for processes, key := range map[int]string{1: "one", 3: "three"} {
			// Given some processes that have not asked yet,
			ls := make([]*hybrid.Limiter, processes)
			for i := range ls {
				ls[i] = p.process(t, limit)
			}
			// when 60 requests come at once to each,
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for range 60 {
				for _, l := range ls {
					wg.Go(func() {
						if l.Allow(key) {
							admitted.Add(1)
						}
					})
				}
			}
			wg.Wait()
			// then the burst is admitted, or what is missing of it lies with one of them, and comes
			// back.
			now := admitted.Load()
			check(t, now <= 25 && (processes != 1 || now == 25),
				"%d processes: %d admitted of a burst of 25", processes, now)
			for _, l := range ls {
				noErr(t, l.Shutdown(t.Context()))
			}
			if left := p.left(t, key, limit); now+left != 25 {
				t.Errorf("%d processes: %d admitted and %d left of a burst of 25", processes, now, left)
			}
		}
	})
}

// x/time/rate, TestLongRunningQPS: who asks for more than the rate is admitted 99.9 to 100 % of it;
// three processes together at least 99.5 %.
func TestPeerLongRunAdmitsTheRate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		limit := hybrid.PerSecond(20)
		warm, run := 10*time.Second, 50*time.Second
		if !p.virtual {
			warm, run = 0, 300*time.Millisecond
		}
		for processes, key := range map[int]string{1: "one", 3: "three"} {
			// Given processes that ask for three times the rate together,
			var admitted atomic.Int64
			bound := newMeter(limit)
			from := time.Now()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range processes {
				l := p.process(t, limit)
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(processes) * 17 * time.Millisecond): // the pace of the load
						}
						if l.Allow(key) {
							admitted.Add(1)
							bound.admit(1)
						}
					}
				})
			}
			// when they have gone on for long,
			time.Sleep(warm)
			before := admitted.Load()
			time.Sleep(run)
			testkit.Eventually(t, "a token", func() bool { return admitted.Load() > before })
			n := admitted.Load() - before
			close(stop)
			wg.Wait()
			elapsed := time.Since(from)
			// then never more was admitted than the bucket had,
			most := limit.Capacity() + int64(elapsed)*limit.Tokens/int64(limit.Per)
			check(t, admitted.Load() <= most,
				"%d processes: %d admitted in %v, one bucket has %d", processes, admitted.Load(), elapsed, most)
			if !p.virtual {
				continue // when a request was admitted and how many were asked is not known to the millisecond
			}
			// in no window, and hardly less.
			bound.check(t)
			ideal := int64(run) * limit.Tokens / int64(limit.Per)
			least := ideal * 999 / 1000
			if processes > 1 { // a token may lie with one while another is asked
				least = ideal * 995 / 1000
			}
			check(t, n >= least,
				"%d processes: %d of %d admitted in %v, want %d at least", processes, n, ideal, run, least)
		}
	})
}

// x/time/rate (TestLimiter_noTruncationErrors, golang.org/issues/34861) and Bucket4j: the part of a
// token that has flowed when somebody asks is not lost. vearne/ratelimit credits it twice.
func TestPeerFractionalRefillIsNeverLostNorCreditedTwice(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		// Given empty buckets that a token does not fit into evenly, one of them so large that the
		// store counts in milliseconds and keeps a remainder,
		rnd := rand.New(rand.NewPCG(7, 7))
		keys := map[string]hybrid.Limit{
			"seven":     hybrid.PerSecond(7).WithBurst(1000),
			"eleven":    {Tokens: 11, Per: 3 * time.Second, Burst: 1000},
			"remainder": {Tokens: 1_000_003, Per: time.Hour, Burst: 20_000_000},
		}
		cfg := hybrid.Config{
			LimitsFor: func(key string) []hybrid.Limit { return limits(keys[key]) },
			Policy:    hybrid.Policy{StartEmpty: true},
		}
		ls := []*hybrid.Limiter{p.limiter(t, cfg), p.limiter(t, cfg), p.limiter(t, cfg)}
		from := time.Now()
		admitted := make(map[string]int64)
		// when three processes ask at odd moments, so that the bucket is settled hundreds of times,
		for range 700 {
			for key := range keys {
				if ls[rnd.IntN(len(ls))].Allow(key) {
					admitted[key]++
				}
			}
			time.Sleep(time.Duration(1+rnd.Int64N(97_000)) * time.Microsecond)
		}
		time.Sleep(time.Millisecond - time.Since(from)%time.Millisecond) // the store's millisecond is over
		// then what was admitted and what is there is what has flowed, to the token.
		for key, l := range keys {
			left := p.settled(t, key)
			flowed := int64(time.Since(from)) * l.Tokens / int64(l.Per)
			check(t, admitted[key]+left == flowed, "%v: %d admitted and %d left, but %d have flowed", l, admitted[key], left, flowed)
			check(t, admitted[key] != 0, "%v: nothing was admitted", l)
		}
	})
}

// x/time/rate, TestLimiterJumpBackwards: a clock that goes back gives nothing and takes nothing,
// and from then on time counts from there. (On Redis's own clock: internal/faults.)
func TestPeerAClockThatJumpsBackMintsNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		// Given a bucket with 4 tokens of 10, and an empty one, that get one in six minutes,
		limit := hybrid.PerHour(10)
		l := p.process(t, limit)
		must(t, l.AllowN("four", 6) && l.AllowN("none", 10), "denied")
		synctest.Wait() // not settled, which lets time pass where it has to poll
		equal(t, l.Stats().Held, 0, "held")
		for _, back := range []time.Duration{time.Microsecond, time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
			// when the server's clock goes back,
			p.clock.Step(-back)
			// then neither has more nor less, whoever asks,
			check(t, !p.process(t, limit).Allow("none") && !l.Allow("none"),
				"%v back: a token out of nothing", back)
			st := p.state(t, "four")
			check(t, st.Levels[0] == 4, "%v back: %+v", back, st)
		}
		check(t, !l.AllowN("four", 5) && p.process(t, limit).AllowN("four", 1), "not the 4 that were there")
		// and after a whole period, counted from there, there is one token, and no more.
		time.Sleep(6*time.Minute - time.Millisecond)
		check(t, !p.process(t, limit).Allow("none"), "a token before its time")
		time.Sleep(time.Millisecond)
		equal(t, p.left(t, "none", limit), 1, "tokens after the time of one")
	})
}
