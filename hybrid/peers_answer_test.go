package hybrid_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// redis_rate and throttled: who waits RetryAfter finds the tokens, and who waits less does not.
func TestPeerRetryAfterIsTheEarliestTime(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given empty buckets that get a token in 100 s,
		l := p.process(t, hybrid.PerHour(36).WithBurst(10))
		for _, n := range []int64{1, 3, 10} {
			key, early := fmt.Sprint(n), fmt.Sprint(n, " early")
			from := time.Now()
			drain(l, key)
			drain(l, early)
			// when some are asked for,
			r, err := l.Take(t.Context(), key, n)
			since := time.Since(from)
			must(t, err == nil && !r.OK, "%+v, %v", r, err)
			// then RetryAfter is when they have flowed, and nothing longer:
			flow := time.Duration(n) * 100 * time.Second
			check(t, r.RetryAfter <= flow && r.RetryAfter >= flow-since && (!p.virtual ||
				r.RetryAfter == flow),
				"%d tokens: RetryAfter is %v, they flow in %v, of which %v at most have passed", n, r.RetryAfter, flow, since)
			if !p.virtual {
				continue
			}
			// before it they are not there, and after it they are.
			time.Sleep(r.RetryAfter - time.Millisecond)
			check(t, !l.AllowN(early, n), "%d tokens were there before RetryAfter", n)
			time.Sleep(time.Millisecond)
			if !l.AllowN(key, n) {
				t.Errorf("%d tokens were not there after RetryAfter: %+v", n, p.state(t, key))
			}
		}
	})
}

// redis_rate: the part of a token that has flowed already shortens RetryAfter and ResetAfter.
func TestPeerRetryAfterCountsThePartOfATokenThatIsThere(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		l := p.process(t, hourly)
		drain(l, "k")
		for want := 50 * time.Minute; want > 0; want -= 10 * time.Minute {
			time.Sleep(10 * time.Minute)
			r, err := l.Take(t.Context(), "k", 1)
			check(t, err == nil && !r.OK && r.RetryAfter <= want,
				"Take: %+v, %v, want RetryAfter %v", r, err, want)
			r, err = l.Peek(t.Context(), "k")
			check(t, err == nil && !r.OK && r.RetryAfter <= want && r.ResetAfter <= 9*time.Hour+want,
				"Peek: %+v, %v, want RetryAfter %v", r, err, want)
		}
	})
}

// redis_rate: Result.Limit is there whatever the answer is.
func TestPeerADenialNamesItsLimit(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		// Given a bucket that two processes share,
		other, l := p.process(t, hourly), p.process(t, hourly)
		must(t, other.Allow("k"), "denied")
		// when one of them has had its share, and is denied what is left,
		drain(l, "k")
		time.Sleep(time.Millisecond)
		// then the answer says by which limit.
		r, err := l.Take(t.Context(), "k", 1)
		check(t, err == nil && !r.OK && r.Limit == hourly, "%+v, %v", r, err)
	})
}

// redis_rate and ulule/limiter: limit, remaining, retry-after and reset of one answer belong
// together, though the limit changes all the time, because they come from one reply.
func TestPeerLimitRemainingAndResetComeFromOneReply(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		// Given limits that another process changes between two that have nothing in common,
		narrow, wide := hybrid.PerHour(10), hybrid.PerHour(3600).WithBurst(1000)
		cfg := by(hybrid.Policy{TTL: 200 * time.Millisecond}, hourly)
		setter, user, reader := p.limiter(t, cfg), p.limiter(t, cfg), p.limiter(t, cfg)
		noErr(t, setter.SetLimits(t.Context(), "k", wide))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond): // the pace of the changes
				}
				noErr(t, setter.SetLimits(t.Context(), "k", [...]hybrid.Limit{narrow, wide}[i%2]))
			}
		})
		halt := sync.OnceFunc(func() { close(stop); wg.Wait() })
		defer halt()
		taken, seen := make(map[hybrid.Limit]bool), make(map[hybrid.Limit]bool)
		// when somebody asks and looks,
		for i := 0; i < 200 || len(taken) < 2 || len(seen) < 2; i++ {
			r, err := user.Take(t.Context(), "k", 1)
			noErr(t, err)
			// then an answer never mixes the two;
			taken[r.Limit] = true
			must(t, (r.Limit == narrow || r.Limit == wide) && r.Remaining >= 0 &&
				r.Remaining <= r.Limit.Capacity() && r.ResetAfter <= r.Limit.TimeToFull() && (!r.OK ||
				r.RetryAfter == 0),
				"Take: %+v", r)
			if r, err = reader.Peek(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			// of who holds nothing, what remains and what is missing make the burst, to a token.
			period := r.Limit.Per / time.Duration(r.Limit.Tokens)
			missing := time.Duration(r.Limit.Capacity() - r.Remaining)
			must(t, (r.Limit == narrow || r.Limit == wide) && r.ResetAfter <= missing*period &&
				r.ResetAfter >= (missing-1)*period,
				"Peek: %+v", r)
			seen[r.Limit] = true
			time.Sleep(time.Millisecond) // the pace of the asking
		}
		halt()
		// And each costs one exchange with the store: a look one of its kind, a Take that is denied
		// one call.
		drain(user, "other")
		before := p.controls.Load()
		_, err := reader.Peek(t.Context(), "other")
		check(t, err == nil && p.controls.Load() == before+1,
			"Peek took %d exchanges, %v", p.controls.Load()-before, err)
		calls := reader.Stats().Calls
		r, err := reader.Take(t.Context(), "other", 1)
		check(t, err == nil && !r.OK && reader.Stats().Calls == calls+1 && p.controls.Load() == before+1,
			"Take: %+v, %v after %d calls", r, err, reader.Stats().Calls-calls)
	})
}

// redis_rate and throttled: ResetAfter is when everything is there again that remains or will: what
// this process holds counts as it does in Remaining, and so does the part of a token that has
// flowed.
func TestPeerResetAfterIsWhenRemainingIsTheBurst(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, p *place) {
		// Given a full bucket of 60 that gets one a second,
		limit := hybrid.PerMinute(60)
		l := p.limiter(t, by(hybrid.Policy{MinBatch: 23}, limit))
		take := func(n int64) (r hybrid.Result) {
			for range n {
				var err error
				if r, err = l.Take(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
			}
			return r
		}
		peek := func() hybrid.Result {
			r, err := l.Peek(t.Context(), "k")
			noErr(t, err)
			return r
		}
		// when 13 are taken, of a lease of 23,
		r := take(13)
		// then 13 seconds are missing, whoever has the rest.
		check(t, r.Remaining == 47 && r.ResetAfter == 13*time.Second,
			"Take: %+v, want 47 left and full in 13 s; %+v", r, l.Stats())
		if r := peek(); r.Remaining != 47 || r.ResetAfter != 13*time.Second {
			t.Errorf("Peek: %+v, want 47 left and full in 13 s", r)
		}
		// And when 300 ms have passed and all is taken,
		time.Sleep(300 * time.Millisecond)
		for r = take(1); r.OK; r = take(1) {
		}
		// then 300 ms of the next token are there.
		check(t, r.RetryAfter == 700*time.Millisecond && r.ResetAfter == 59_700*time.Millisecond,
			"Take: %+v, want the next token in 0.7 s, and all in 59.7 s", r)
		if r := peek(); r.RetryAfter != 700*time.Millisecond || r.ResetAfter != 59_700*time.Millisecond {
			t.Errorf("Peek: %+v, want the next token in 0.7 s, and all in 59.7 s", r)
		}
		// And when an admitted one is the first to hear of a bucket that is not at a whole token,
		// it is the same.
		time.Sleep(2*time.Second + 400*time.Millisecond) // 2.7 tokens
		if r = take(1); !r.OK || r.Remaining != 1 || r.ResetAfter != 58_300*time.Millisecond {
			t.Errorf("Take: %+v, want 1 left and full in 58.3 s", r)
		}
	})
}
