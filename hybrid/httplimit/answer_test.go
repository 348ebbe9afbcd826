package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// item is one member of RateLimit-Policy or RateLimit.
type item struct {
	name string
	is   map[string]int64
}

// items are the members of a field, which must be a List of Strings with Integers as parameters.
func items(t *testing.T, h http.Header, field string) (all []item) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(field))
	must(t, err == nil, "%s %q is no structured field: %v", field, h.Values(field), err)
	for _, member := range list {
		one, ok := member.(httpsfv.Item)
		must(t, ok, "%s %q has an inner list", field, h.Values(field))
		name, ok := one.Value.(string)
		must(t, ok, "%s: %v is no String", field, one.Value)
		is := map[string]int64{}
		for _, p := range one.Params.Names() {
			v, _ := one.Params.Get(p)
			is[p], ok = v.(int64)
			must(t, ok, "%s: %s=%v is no Integer", field, p, v)
		}
		all = append(all, item{name, is})
	}
	return all
}

// problemOf is the problem that an answer has for a body.
func problemOf(t *testing.T, w *httptest.ResponseRecorder) (p struct {
	Type, Title string
	Status      int
	Violated    []string `json:"violated-policies"`
}) {
	t.Helper()
	check(t, w.Header().Get("Content-Type") == "application/problem+json", "%v", w.Header())
	err := json.Unmarshal(w.Body.Bytes(), &p)
	check(t, err == nil && p.Title != "" && p.Status == w.Code, "%v: %s", err, w.Body)
	return p
}

const (
	quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	lessCapacity  = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Given a limit of 2 an hour, a third request is denied: its answer says by which policy and for
// how long, in fields and in its body, and whoever waits for that long is admitted.
func TestADenialSaysByWhatAndForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &served{}
		h := httplimit.Handler(limiterOf(t, hybrid.PerHour(2)), httplimit.Header("X-User"))(next)
		for left := range 2 {
			w := ask(h, user("ann"))
			check(t, w.Code == 200 && w.Body.String() == "served", "%d %s", w.Code, w.Body)
			check(t, w.Header().Get("Retry-After") == "", "%v", w.Header())
			limits := items(t, w.Header(), "RateLimit")
			check(t, len(limits) == 1 && limits[0].name == "default" && limits[0].is["r"] == int64(1-left) &&
				limits[0].is["t"] == 1800, "%v", limits)
		}
		w := ask(h, user("ann"))
		check(t, w.Code == http.StatusTooManyRequests && next.requests == 2, "%d, %d served", w.Code, next.requests)
		check(t, w.Header().Get("Retry-After") == "1800", "%v", w.Header())
		policy, limit := items(t, w.Header(), "RateLimit-Policy"), items(t, w.Header(), "RateLimit")
		check(t, fmt.Sprint(policy) == "[{default map[q:2 w:3600]}]", "%v", policy)
		check(t, fmt.Sprint(limit) == "[{default map[r:0 t:1800]}]", "%v", limit)
		p := problemOf(t, w)
		check(t, p.Type == quotaExceeded && slices.Equal(p.Violated, []string{"default"}), "%+v", p)
		check(t, ask(h, user("bob")).Code == 200, "another user is denied")

		time.Sleep(1800 * time.Second)
		check(t, ask(h, user("ann")).Code == 200, "who waited for Retry-After is denied")
	})
}

// Retry-After is in whole seconds, rounded up, and never 0: with a limit of 3 a second it is 1.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			limit hybrid.Limit
			want  string
		}{
			{hybrid.PerSecond(3), "1"},
			{hybrid.Every(time.Second), "1"},
			{hybrid.Every(1001 * time.Millisecond), "2"},
			{hybrid.Every(2 * time.Second), "2"},
		} {
			h := httplimit.Handler(limiterOf(t, c.limit), httplimit.All)(&served{})
			for range c.limit.Capacity() {
				check(t, ask(h).Code == 200, "denied within the burst")
			}
			got := ask(h).Header().Get("Retry-After")
			check(t, got == c.want, "%v: Retry-After is %q, want %s", c.limit, got, c.want)
			seconds, _ := strconv.Atoi(got)
			time.Sleep(time.Duration(seconds) * time.Second)
			check(t, ask(h).Code == 200, "%v: who waited for Retry-After is denied", c.limit)
		}
	})
}

// A limiter that fails differs from a limit that denies: 503, no quota exceeded, and no RateLimit
// that nobody knows to be right.
func TestALimiterThatFailsIsNoDenial(t *testing.T) {
	for name, fails := range map[string]func(*testing.T, ...httplimit.Option) http.Handler{
		"no fallback": func(t *testing.T, options ...httplimit.Option) http.Handler {
			store := &away{Store: memory.New(nil)}
			store.gone.Store(true)
			l := limiterOn(t, store, hybrid.Config{
				Limits: []hybrid.Limit{hybrid.PerHour(1)}, Policy: hybrid.Policy{Fallback: hybrid.FallbackDeny},
			})
			return httplimit.Handler(l, httplimit.All, options...)(&served{})
		},
		"the local share is used up": func(t *testing.T, options ...httplimit.Option) http.Handler {
			store := &away{Store: memory.New(nil)}
			l := limiterOn(t, store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1)}})
			h := httplimit.Handler(l, httplimit.All, options...)(&served{})
			check(t, ask(h).Code == 200, "the first is denied")
			store.gone.Store(true)
			time.Sleep(time.Hour)
			for range 3 {
				ask(h)
			}
			return h
		},
		"closed": func(t *testing.T, options ...httplimit.Option) http.Handler {
			l := limiterOf(t, hybrid.PerHour(1))
			noErr(t, l.Close())
			return httplimit.Handler(l, httplimit.All, options...)(&served{})
		},
		"a cost below 0": func(t *testing.T, options ...httplimit.Option) http.Handler {
			cost := httplimit.Cost(func(*http.Request) int64 { return -1 })
			return httplimit.Handler(limiterOf(t, hybrid.PerHour(1)), httplimit.All,
				append(options, cost)...)(&served{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := ask(fails(t))
				check(t, w.Code == http.StatusServiceUnavailable, "%d", w.Code)
				after, err := strconv.Atoi(w.Header().Get("Retry-After"))
				check(t, err == nil && after >= 1, "%v", w.Header())
				check(t, name != "the local share is used up" || after > 60, "%v", w.Header())
				check(t, w.Header().Get("RateLimit") == "", "%v", w.Header())
				p := problemOf(t, w)
				check(t, p.Type == lessCapacity && len(p.Violated) == 0, "%+v", p)

				// And OnError may answer otherwise, or admit.
				var told error
				w = ask(fails(t, httplimit.OnError(func(w http.ResponseWriter, _ *http.Request, err error) bool {
					told = err
					w.WriteHeader(http.StatusTeapot)
					return false
				})))
				check(t, w.Code == http.StatusTeapot && w.Body.Len() == 0, "%d %s", w.Code, w.Body)
				known := errors.Is(told, hybrid.ErrUnavailable) || errors.Is(told, hybrid.ErrClosed) ||
					errors.Is(told, hybrid.ErrInvalidN)
				check(t, known && !errors.Is(told, httplimit.ErrNoKey), "%v", told)
				w = ask(fails(t, httplimit.OnError(func(http.ResponseWriter, *http.Request, error) bool { return true })))
				check(t, w.Code == 200 && w.Body.String() == "served" && w.Header().Get("Retry-After") == "",
					"%d %s %v", w.Code, w.Body, w.Header())
			})
		})
	}
}

// What a fallback admits is served, and nobody says how much there is or is left: a process has its
// share only, and nobody knows.
func TestAFallbackTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &away{Store: memory.New(nil)}
		l := limiterOn(t, store, hybrid.Config{
			Limits: []hybrid.Limit{hybrid.PerHour(1)}, Policy: hybrid.Policy{Fallback: hybrid.FallbackAllowAll},
		})
		h := httplimit.Handler(l, httplimit.All)(&served{})
		ask(h)
		store.gone.Store(true)
		time.Sleep(time.Hour)
		for range 3 {
			w := ask(h)
			policy, limit := w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit")
			check(t, w.Code == 200 && policy == "" && limit == "", "%d %v", w.Code, w.Header())
		}
	})
}

// What Blocked denies is denied, with and without a store.
func TestBlockedNeedsNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &away{Store: memory.New(nil)}
		store.gone.Store(true)
		l := limiterOn(t, store, hybrid.Config{Limits: []hybrid.Limit{hybrid.Blocked}})
		w := ask(httplimit.Handler(l, httplimit.All)(&served{}))
		check(t, w.Code == 429 && w.Header().Get("Retry-After") == "", "%d %v", w.Code, w.Header())
	})
}

// A request without a key is a bad one, whatever the KeyFunc says, and takes nothing.
func TestARequestWithoutAKeyIsABadOne(t *testing.T) {
	secret := errors.New("the token abc123 has expired")
	for name, key := range map[string]httplimit.KeyFunc{
		"no field":   httplimit.Header("X-User"),
		"empty":      func(*http.Request) (string, error) { return "", nil },
		"own error":  func(*http.Request) (string, error) { return "", secret },
		"no pattern": httplimit.Route,
		"no path":    httplimit.Path("bucket"),
		"a part":     httplimit.JoinOf(httplimit.All, httplimit.Route),
		"an empty part": httplimit.JoinOf(httplimit.All,
			func(*http.Request) (string, error) { return "", nil }),
	} {
		l, next := limiterOf(t, hybrid.PerHour(1)), &served{}
		more := httplimit.Also(limiterOf(t, hybrid.PerHour(1)), httplimit.All)
		for _, also := range [][]httplimit.Option{nil, {more}} {
			w := ask(httplimit.Handler(l, key, also...)(next))
			check(t, w.Code == http.StatusBadRequest && next.requests == 0, "%s: %d", name, w.Code)
			p := problemOf(t, w)
			check(t, p.Type == "" && !strings.Contains(w.Body.String(), "abc123"), "%s: %s", name, w.Body)
			check(t, w.Header().Get("Retry-After") == "" && w.Header().Get("RateLimit") == "", "%s: %v", name,
				w.Header())
		}
		var told error
		admit := httplimit.OnError(func(_ http.ResponseWriter, _ *http.Request, err error) bool {
			told = err
			return true
		})
		w := ask(httplimit.Handler(l, key, admit)(next))
		check(t, w.Code == 200 && errors.Is(told, httplimit.ErrNoKey), "%s: %d, %v", name, w.Code, told)
		check(t, name != "own error" || errors.Is(told, secret), "%v", told)
	}
	selects := httplimit.Select(func(*http.Request) (httplimit.Selection, error) {
		return httplimit.Selection{}, secret
	})
	check(t, ask(selects(&served{})).Code == http.StatusBadRequest, "the error of Select's function")
}

// What is above a burst is never admitted, so there is nothing to wait for.
func TestMoreThanABurstIsNotAskedToComeBack(t *testing.T) {
	synctest.Test(t, moreThanABurst)
}

func moreThanABurst(t *testing.T) {
	cost := httplimit.Cost(func(*http.Request) int64 { return 11 })
	small, large := limiterOf(t, hybrid.PerSecond(10), hybrid.PerHour(1000)), limiterOf(t, hybrid.PerSecond(100))
	noErr(t, small.Wait(t.Context(), "all")) // so that its limits are known
	for name, h := range map[string]http.Handler{
		"one":     httplimit.Handler(small, httplimit.All, cost)(&served{}),
		"several": httplimit.Handler(large, httplimit.All, cost, httplimit.Also(small, httplimit.All))(&served{}),
		"waits":   httplimit.Handler(small, httplimit.All, cost, httplimit.Wait(time.Hour))(&served{}),
	} {
		w := ask(h)
		check(t, w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "", "%s: %d %v",
			name, w.Code, w.Header())
		p := problemOf(t, w)
		check(t, p.Type == quotaExceeded && len(p.Violated) == 1 && strings.HasSuffix(p.Violated[0], " 10/s"),
			"%s: %+v", name, p)
		check(t, len(items(t, w.Header(), "RateLimit")) == 0, "%s: %v", name, w.Header())
	}
	h := httplimit.Handler(small, httplimit.All, cost, httplimit.OnLimit(
		func(_ http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			check(t, d.RetryAfter == 0 && d.Result.Limit == hybrid.PerSecond(10) && len(d.Policies) == 1, "%+v", d)
		}))(&served{})
	ask(h)
}

// Unlimited tells nothing, Blocked promises nothing, and what is only tried is no client's
// business.
func TestSpecialLimits(t *testing.T) {
	told := func(w *httptest.ResponseRecorder) string {
		h := w.Header()
		return fmt.Sprintf("%d policy=%s limit=%s retry=%s legacy=%s", w.Code, h.Get("RateLimit-Policy"),
			h.Get("RateLimit"),
			h.Get("Retry-After"), h.Get("X-RateLimit-Limit"))
	}
	all := httplimit.Fields(httplimit.FieldsDraft | httplimit.FieldsLegacy)
	for _, c := range []struct {
		name, want string
		cfg        hybrid.Config
	}{
		{"unlimited", "200 policy= limit= retry= legacy=", hybrid.Config{Limits: []hybrid.Limit{hybrid.Unlimited}}},
		{"blocked", `429 policy="default";q=0;w=1 limit="default";r=0 retry= legacy=0`,
			hybrid.Config{Limits: []hybrid.Limit{hybrid.Blocked}}},
		{"shadow", "200 policy= limit= retry= legacy=",
			hybrid.Config{Limits: []hybrid.Limit{hybrid.Every(time.Hour)}, Policy: hybrid.Policy{Shadow: true}}},
		{"named", `429 policy="api";q=1;w=3600 limit="api";r=0;t=3600 retry=3600 legacy=1`,
			hybrid.Config{Name: "api", Limits: []hybrid.Limit{hybrid.Every(time.Hour)}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := httplimit.Handler(newLimiter(t, c.cfg), httplimit.All, all)(&served{})
			ask(h)
			got := told(ask(h))
			check(t, got == c.want, "%s: %s\nwant %s", c.name, got, c.want)
		})
	}
}

// Who has waited for its tokens is told that nothing is left, and not what was left before.
func TestWhoHasWaitedIsToldWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ten := hybrid.Every(time.Second).WithBurst(10)
		h := httplimit.Handler(limiterOf(t, ten), httplimit.All, httplimit.Wait(time.Minute),
			httplimit.Cost(func(*http.Request) int64 { return 6 }))(&served{})
		for _, want := range []string{`"default";r=4;t=6`, `"default";r=0;t=1`} {
			w := ask(h)
			check(t, w.Code == 200 && w.Header().Get("RateLimit") == want, "%d, %v, want %s", w.Code, w.Header(), want)
		}
	})
}

// An answer's fields are its own: who changes one in place changes no other answer's.
func TestFieldsAreNotShared(t *testing.T) {
	limits := map[string]hybrid.Limit{"told": hybrid.PerHour(9), "Unlimited": hybrid.Unlimited,
		"above the burst": hybrid.PerHour(1)}
	for name, limit := range limits {
		fields := []string{"Ratelimit-Policy", "Ratelimit", "Retry-After", "X-Ratelimit-Limit"}
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{limit, hybrid.PerHour(8)}, CallTimeout: realTime})
		cost := map[bool]int64{true: 2, false: 1}[name == "above the burst"]
		h := httplimit.Handler(l, httplimit.All, httplimit.Fields(httplimit.FieldsDraft|httplimit.FieldsLegacy),
			httplimit.Cost(func(*http.Request) int64 { return cost }))(&served{})
		for range 3 {
			w := ask(h)
			for _, f := range fields {
				for i, value := range w.Header()[f] {
					check(t, value != "changed", "%s: %s is another answer's", name, f)
					w.Header()[f][i] = "changed"
				}
			}
		}
	}
}

// A client that goes away is not admitted by an OnError that admits what a limiter fails to decide:
// otherwise it could have every request served by ending it at once.
func TestWhoGoesAwayIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, told := &served{}, 0
		h := httplimit.Handler(limiterOf(t, hybrid.PerHour(1)), httplimit.All, httplimit.Wait(2*time.Hour),
			httplimit.OnError(func(http.ResponseWriter, *http.Request, error) bool {
				told++
				return true
			}))(next)
		ask(h)
		for _, after := range []time.Duration{0, time.Minute} {
			ctx, goAway := context.WithCancel(t.Context())
			time.AfterFunc(after, goAway)
			synctest.Wait()
			w := ask(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
			check(t, w.Code == http.StatusServiceUnavailable, "%d %v", w.Code, w.Header())
		}
		check(t, next.requests == 1 && told == 2, "%d were served, OnError was told %d times", next.requests, told)
	})
}
