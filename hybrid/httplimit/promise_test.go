package httplimit_test

import (
	"math/big"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// anyLimit is a limit that a service might have.
func anyLimit(rng *rand.Rand) hybrid.Limit {
	per := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 250 * time.Millisecond,
		1500 * time.Millisecond, 7 * time.Second, time.Millisecond}[rng.IntN(8)]
	l := hybrid.Limit{Tokens: 1 + rng.Int64N(1000), Per: per}
	if rng.IntN(2) == 0 {
		l.Burst = 1 + rng.Int64N(2000)
	}
	return l
}

// announced returns q and w of RateLimit-Policy.
func announced(t *testing.T, h http.Handler) (quota, window int64) {
	t.Helper()
	policies := items(t, ask(h).Header(), "RateLimit-Policy")
	must(t, len(policies) == 1, "%v", policies)
	return policies[0].is["q"], policies[0].is["w"]
}

// The quota is made within the window and fits into the burst, unless that fills within a second, and it
// is not much less than either.
func TestNoMoreIsPromisedThanThereIs(t *testing.T) {
	rng := testkit.Rand(t)
	limits := []hybrid.Limit{
		hybrid.PerSecond(1), hybrid.PerSecond(100), hybrid.PerMinute(100), hybrid.PerHour(1),
		hybrid.Every(time.Hour), hybrid.PerSecond(10).WithBurst(20), hybrid.PerSecond(10).WithBurst(15),
		hybrid.PerMinute(100).WithBurst(1),
		hybrid.PerSecond(3), hybrid.Every(250 * time.Millisecond), hybrid.PerSecond(1e9),
		hybrid.Every(3 * time.Second),
	}
	for range 100 {
		if l := anyLimit(rng); l.Validate() == nil {
			limits = append(limits, l)
		}
	}
	for _, l := range limits {
		var quota, window int64
		synctest.Test(t, func(t *testing.T) {
			quota, window = announced(t, httplimit.Middleware(limiterOf(t, l), httplimit.OneKey)(&served{}))
		})
		// comes returns the tokens that the limit makes in a time.
		comes := func(seconds int64) *big.Rat {
			made := new(big.Rat).SetFrac64(l.Tokens, int64(l.Per))
			return made.Mul(made, new(big.Rat).SetInt64(seconds*int64(time.Second)))
		}
		q := new(big.Rat).SetInt64(quota)
		check(t, quota >= 1 && window >= 1, "%v: %d in %d s", l, quota, window)
		check(t, q.Cmp(comes(window)) <= 0, "%v: promises %d in %d s of %v", l, quota, window, comes(window))
		much := quota == l.Capacity() && q.Cmp(comes(window-1)) > 0
		if window == 1 {
			much = new(big.Rat).SetInt64(quota+1).Cmp(comes(1)) > 0
		}
		check(t, much, "%v: promises only %d in %d s", l, quota, window)
	}
}

// A client that is alone and never asks for more than the quota in a window is never denied.
func TestAClientThatKeepsToThePolicyIsNeverDenied(t *testing.T) {
	for seed := range testkit.Seeds(t, testkit.PlainOrRace(20, 4)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			l := hybrid.Limit{Tokens: 1 + rng.Int64N(50), Per: time.Duration(1+rng.IntN(90)) * time.Second}
			l.Burst = 1 + rng.Int64N(100)
			if rng.IntN(3) > 0 {
				l.Burst = 0
			}
			if l.TimeToFull() <= time.Second {
				return // the quota is that of a second, which is not there at once
			}
			h := httplimit.Middleware(limiterOf(t, l), httplimit.OneKey)(&served{})
			quota, window := announced(t, h)
			asked := []time.Time{time.Now()}
			for range 500 {
				in := 0
				for _, at := range asked {
					if time.Since(at) < time.Duration(window)*time.Second {
						in++
					}
				}
				if int64(in) >= quota {
					time.Sleep(time.Duration(rng.Int64N(1 + window*int64(time.Second)/3)))
					continue
				}
				w := ask(h)
				must(t, w.Code == 200, "%v: request %d, the %dth of %d in %d s, is denied: %v",
					l, len(asked), in+1, quota, window, w.Header())
				asked = append(asked, time.Now())
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.Int64N(window * int64(time.Second))))
				}
			}
		})
	}
}

// A client that asks again and again gets the quota in any window, whatever was taken before. The process
// has the last token at most a Target later.
func TestTheQuotaIsAvailableInAnyWindow(t *testing.T) {
	for seed := range testkit.Seeds(t, testkit.PlainOrRace(20, 4)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			l := hybrid.Limit{Tokens: 1 + rng.Int64N(100), Per: time.Duration(1+rng.IntN(5000)) * time.Millisecond}
			l.Burst = 2 + rng.Int64N(100) // a burst of 1 loses the tokens made before the next request
			if l.TimeToFull() < 20*time.Millisecond {
				return // and a burst that fills twice between two requests loses some too
			}
			limiter := limiterOf(t, l)
			h := httplimit.Middleware(limiter, httplimit.OneKey)(&served{})
			quota, window := announced(t, h)
			for limiter.Allow("all") && rng.IntN(30) > 0 {
			}
			const target = 100 * time.Millisecond
			got, end := int64(0), time.Now().Add(time.Duration(window)*time.Second+target)
			for ; !time.Now().After(end); time.Sleep(time.Duration(window) * time.Millisecond) {
				for ask(h).Code == 200 {
					got++
				}
			}
			check(t, got >= quota, "%v: %d in %d s, promised were %d", l, got, window, quota)
		})
	}
}

// A client that is alone is admitted after Retry-After of a denial and after t of any answer, and t is never
// later than Retry-After.
func TestARequestAfterTheToldWaitIsAdmitted(t *testing.T) {
	for seed := range testkit.Seeds(t, testkit.PlainOrRace(40, 8)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			limits := []hybrid.Limit{anyLimit(rng)}
			if rng.IntN(2) == 0 {
				limits = append(limits, anyLimit(rng))
			}
			for _, l := range limits {
				if l.Validate() != nil {
					return
				}
			}
			cost := max(1, rng.Int64N(min(limits[0].Capacity(), limits[len(limits)-1].Capacity(), 50)))
			h := httplimit.Middleware(limiterOf(t, limits...), httplimit.OneKey,
				httplimit.Cost(func(*http.Request) int64 { return cost }))(&served{})
			for range 30 {
				w := ask(h)
				for i := 0; w.Code == 200 && i < 3000; i++ {
					w = ask(h)
				}
				state := items(t, w.Header(), "RateLimit")
				must(t, len(state) == 1, "%v", w.Header())
				wait := state[0].is["t"]
				if after := w.Header().Get("Retry-After"); after != "" {
					n, err := strconv.ParseInt(after, 10, 64)
					check(t, err == nil && n >= 1 && wait <= n, "t is %d, Retry-After %s", wait, after)
					wait = n
				}
				time.Sleep(time.Duration(wait) * time.Second)
				again := ask(h)
				must(t, again.Code == 200, "%v, cost %d: denied after %v and %d s: %v",
					limits, cost, w.Header(), wait, again.Header())
			}
		})
	}
}
