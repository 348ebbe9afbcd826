package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
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

// redis_rate and throttled: a caller that waits RetryAfter finds the tokens, one that waits less does not.
func TestPeerRetryAfterIsTheEarliestTime(t *testing.T) {
	bubble(t, func(t *world) {
		// Given empty buckets that get a token in 100 s,
		l := t.process(hybrid.PerHour(36).WithBurst(10))
		for _, n := range []int64{1, 3, 10} {
			key, early := fmt.Sprint(n), fmt.Sprint(n, " early")
			drain(l, key)
			drain(l, early)
			// then RetryAfter is when they have flowed:
			r, err := l.Take(t.Context(), key, n)
			must(t, err == nil && !r.OK && r.RetryAfter == time.Duration(n)*100*time.Second, "%d: %+v, %v", n, r, err)
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
	bubble(t, func(t *world) {
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
// (x/time/rate's Reserve, redis_rate), whether timers fire in time or not: the denial ends by the clock. A
// denial names its limit even where the bucket's last known level would do, because the fair share denies.
func TestPeerWhoSleepsRetryAfterGetsTheRate(t *testing.T) {
	for _, limit := range []hybrid.Limit{
		hybrid.PerSecond(10).WithBurst(1), hybrid.PerSecond(100).WithBurst(3), hybrid.PerMinute(7).WithBurst(2),
		hybrid.PerSecond(1000).WithBurst(50),
	} {
		for _, late := range []time.Duration{0, 9 * time.Millisecond} {
			for _, rtt := range []time.Duration{0, 4 * time.Millisecond} {
				for _, processes := range []int{1, 2, 5} {
					name := fmt.Sprintf("%v, %d processes, timers %v late, round trip %v", limit, processes, late, rtt)
					bubbleOf(t, name, func(t *world) {
						t.every(verdict{delay: rtt})
						cfg := of(limit)
						cfg.Clock = &watchedClock{late: late}
						span, percent := 200*limit.Per/time.Duration(limit.Tokens), int64(95)
						if limit.Tokens > 100 { // which may be less than the round trips take
							span, percent = 2*limit.Per, 90
						}
						sleepers(t, cfg, "k", processes, span, percent)
					})
				}
			}
		}
	}
}

// A bucket that cannot grant a large request may still grant small ones: one call serves each of
// those that wait for it and fit.
func TestALargeRequestBesideSmallOnes(t *testing.T) {
	bubble(t, func(t *world) {
		cfg := of(hybrid.PerHour(1).WithBurst(40))
		l0, l := t.start(cfg), t.start(cfg)
		must(t, l0.AllowN("k", 10), "denied")
		l0.Shutdown(t.Context())
		hold := make(chan struct{})
		t.every(verdict{late: hold})
		var got [3]bool
		wait := inTurn(3, func(i int) { got[i] = l.AllowN("k", []int64{1, 40, 1}[i]) })
		close(hold)
		wait()
		check(t, got == [3]bool{true, false, true}, "%v; %+v", got, l.Stats())
	})
}

// After a large request fell short, and while it waits for its call, a smaller one is served as
// soon as its own tokens are there.
func TestTheDelayOfALargeRequestIsNotThatOfASmallOne(t *testing.T) {
	short := func(t *world) *hybrid.Limiter {
		l := t.drained(of(hybrid.PerSecond(100)))
		time.Sleep(100 * time.Millisecond)
		must(t, !l.AllowN("k", 100), "100 of 10")
		return l
	}
	bubbleOf(t, "Wait after a denial", func(t *world) {
		d, err := waitFor(t, short(t), 250*time.Millisecond, 20)
		check(t, err == nil && d <= 110*time.Millisecond, "20 tokens are there in 100 ms: %v after %v", err, d)
	})
	bubbleOf(t, "Allow after a denial", func(t *world) {
		l := short(t)
		time.Sleep(150 * time.Millisecond)
		check(t, l.AllowN("k", 20), "the bucket has 25")
	})
	bubbleOf(t, "TryAllow after denials", func(t *world) {
		l := t.start(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerHour(1).WithBurst(100)))
		l.AllowN("k", 50)
		time.Sleep(10 * time.Second)
		for range 2 {
			l.AllowN("k", 100)
			synctest.Wait()
		}
		t.soon(time.Second, func() bool { return l.Key("k").TryAllow() })
	})
	bubbleOf(t, "Wait after a cancelled wait", func(t *world) {
		l := t.drained(by(hybrid.Policy{TTL: time.Minute}, hybrid.PerSecond(10).WithBurst(1000)))
		ctx, cancel := context.WithCancel(t.Context())
		wait := background(func() { _ = l.Key("k").WaitN(ctx, 1000) })
		time.Sleep(time.Second)
		cancel()
		wait()
		t.lasts(0, 2*time.Second, func() { noErr(t, l.Key("k").WaitN(t.Context(), 20)) }) // of 10/s
	})
	bubbleOf(t, "Allow during the call", func(t *world) {
		l := t.process(hybrid.PerSecond(10).WithBurst(100))
		l.AllowN("k", 50)
		time.Sleep(500 * time.Millisecond)
		t.every(verdict{delay: 10 * time.Millisecond})
		wait := background(func() { l.AllowN("k", 100) })
		time.Sleep(5 * time.Millisecond)
		check(t, l.Allow("k"), "one token was denied, the bucket has %d", t.state("k").Levels[0])
		wait()
	})
}

// A request above the burst does not look like demand on a key that is in use.
func TestAnOversizedRequestIsNotDemand(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.process(hybrid.PerSecond(1000))
		for range 1000 {
			l.Allow("k")
			l.AllowN("k", math.MaxInt64)
			time.Sleep(10 * time.Millisecond)
			r := t.last()
			must(t, r.Want <= 120, "100 requests a second asked for %d tokens", r.Want)
		}
		check(t, l.Stats().Denied == 0 && l.Stats().Invalid == 1000, "%+v", l.Stats())
	})
}

// x/time/rate and Bucket4j: what is turned down, by whichever verb, takes nothing with it.
// Redisson: more permits than the rate are an exception and not a wait.
func TestPeerWhatIsTurnedDownTakesNothing(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.process(hourly)
		turnedDown := func(n int64, take, wait error) {
			t.Helper()
			r, err := l.Take(t.Context(), "k", n)
			check(t, errors.Is(err, take) && !r.OK && !l.AllowN("k", n), "%d: %+v, %v", n, r, err)
			isErr(t, l.Key("k").WaitN(within(t, time.Minute), n), wait)
			isErr(t, l.Wait(ended(), "k"), context.Canceled)
		}
		// A refused request of an unused key creates nothing;
		turnedDown(11, hybrid.ErrExceedsBurst, hybrid.ErrExceedsBurst)
		check(t, !t.remembers("k"), "the store remembers it")
		// of 6 tokens of 10 all are still there.
		must(t, l.AllowN("k", 4), "denied")
		for range 10 {
			turnedDown(11, hybrid.ErrExceedsBurst, hybrid.ErrExceedsBurst)
			turnedDown(7, nil, hybrid.ErrWouldExceedDeadline)
		}
		must(t, l.AllowN("k", 1), "denied")
		equal(t, t.left("k", hourly), 5, "left")
		equal(t, l.Stats().Admitted, 5, "admitted")
	})
}

// redis_rate: AllowN of 0 costs nothing. x/time/rate: it is true also where nothing is left. The
// answer says what is known of the key. Redisson and Bucket4j: whatever is done to a limiter that
// does not exist, it does not exist afterwards.
func TestPeerZeroCostsNothingAndCreatesNothing(t *testing.T) {
	everywhere(t, func(t *world) {
		l := t.process(hourly)
		nothing := func(key string, want hybrid.Result) {
			want.Key = key
			t.Helper()
			_, calls := t.during(func() {
				for _, take := range []func() (hybrid.Result, error){
					func() (hybrid.Result, error) { return l.Take(t.Context(), key, 0) },
					func() (hybrid.Result, error) { return l.Key(key).Take(t.Context(), 0) },
					func() (hybrid.Result, error) { return l.Key(key).TakeUpTo(t.Context(), 0) },
				} {
					r, err := take()
					r.ResetAfter = r.ResetAfter.Round(time.Minute) // settling lets time pass
					check(t, err == nil && (r == want || !t.virtual() && r.OK), "Take: %+v, %v, want %+v", r, err, want)
				}
				noErr(t, l.Key(key).WaitN(t.Context(), 0))
				check(t, l.AllowN(key, 0) && l.Key(key).AllowN(0), "AllowN: denied")
			})
			check(t, calls == 0 || !t.virtual(), "%d calls", calls)
		}
		// A refund of an unused key is dropped;
		nothing("new", hybrid.Result{OK: true})
		noErr(t, l.Reset(t.Context(), "new"))
		l.Key("new").Refund(5)
		l.Key("new").Refund(5)
		limitsAre(t, l, "new", hourly)
		must(t, l.Allow("other"), "denied") // what might still be on its way has its turn
		check(t, l.Stats().Keys == 1 && t.callsFor("new") == 0 && !t.remembers("new"), "%+v", l.Stats())
		// of a key in use it costs nothing;
		noErr(t, l.Key("k").WaitN(t.Context(), 4)) // which brings it into use, as a mere draw does not
		nothing("k", hybrid.Result{OK: true, Limit: hourly, Remaining: 6, ResetAfter: 4 * time.Hour})
		equal(t, t.settled("k"), 6, "of 6 left")
		// of an empty one they are had.
		drain(l, "k")
		nothing("k", hybrid.Result{OK: true, Limit: hourly, ResetAfter: 10 * time.Hour})
		equal(t, l.Stats().Admitted, 11, "admitted")
	})
}

// Redisson's release and Bucket4j's addTokens stop at the capacity. (Redisson once counted a
// release twice, #7329.) So here, and a key at rest is woken.
func TestPeerRefundsComeBackOnceAndAreCappedAtBurst(t *testing.T) {
	everywhere(t, func(t *world) {
		for _, pause := range []time.Duration{0, 50 * time.Millisecond, ttl, 10 * ttl, time.Minute} {
			if pause > 0 && !t.virtual() {
				break
			}
			l, key := t.process(hourly), pause.String()
			must(t, l.AllowN(key, 8), "denied")
			time.Sleep(pause)
			must(t, pause < 10*ttl || l.Stats().InUse == 0, "not at rest after %v", pause)
			l.Key(key).Refund(2)
			l.Key(key).Refund(3)
			// The bucket has them again, and not more of them after another report.
			t.eventually("7 in the bucket", key, func(level int64) bool { return level >= 7 })
			must(t, l.Allow(key), "denied")
			equal(t, t.settled(key), 6, "in the bucket after 5 came back and 1 was taken")
			equal(t, l.Stats().Refunded, 5, "refunded")
			// Of more than were ever taken there is one burst.
			for range 5 {
				l.Key(key).Refund(1000)
			}
			t.eventually("a full bucket", key, func(level int64) bool { return level >= 10 })
			equal(t, t.settled(key), 10, "in the bucket after a refund of 5000, the burst is 10")
			equal(t, t.left(key, hourly), 10, "were taken after a refund of 5000, the burst is 10")
		}
	})
}

// A refund that a failed call did not take is brought as soon as the store is back, and does not
// keep its key for ever: the table has room again.
func TestARefundSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *world) {
		l := t.start(hybrid.Config{Limits: limits(hourly), KeysMax: 1})
		l.AllowN("k", 8)
		time.Sleep(time.Minute)
		t.every(away)
		l.Key("k").Refund(5)
		time.Sleep(2 * time.Second)
		t.setJudge(nil)
		time.Sleep(time.Hour)
		t.has("k", 8, 0) // 2 + 1 + 5
		time.Sleep(100 * 24 * time.Hour)
		equal(t, l.Stats().Keys, 0, "keys in the table after 100 idle days")
		_, err := l.Take(t.Context(), "d", 1)
		noErr(t, err)
	})
}

// upTo checks how many tokens of "k" TakeUpTo takes, and the rest of its answer.
func (t *world) upTo(l *hybrid.Limiter, n, want int64, source hybrid.Source) {
	t.Helper()
	before := conserved(t, l)
	r, err := l.Key("k").TakeUpTo(t.Context(), n)
	after := conserved(t, l)
	check(t, err == nil && r.Taken == want && r.OK == (want > 0) && r.Source == source,
		"up to %d: %+v, %v; want %d from %v", n, r, err, want, source)
	check(t, r.OK == (r.RetryAfter == 0), "RetryAfter is %v with OK %v", r.RetryAfter, r.OK)
	check(t, after.Admitted-before.Admitted == want,
		"%d are counted as admitted", after.Admitted-before.Admitted)
	n = min(n, hourly.Burst)
	check(t, after.Denied-before.Denied == n-want, "%d are counted as denied", after.Denied-before.Denied)
}

// redis_rate, AllowAtMost: as many as there are, none of which is left.
func TestTakeUpToTakesWhatThereIs(t *testing.T) {
	bubbleOf(t, "all that was asked for, and the burst at most", func(t *world) {
		l := t.process(hourly)
		t.upTo(l, 4, 4, hybrid.SourceStore)
		t.upTo(l, 100, 6, hybrid.SourceStore)
		t.upTo(l, 100, 0, hybrid.SourceLocal)
	})
	bubbleOf(t, "what others have left, with one call", func(t *world) {
		// Given a bucket of which another process has taken 7,
		must(t, t.process(hourly).AllowN("k", 7), "denied")
		l := t.process(hourly)
		_, calls := t.during(func() { t.upTo(l, 8, 3, hybrid.SourceStore) })
		equal(t, calls, 1, "calls")
		t.upTo(l, 8, 0, hybrid.SourceLocal)
		t.has("k", 0, 0)
	})
	bubbleOf(t, "what the process holds and the bucket has", func(t *world) {
		l := t.warm(of(hybrid.PerSecond(1000).WithBurst(1000)))
		held := l.Stats().Held
		r, err := l.Key("k").TakeUpTo(t.Context(), 1000)
		check(t, err == nil && r.Taken > held && r.Taken <= 1000, "%+v, %v; %d were held", r, err, held)
		st := t.state("k")
		check(t, st.Levels[0] == 0 && l.Stats().Held == 0, "%d are left, %+v", st.Levels[0], l.Stats())
	})
	bubbleOf(t, "what is held where the bucket has nothing", func(t *world) {
		// Given a process that holds 4, which knows that another one has taken the rest,
		l := t.start(by(hybrid.Policy{MinBatch: 5}, hourly))
		must(t, l.Allow("k") && l.Stats().Held == 4, "%+v", l.Stats())
		other := t.process(hourly)
		must(t, other.AllowN("k", 5) && !l.AllowN("k", 8), "the other one has not taken the rest")
		// then it takes them, and makes no call.
		_, calls := t.during(func() { t.upTo(l, 9, 4, hybrid.SourceLocal) })
		equal(t, calls, 0, "calls")
	})
	bubbleOf(t, "of the scarcest limit", func(t *world) {
		l := t.process(hybrid.PerHour(100), hybrid.PerHour(1).WithBurst(10))
		t.upTo(l, 50, 10, hybrid.SourceStore)
	})
}

// A smaller request may have the tokens that the bucket is known to have left, whatever others draw.
func TestADeniedRequestDoesNotDenySmallerOnes(t *testing.T) {
	for name, c := range map[string]struct {
		limit hybrid.Limit
		after time.Duration // of the denial
	}{
		"a limit that gives a token in minutes": {hybrid.PerHour(10), 0},
		"a limit of several tokens a Target":    {hybrid.PerSecond(100).WithBurst(10), 15 * time.Millisecond},
	} {
		for _, verb := range []string{"TakeUpTo", "Take", "Allow", "TryAllow"} {
			bubbleOf(t, name+", "+verb, func(t *world) {
				// Given a process that holds a lease, and another one that was denied more than there is,
				a, b := t.start(by(hybrid.Policy{MinBatch: 5}, c.limit)), t.process(c.limit)
				must(t, a.Allow("k") && a.Stats().Held == 4 && b.Allow("k"), "%+v", a.Stats())
				must(t, !b.AllowN("k", 9), "admitted")
				time.Sleep(c.after)
				// then a smaller request is admitted.
				switch verb {
				case "TakeUpTo":
					r, err := b.Key("k").TakeUpTo(t.Context(), 9)
					check(t, err == nil && r.Taken >= 3, "%+v, %v", r, err)
				case "Take":
					r, err := b.Take(t.Context(), "k", 2)
					check(t, err == nil && r.OK, "%+v, %v", r, err)
				case "Allow":
					check(t, b.Allow("k"), "denied")
				case "TryAllow":
					b.Key("k").TryAllow()
					time.Sleep(10 * time.Millisecond) // until its call is answered
					check(t, b.Key("k").TryAllow(), "denied")
				}
			})
		}
	}
}

func TestTakeUpToWithoutTheStore(t *testing.T) {
	bubbleOf(t, "the share", func(t *world) {
		// Given a bucket that has 6 of 10 when the store goes away,
		l := t.process(hourly)
		must(t, l.AllowN("k", 4), "denied")
		t.every(away)
		t.soon(time.Second, func() bool { l.Allow("k"); return l.Stats().Errors > 0 })
		// then the fallback decides, also on more than it has.
		t.upTo(l, 1000, 6-l.Stats().Fallback, hybrid.SourceFallback)
	})
	bubbleOf(t, "what is held", func(t *world) {
		// Given a process that holds 4 when it learns that the store is away,
		l := t.start(by(hybrid.Policy{MinBatch: 5, Fallback: hybrid.FallbackDeny}, hourly))
		must(t, l.Allow("k") && l.Stats().Held == 4, "%+v", l.Stats())
		t.every(away)
		must(t, !l.AllowN("k", 8) && l.Stats().Errors > 0, "%+v", l.Stats())
		// then it grants the held tokens.
		t.upTo(l, 9, 4, hybrid.SourceLocal)
		t.upTo(l, 9, 0, hybrid.SourceFallback)
	})
	bubbleOf(t, "a call that hangs", func(t *world) {
		l := t.start(by(hybrid.Policy{}, hourly))
		must(t, l.AllowN("k", 3), "denied")
		t.hangs()
		t.lasts(0, lease.DefaultCallTimeout, func() {
			r, err := l.Key("k").TakeUpTo(t.Context(), 9)
			check(t, err == nil && r.Taken == 7 && r.Source == hybrid.SourceFallback, "%+v, %v", r, err)
		})
	})
}
