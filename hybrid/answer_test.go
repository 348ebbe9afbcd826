package hybrid_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Take says what the decision rests on, by which limit, and when to come back; Peek does so without
// taking or creating anything.
func TestTakeAndPeekSayWhy(t *testing.T) {
	bubble(t, func(t *world) {
		limit := hybrid.PerHour(36).WithBurst(10)
		l := t.process(limit, hybrid.PerHour(3600).WithBurst(100))
		answers := func(want hybrid.Result) func(hybrid.Result, error) {
			want.Key, want.Limit, want.Source = "k", limit, hybrid.SourceStore
			return func(r hybrid.Result, err error) {
				t.Helper()
				check(t, err == nil && r == want, "%+v, %v, want %+v", r, err, want)
			}
		}
		// An unused key is full, and stays unknown.
		answers(hybrid.Result{OK: true, Remaining: 10})(l.Peek(t.Context(), "k"))
		st := l.Stats()
		check(t, !t.state("k").Exists && st.Keys == 0 && st.Calls == 0, "Peek left something: %+v", st)
		// After some use both report the tokens left, in any process: one token takes 100 s.
		left := hybrid.Result{OK: true, Remaining: 6, ResetAfter: 400 * time.Second}
		taken := left
		taken.Taken = 4
		answers(taken)(l.Take(t.Context(), "k", 4))
		for range 20 {
			answers(left)(l.Key("k").Peek(t.Context()))
		}
		left.OK, left.RetryAfter = false, 200*time.Second
		answers(left)(l.Take(t.Context(), "k", 8))
		drain(l, "k")
		empty := hybrid.Result{RetryAfter: 100 * time.Second, ResetAfter: 1000 * time.Second}
		answers(empty)(l.Peek(t.Context(), "k"))
		equal(t, l.Stats().Admitted, 10, "admitted")
	})
}

// redis_rate and throttled: a caller that waits RetryAfter finds the tokens, one that waits less does
// not.
func TestPeerRetryAfterIsTheEarliestTime(t *testing.T) {
	everywhere(t, func(t *world) {
		// Given empty buckets that get a token in 100 s,
		l := t.process(hybrid.PerHour(36).WithBurst(10))
		for _, n := range []int64{1, 3, 10} {
			key, early := fmt.Sprint(n), fmt.Sprint(n, " early")
			from := time.Now()
			drain(l, key)
			drain(l, early)
			r, err := l.Take(t.Context(), key, n)
			since := time.Since(from)
			must(t, err == nil && !r.OK, "%+v, %v", r, err)
			// RetryAfter is when they have flowed, and nothing longer:
			flow := time.Duration(n) * 100 * time.Second
			check(t, r.RetryAfter <= flow && r.RetryAfter >= flow-since && (!t.virtual() || r.RetryAfter == flow),
				"%d tokens: RetryAfter is %v, they flow in %v, of which %v at most have passed",
				n, r.RetryAfter, flow, since)
			if !t.virtual() {
				continue
			}
			// before it they are not there, and after it they are.
			time.Sleep(r.RetryAfter - time.Millisecond)
			check(t, !l.AllowN(early, n), "%d tokens were there before RetryAfter", n)
			time.Sleep(time.Millisecond)
			check(t, l.AllowN(key, n), "%d tokens were not there after RetryAfter: %+v", n, t.state(key))
		}
	})
}

// redis_rate and throttled: ResetAfter is when everything is there again that remains or will: what
// this process holds counts, and so does the part of a token that has flowed, also in RetryAfter.
func TestPeerResetAfterIsWhenRemainingIsTheBurst(t *testing.T) {
	inVirtualTime(t, func(t *world) {
		// Given a full bucket of 60 that gets one a second,
		l := t.start(by(hybrid.Policy{MinBatch: 23}, hybrid.PerMinute(60)))
		says := func(r hybrid.Result, err error, remaining int64, retry, reset time.Duration) {
			t.Helper()
			check(t, err == nil && r.Remaining == remaining && r.RetryAfter == retry && r.ResetAfter == reset,
				"%+v, %v, want %d left, a token in %v, all in %v", r, err, remaining, retry, reset)
		}
		takeAndPeek := func(remaining int64, retry, reset time.Duration) {
			t.Helper()
			r, err := l.Take(t.Context(), "k", 1)
			says(r, err, remaining, retry, reset)
			r, err = l.Peek(t.Context(), "k")
			says(r, err, remaining, retry, reset)
		}
		// when 13 are taken, of a lease of 23, then 13 seconds are missing, wherever the rest is.
		must(t, l.AllowN("k", 12), "denied")
		takeAndPeek(47, 0, 13*time.Second)
		// And when all is taken, then the part of the next token that has flowed counts.
		drain(l, "k")
		for gone := 300 * time.Millisecond; gone < time.Second; gone += 300 * time.Millisecond {
			time.Sleep(300 * time.Millisecond)
			takeAndPeek(0, time.Second-gone, time.Minute-gone)
		}
		// Nor does it matter that an admitted one is the first to hear of a part of a token.
		time.Sleep(1800 * time.Millisecond) // 2.7 tokens
		r, err := l.Take(t.Context(), "k", 1)
		says(r, err, 1, 0, 58_300*time.Millisecond)
	})
}

// redis_rate and ulule/limiter: limit, remaining, retry-after and reset of one answer belong
// together, though the limit changes all the time, because they come from one reply.
func TestPeerLimitRemainingAndResetComeFromOneReply(t *testing.T) {
	everywhere(t, func(t *world) {
		// Given limits that another process changes between two that have nothing in common,
		either := limits(hybrid.PerHour(10), hybrid.PerHour(3600).WithBurst(1000))
		cfg := by(hybrid.Policy{TTL: 200 * time.Millisecond}, hourly)
		setter, user, reader := t.start(cfg), t.start(cfg), t.start(cfg)
		noErr(t, setter.SetLimits(t.Context(), "k", either[1]))
		var over atomic.Bool
		wait := background(func() {
			for i := 0; !over.Load(); i++ {
				time.Sleep(time.Millisecond) // the pace of the changes
				noErr(t, setter.SetLimits(t.Context(), "k", either[i%2]))
			}
		})
		halt := sync.OnceFunc(func() { over.Store(true); wait() })
		defer halt()
		taken, seen := make(map[hybrid.Limit]bool), make(map[hybrid.Limit]bool)
		for i := 0; i < 200 || len(taken) < 2 || len(seen) < 2; i++ {
			r, err := user.Take(t.Context(), "k", 1)
			taken[r.Limit] = true
			// An answer never mixes the two;
			isOne := func() bool { return err == nil && (r.Limit == either[0] || r.Limit == either[1]) }
			must(t, isOne() && r.Remaining >= 0 && r.Remaining <= r.Limit.Capacity() &&
				(r.Remaining == 0 || r.ResetAfter <= r.Limit.TimeToFull()) && (!r.OK || r.RetryAfter == 0),
				"Take: %+v, %v", r, err)
			r, err = reader.Peek(t.Context(), "k")
			seen[r.Limit] = true
			must(t, isOne(), "Peek: %+v, %v", r, err)
			// for a reader that holds nothing, the remaining and the missing tokens add up to the burst.
			period := r.Limit.Per / time.Duration(r.Limit.Tokens)
			missing := time.Duration(r.Limit.Capacity() - r.Remaining)
			// (A limit that has just come back owes what is leased, and then more than the burst is missing.)
			owes := r.Remaining == 0
			must(t, (owes || r.ResetAfter <= missing*period) && r.ResetAfter >= (missing-1)*period, "Peek: %+v", r)
			time.Sleep(time.Millisecond) // the pace of the asking
		}
		halt()
		// And each costs one exchange with the store.
		drain(user, "other")
		controls := t.controls
		_, err := reader.Peek(t.Context(), "other")
		check(t, err == nil && t.controls == controls+1, "Peek took %d exchanges, %v", t.controls-controls, err)
		calls := reader.Stats().Calls
		r, err := reader.Take(t.Context(), "other", 1)
		// (Of a lease that ends while a machine stalls, a second call may be made.)
		one := reader.Stats().Calls == calls+1 || !t.virtual()
		check(t, err == nil && !r.OK && one && t.controls == controls+1,
			"Take: %+v, %v after %d calls", r, err, reader.Stats().Calls-calls)
	})
}

// patient takes tokens of key for span, sleeping RetryAfter after each denial. It counts the answers,
// and the most denials in a row.
func patient(
	t *world, l *hybrid.Limiter, key string, limit hybrid.Limit, span time.Duration,
) (admitted, denied, inARow int64) {
	last := int64(0) // denials at the last admission
	for from := time.Now(); time.Since(from) < span; {
		r, err := l.Take(t.Context(), key, 1)
		noErr(t, err)
		if r.OK {
			admitted, last = admitted+1, denied
			continue
		}
		check(t, r.RetryAfter > 0 && r.Limit == limit, "denied with %+v", r)
		denied++
		inARow = max(inARow, denied-last)
		time.Sleep(max(r.RetryAfter, 1))
	}
	return admitted, denied, inARow
}

// A caller that sleeps RetryAfter after each denial gets the rate, and asks at most once per token
// (x/time/rate's Reserve, redis_rate). A denial names its limit even where the bucket's last known
// level would do, because the fair share denies.
func TestPeerWhoSleepsRetryAfterGetsTheRate(t *testing.T) {
	long := testkit.Long(t, "rates of at most 100/s", "1000/s too")
	inVirtualTime(t, func(t *world) {
		for limit, fleets := range map[hybrid.Limit][]int{
			hybrid.PerSecond(100):                {1, 3},
			hybrid.PerSecond(1000).WithBurst(50): {1, 3},
			hybrid.PerSecond(50).WithBurst(3):    {1, 3},
			hybrid.PerSecond(10).WithBurst(1):    {1},
		} {
			if testkit.RaceEnabled && limit.Tokens >= 100 || !long && limit.Tokens > 100 {
				continue // many decisions, by one goroutine each
			}
			for _, processes := range fleets {
				const span = 30 * time.Second // what stands in the bucket and in leases at the end is then less than 1 %
				key := fmt.Sprintf("%v by %d", limit, processes)
				var admitted, denied atomic.Int64
				var wg sync.WaitGroup
				for range processes {
					l := t.process(limit)
					wg.Go(func() {
						yes, no, _ := patient(t, l, key, limit, span)
						admitted.Add(yes)
						denied.Add(no)
					})
				}
				wg.Wait()
				most := limit.Capacity() + limit.Tokens*int64(span/time.Second)
				check(t, admitted.Load() >= most*99/100, "%s: %d of %d were admitted", key, admitted.Load(), most)
				// At worst all of them come for each token.
				check(t, denied.Load() <= int64(processes)*most, "%s: %d denials", key, denied.Load())
			}
		}
	})
}

// Where the store is away and the fallback gives nothing, a client that sleeps RetryAfter does not
// spin either.
func TestSleepingRetryAfterInAnOutageDoesNotSpin(t *testing.T) {
	const most = 1100 // in ten seconds of 100/s
	const least = most * 99 / 100
	for mode, want := range map[hybrid.Fallback]int64{hybrid.FallbackDeny: 0, hybrid.FallbackLocalShare: least} {
		bubbleOf(t, mode, func(t *world) {
			limit := hybrid.PerSecond(100)
			l := t.start(by(hybrid.Policy{Fallback: mode}, limit))
			l.Allow("k")
			t.every(away)
			time.Sleep(time.Second)
			admitted, denied, _ := patient(t, l, "k", limit, 10*time.Second)
			check(t, denied <= most && denied != 0, "%d denials", denied)
			check(t, admitted >= want, "%d of %d admitted by the local share", admitted, most)
		})
	}
}

// lateTimers is a clock whose timers fire late, as on a machine that has much else to do.
type lateTimers struct {
	clock.Clock
	late time.Duration
}

func (c lateTimers) AfterFunc(d time.Duration, f func()) clock.Timer {
	return lateTimer{c.Clock.AfterFunc(d+c.late, f), c.late}
}

type lateTimer struct {
	clock.Timer
	late time.Duration
}

func (t lateTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d + t.late) }

// A denied caller that sleeps RetryAfter and asks again gets the next token, whether timers fire in
// time or not: the denial ends by the clock. So one process alone is never denied twice in a row, and
// of several that want the same token each is denied once for it.
func TestSleepingRetryAfterCostsOneDenialForAToken(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.PerSecond(10).WithBurst(1), hybrid.PerSecond(100).WithBurst(3), hybrid.PerMinute(7).WithBurst(2),
	} {
		for _, late := range []time.Duration{0, 9 * time.Millisecond} {
			for _, rtt := range []time.Duration{0, 4 * time.Millisecond} {
				for _, processes := range []int{1, 2, 5} {
					name := fmt.Sprintf("%v, %d processes, timers %v late, round trip %v", limit, processes, late, rtt)
					bubbleOf(t, name, func(t *world) {
						t.every(verdict{delay: rtt})
						sleepers(t, processes, late, limit)
					})
				}
			}
		}
	}
}

// sleepers runs processes that ask for tokens one by one, and sleep RetryAfter in between.
func sleepers(t *world, processes int, late time.Duration, limit hybrid.Limit) {
	span := 200 * limit.Per / time.Duration(limit.Tokens)
	var admitted, denied atomic.Int64
	together(processes, func(int) {
		cfg := of(limit)
		cfg.Clock = lateTimers{clock.System(), late}
		cfg.Logger = slog.New(slog.DiscardHandler)
		l, err := hybrid.New(t, cfg)
		noErr(t, err)
		defer l.Close()
		yes, no, inARow := patient(t, l, "k", limit, span)
		admitted.Add(yes)
		denied.Add(no)
		check(t, inARow <= 1 || processes > 1, "denied %d times for a token", inARow)
	})()
	most := limit.Capacity() + 200
	check(t, admitted.Load() >= most*95/100, "%d of %d were admitted", admitted.Load(), most)
	check(t, denied.Load() <= int64(processes)*(admitted.Load()+1),
		"%d denials for %d tokens", denied.Load(), admitted.Load())
}
