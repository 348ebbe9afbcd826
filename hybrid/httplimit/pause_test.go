package httplimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// upstream answers 200 within 300 ms. After five seconds one answer in 60, and the 30th in any case, is a 429
// that asks for a pause. upstream checks that no request is sent in a pause of its path.
type upstream struct {
	t      *testing.T
	pauses []string // "2 s" is a Retry-After, "50 ms" a Retry-After-Ms
	rng    *rand.Rand

	begun time.Time
	mu    sync.Mutex
	late  int                        // requests after five seconds
	asked int                        // pauses asked for
	sent  map[string][]time.Duration // by path
	until map[string]time.Duration   // the end of the pause of a path
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	path, answer := r.URL.Path, &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
	u.mu.Lock()
	defer u.mu.Unlock()
	at := time.Since(u.begun)
	check(u.t, at >= u.until[path], "%s is sent at %v, in a pause until %v", path, at, u.until[path])
	u.sent[path] = append(u.sent[path], at)
	asks := false
	if at > 5*time.Second {
		u.late++
		asks = u.rng.IntN(60) == 0 || u.late == 30
	}
	latency := time.Duration(u.rng.Int64N(int64(300 * time.Millisecond)))
	u.mu.Unlock()
	time.Sleep(latency)
	u.mu.Lock()
	if asks {
		n, unit, _ := strings.Cut(u.pauses[u.asked%len(u.pauses)], " ")
		u.asked++
		answer.StatusCode = 429
		answer.Header.Set(map[string]string{"s": "Retry-After", "ms": "Retry-After-Ms"}[unit], n)
		pause, err := time.ParseDuration(n + unit)
		noErr(u.t, err)
		u.until[path] = max(u.until[path], time.Since(u.begun)+pause)
	}
	return answer, nil
}

// checkRate checks that no window has more of these requests than l admits. Each may be sent as late as held
// after its tokens were granted.
func checkRate(t *testing.T, path string, sent []time.Duration, l hybrid.Limit, held time.Duration) {
	t.Helper()
	rate := float64(l.Tokens) / l.Per.Seconds()
	for i := range sent {
		for k := i; k < len(sent); k++ {
			n, w := k-i+1, sent[k]-sent[i]
			most := float64(l.Capacity()) + rate*(w+held).Seconds()
			if l.Windowed() && w < l.Per {
				most = float64(l.Tokens)
			}
			must(t, float64(n) <= most, "%s: %d requests in %v from %v on, limit %v", path, n, w, sent[i], l)
		}
	}
}

// Given workers whose requests wait for tokens of several keys, and a server that asks for pauses: in any
// window each key sends at most its burst and its rate, also after a pause, and nothing during one.
func TestRequestsPassTheLimiterAfterAPause(t *testing.T) {
	for _, c := range []struct {
		name   string
		each   hybrid.Limit
		shared *hybrid.Limit
		keys   int
		pauses []string
	}{
		{"burst 1", hybrid.PerSecond(10).WithBurst(1), nil, 1, []string{"30 s"}},
		{"a burst", hybrid.PerSecond(10), nil, 1, []string{"30 s"}},
		{"a window", hybrid.Sliding(20, 2*time.Second), nil, 1, []string{"30 s"}},
		{"short pauses", hybrid.PerSecond(10).WithBurst(5), nil, 1, []string{"1 s"}},
		{"shorter ones", hybrid.PerSecond(10).WithBurst(5), nil, 1, []string{"20 ms", "150 ms", "500 ms"}},
		{"different pauses", hybrid.PerSecond(20).WithBurst(3), nil, 1, []string{"3 s", "1 s", "9 s"}},
		{"many keys", hybrid.PerSecond(10).WithBurst(2), nil, 10, []string{"7 s", "20 s", "1 s"}},
		{"a shared limit", hybrid.PerSecond(20).WithBurst(2), new(hybrid.PerSecond(30).WithBurst(3)), 5,
			[]string{"5 s", "11 s", "20 ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lasts := time.Duration(testkit.ShortOrLong(t, 40, 60, "seconds")) * time.Second
				u := &upstream{t: t, pauses: c.pauses, rng: testkit.Rand(t), begun: time.Now(),
					sent: map[string][]time.Duration{}, until: map[string]time.Duration{}}
				var options []httplimit.Option
				if c.shared != nil {
					options = append(options, httplimit.Also(limiterOf(t, *c.shared), httplimit.OneKey))
				}
				transport := httplimit.RoundTripper(limiterOf(t, c.each), pathKey, u, options...)
				var workers sync.WaitGroup
				for i := range 30 * c.keys {
					workers.Go(func() {
						for time.Since(u.begun) < lasts {
							r := request(t, "GET", fmt.Sprint("/", i%c.keys))
							if _, err := transport.RoundTrip(r); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				workers.Wait()
				check(t, u.asked > 0, "there was no pause")
				var all []time.Duration
				held := time.Microsecond // the resolution of a bucket
				if c.shared != nil {
					held = time.Second // a joined wait holds tokens of one limit while it waits for the other
				}
				for path, sent := range u.sent {
					checkRate(t, path, sent, c.each, held)
					all = append(all, sent...)
				}
				if c.shared != nil {
					slices.Sort(all)
					checkRate(t, "all", all, *c.shared, held)
				}
			})
		})
	}
}

// A caller that repeats a request whatever its error is does not spin: an attempt waits, or its error says
// after which time one may succeed.
func TestARetryLoopAroundRoundTripperDoesNotSpin(t *testing.T) {
	for name, c := range map[string]struct {
		answer   string        // to the first request
		away     bool          // the store, from then on for 20 seconds
		attempt  time.Duration // the deadline of each attempt
		attempts int           // until one succeeds
	}{
		"a pause, with time":           {"503 Retry-After=30", false, time.Minute, 1},
		"a pause, without time":        {"503 Retry-After=30", false, time.Second, 2},
		"the limit, with time":         {"200", false, time.Minute, 1},
		"the limit, without time":      {"200", false, time.Second, 2},
		"a denial without Retry-After": {"429", false, time.Second, 2},
		"an outage, with time":         {"200", true, time.Minute, 1},
		"an outage, without time":      {"200", true, time.Second, 25},
	} {
		synctest.Test(t, func(t *testing.T) {
			next, store := &script{answers: []string{c.answer, "200"}}, &hybridtest.FaultyStore{Store: memory.New(nil)}
			limiter := limiterOn(t, store, hybrid.Config{
				Limits: []hybrid.Limit{hybrid.Every(10 * time.Second)},
				Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
			})
			transport := httplimit.RoundTripper(limiter, httplimit.OneKey, next)
			_, err := transport.RoundTrip(request(t, "POST", "/"))
			noErr(t, err)
			if c.away {
				store.Away()
				time.AfterFunc(20*time.Second, store.Back)
			}
			for attempts := 1; ; attempts++ {
				must(t, attempts <= c.attempts, "%s: %d attempts", name, attempts)
				from := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.attempt)
				_, err := transport.RoundTrip(request(t, "POST", "/").WithContext(ctx))
				cancel()
				if err == nil {
					break
				}
				wait := hybrid.RetryAfter(err)
				must(t, wait > 0 || time.Since(from) >= c.attempt, "%s: at once, with no time: %v", name, err)
				time.Sleep(wait)
			}
		})
	}
}
