package hybrid_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// Take says what the decision rests on, by which limit, and when to come back; Peek does so without
// taking or creating anything, and costs one exchange with the store.
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
		before := t.controls
		answers(left)(l.Key("k").Peek(t.Context()))
		equal(t, t.controls-before, 1, "exchanges")
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
		defer func() { over.Store(true); wait() }()
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
	})
}

// sleepers runs processes that take tokens one by one for span, and sleep RetryAfter after each
// denial. Together they get that part of what the limit gives, and each is denied at most once for
// each token; one process alone is never denied twice in a row.
func sleepers(t *world, cfg hybrid.Config, key string, processes int, span time.Duration, percent int64) {
	t.Helper()
	limit, ls := cfg.Limits[0], t.fleet(processes, cfg)
	var admitted, denied atomic.Int64
	together(processes, func(i int) {
		last, all := int64(0), int64(0) // denials until the last admission, and now
		for from := time.Now(); time.Since(from) < span; {
			r, err := ls[i].Take(t.Context(), key, 1)
			noErr(t, err)
			if r.OK {
				admitted.Add(1)
				last = all
				continue
			}
			all++
			check(t, r.RetryAfter > 0 && r.Limit == limit, "denied with %+v", r)
			check(t, all-last <= 1 || processes > 1, "denied %d times for a token", all-last)
			time.Sleep(max(r.RetryAfter, 1))
		}
		denied.Add(all)
	})()
	yes, no, most := admitted.Load(), denied.Load(), oneBucketHas(limit, span)
	check(t, yes >= most*percent/100, "%s: %d of %d were admitted", key, yes, most)
	check(t, no <= int64(processes)*(yes+1), "%s: %d denials for %d tokens", key, no, yes)
}

// A caller that sleeps RetryAfter after each denial gets the rate, and asks at most once per token
// (x/time/rate's Reserve, redis_rate). A denial names its limit even where the bucket's last known
// level would do, because the fair share denies.
func TestPeerWhoSleepsRetryAfterGetsTheRate(t *testing.T) {
	long := testkit.Long(t, "rates of at most 100/s", "1000/s too")
	inVirtualTime(t, func(t *world) {
		for _, limit := range []hybrid.Limit{
			hybrid.PerSecond(50).WithBurst(3), hybrid.PerSecond(100), hybrid.PerSecond(1000).WithBurst(50),
		} {
			if testkit.RaceEnabled && limit.Tokens >= 100 || !long && limit.Tokens > 100 {
				continue // many decisions, by one goroutine each
			}
			for _, processes := range []int{1, 3} {
				// What stands in the bucket and in leases at the end of 30 s is less than 1 %.
				sleepers(t, of(limit), fmt.Sprintf("%v by %d", limit, processes), processes, 30*time.Second, 99)
			}
		}
	})
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
// time or not: the denial ends by the clock.
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
						cfg := of(limit)
						cfg.Clock = lateTimers{clock.System(), late}
						sleepers(t, cfg, "k", processes, 200*limit.Per/time.Duration(limit.Tokens), 95)
					})
				}
			}
		}
	}
}
