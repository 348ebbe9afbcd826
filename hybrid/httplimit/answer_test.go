package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridtest"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// item is one member of RateLimit-Policy or RateLimit.
type item struct {
	name string
	is   map[string]int64
}

// items parses a field, which must be a List of Strings with Integers as parameters.
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

// problemOf parses the body of an answer.
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

// With a limit of 2 an hour a third request is denied: the fields and the body of its answer name the
// policy and the wait.
func TestADenialNamesItsPolicyAndItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &served{}
		h := httplimit.Middleware(limiterOf(t, hybrid.PerHour(2)), httplimit.Header("X-User"))(next)
		for left := range 2 {
			w := ask(h, user("ann"))
			check(t, w.Code == 200 && w.Body.String() == "served" && w.Header().Get("Retry-After") == "",
				"%d %s %v", w.Code, w.Body, w.Header())
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
		check(t, ask(h, user("ann")).Code == 200, "denied after Retry-After")
	})
}

// brief is an answer's status, RateLimit without the name, Retry-After, and the legacy fields.
func brief(w *httptest.ResponseRecorder) string {
	h, text := w.Header(), strconv.Itoa(w.Code)
	for _, field := range []string{"RateLimit", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining",
		"X-RateLimit-Reset"} {
		if value := h.Get(field); value != "" {
			text += " " + value[strings.Index(value, ";")+1:]
		}
	}
	return text
}

// The fields of answers, for each kind of limit and of answer. After the Retry-After of the last one a
// request is admitted.
func TestFieldsOfAnswers(t *testing.T) {
	of := func(limits ...hybrid.Limit) hybrid.Config { return hybrid.Config{Limits: limits} }
	with := func(c hybrid.Config, p hybrid.Policy) hybrid.Config { c.Policy = p; return c }
	cost := func(n int64) httplimit.Option { return httplimit.Cost(func(*http.Request) int64 { return n }) }
	named, filling := hybrid.Config{Name: "api", Limits: []hybrid.Limit{hybrid.Every(time.Hour)}},
		of(hybrid.Every(time.Second).WithBurst(10))
	const none, draft, legacy = httplimit.FieldsNone, httplimit.FieldsDraft, httplimit.FieldsLegacy
	for _, c := range []struct {
		cfg     hybrid.Config
		options []httplimit.Option
		policy  string // RateLimit-Policy
		answers string // by brief
		goneAt  int    // an hour before this answer, the store goes away
	}{
		{cfg: of(hybrid.PerSecond(3)), policy: `"default";q=3;w=1`,
			answers: "200 r=2;t=1, 200 r=1;t=1, 200 r=0;t=1, 429 r=0;t=1 1"},
		{cfg: of(hybrid.Every(time.Second)), policy: `"default";q=1;w=1`, answers: "200 r=0;t=1, 429 r=0;t=1 1"},
		{cfg: of(hybrid.Every(1001 * time.Millisecond)), policy: `"default";q=1;w=2`,
			answers: "200 r=0;t=2, 429 r=0;t=2 2"},
		{cfg: of(hybrid.PerMinute(30).WithBurst(1)), policy: `"default";q=1;w=2`,
			answers: "200 r=0;t=2, 429 r=0;t=2 2"},
		// A window has its tokens and its length, also below a second. t is the time until all tokens are
		// back, at the latest, and Retry-After the time until the oldest is.
		{cfg: of(hybrid.Sliding(3, time.Minute)), policy: `"default";q=3;w=60`,
			answers: "200 r=2;t=61, 200 r=1;t=61, 200 r=0;t=61, 429 r=0;t=61 61"},
		{cfg: of(hybrid.Calendar(3, 24*time.Hour, 16*time.Hour)), policy: `"default";q=3;w=86400`, // from 0:00
			answers: "200 r=2;t=57600, 200 r=1;t=57600, 200 r=0;t=57600, 429 r=0;t=57600 57600"},
		{cfg: of(hybrid.Sliding(3, 500*time.Millisecond)), policy: `"default";q=6;w=1`,
			answers: "200 r=2;t=1, 200 r=1;t=1, 200 r=0;t=1, 429 r=0;t=1 1"},
		// Unlimited and Shadow have no fields, and Blocked has no wait, with and without a store.
		{cfg: of(hybrid.Unlimited), answers: "200, 200"},
		{cfg: with(of(hybrid.Every(time.Hour)), hybrid.Policy{Shadow: true}), answers: "200 r=0;t=3600, 200"},
		{cfg: of(hybrid.Blocked), policy: `"default";q=0;w=1`, answers: "429 r=0 0 0, 429 r=0 0 0",
			options: []httplimit.Option{httplimit.Fields(draft | legacy)}},
		{cfg: of(hybrid.Blocked), answers: "429", goneAt: 1},
		// A fallback has no fields: a process has an unknown share.
		{cfg: with(of(hybrid.PerHour(1)), hybrid.Policy{Fallback: hybrid.FallbackAllowAll}),
			answers: "200 r=0;t=3600, 200, 200, 200", goneAt: 2},
		// A class or Headroom leaves a part of the burst, so RateLimit-Policy promises none.
		{cfg: with(of(hybrid.PerHour(100)), hybrid.Policy{Headroom: 0.5}), answers: "200 r=49;t=36"},
		// After a wait no tokens are left.
		{cfg: filling, policy: `"default";q=10;w=10`, answers: "200 r=4;t=6, 200 r=0;t=1",
			options: []httplimit.Option{httplimit.Wait(time.Minute), cost(6)}},
		{cfg: named, policy: `"api";q=1;w=3600`, answers: "200 r=0;t=3600, 429 r=0;t=3600 3600"},
		// The sets of fields. The time is 946684800.
		{cfg: filling, answers: "200, 200, 429 5", options: []httplimit.Option{httplimit.Fields(none), cost(5)}},
		{cfg: filling, answers: "200 10 5 946684805, 200 10 0 946684801, 429 5 10 0 946684805",
			options: []httplimit.Option{httplimit.Fields(legacy), cost(5)}},
		{cfg: filling, policy: `"default";q=10;w=10`, answers: "200 r=5;t=5 10 5 946684805, " +
			"200 r=0;t=1 10 0 946684801, 429 r=0;t=5 5 10 0 946684805",
			options: []httplimit.Option{httplimit.Fields(draft | legacy), cost(5)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &hybridtest.FaultyStore{Store: memory.New(nil)}
			h := httplimit.Middleware(limiterOn(t, store, c.cfg), httplimit.OneKey, c.options...)(&served{})
			var got []string
			var w *httptest.ResponseRecorder
			for i := range strings.Split(c.answers, ", ") {
				if i+1 == c.goneAt {
					store.Away()
					time.Sleep(time.Hour)
				}
				w = ask(h)
				got = append(got, brief(w))
			}
			check(t, strings.Join(got, ", ") == c.answers, "%v: %q\nwant %q", c.cfg.Limits, got, c.answers)
			check(t, w.Header().Get("RateLimit-Policy") == c.policy, "%v: %v", c.cfg.Limits, w.Header())
			if seconds, err := strconv.Atoi(w.Header().Get("Retry-After")); err == nil {
				time.Sleep(time.Duration(seconds) * time.Second)
				check(t, ask(h).Code == 200, "%v: denied after %d s", c.cfg.Limits, seconds)
			}
		})
	}
}

// A limiter that fails is not a limit that denies: 503, no quota exceeded, and no RateLimit that may be
// wrong. OnError may answer otherwise, or admit.
func TestALimiterThatFailsIsNoDenial(t *testing.T) {
	const used = "the local share is used up"
	gone := func(t *testing.T, p hybrid.Policy, after int) *hybrid.Limiter {
		store := &hybridtest.FaultyStore{Store: memory.New(nil)}
		if after == 0 {
			store.Away()
		}
		l := limiterOn(t, store, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(1)}, Policy: p})
		for i := range 4 * after {
			check(t, l.Allow("all") || i > 0, "the first is denied")
			if i == 0 {
				store.Away()
				time.Sleep(time.Hour)
			}
		}
		return l
	}
	for name, limiter := range map[string]func(*testing.T) *hybrid.Limiter{
		"no fallback": func(t *testing.T) *hybrid.Limiter {
			return gone(t, hybrid.Policy{Fallback: hybrid.FallbackDeny}, 0)
		},
		used: func(t *testing.T) *hybrid.Limiter { return gone(t, hybrid.Policy{}, 1) },
		"closed": func(t *testing.T) *hybrid.Limiter {
			l := limiterOf(t, hybrid.PerHour(1))
			noErr(t, l.Close())
			return l
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t)
			answered := func(options ...httplimit.Option) *httptest.ResponseRecorder {
				return ask(httplimit.Middleware(l, httplimit.OneKey, options...)(&served{}))
			}
			w := answered()
			after, err := strconv.Atoi(w.Header().Get("Retry-After"))
			check(t, w.Code == 503 && err == nil && after >= 1 && (name != used || after > 60) &&
				w.Header().Get("RateLimit") == "", "%s: %d %v", name, w.Code, w.Header())
			p := problemOf(t, w)
			check(t, p.Type == lessCapacity && len(p.Violated) == 0, "%s: %+v", name, p)

			var told error
			w = answered(httplimit.OnError(func(w http.ResponseWriter, _ *http.Request, err error) bool {
				told = err
				w.WriteHeader(http.StatusTeapot)
				return false
			}))
			check(t, w.Code == http.StatusTeapot && w.Body.Len() == 0, "%s: %d %s", name, w.Code, w.Body)
			known := errors.Is(told, hybrid.ErrUnavailable) || errors.Is(told, hybrid.ErrClosed)
			check(t, known && !errors.Is(told, httplimit.ErrNoKey), "%s: %v", name, told)
			w = answered(httplimit.OnError(func(http.ResponseWriter, *http.Request, error) bool { return true }))
			check(t, w.Code == 200 && w.Body.String() == "served" && w.Header().Get("Retry-After") == "",
				"%s: %d %s %v", name, w.Code, w.Body, w.Header())
		})
	}
}

// A request without a key is answered with 400, whatever error the KeyFunc has, and takes nothing.
func TestARequestWithoutAKeyIsABadOne(t *testing.T) {
	secret := errors.New("the token abc123 has expired")
	empty := func(*http.Request) (string, error) { return "", nil }
	for name, key := range map[string]httplimit.KeyFunc{
		"no field":      httplimit.Header("X-User"),
		"empty":         empty,
		"own error":     func(*http.Request) (string, error) { return "", secret },
		"no pattern":    httplimit.Pattern,
		"no path":       httplimit.Path("bucket"),
		"a part":        httplimit.Combine(httplimit.OneKey, httplimit.Pattern),
		"an empty part": httplimit.Combine(httplimit.OneKey, empty),
	} {
		l, next := limiterOf(t, hybrid.PerHour(1)), &served{}
		more := httplimit.Also(limiterOf(t, hybrid.PerHour(1)), httplimit.OneKey)
		for _, also := range [][]httplimit.Option{nil, {more}} {
			w := ask(httplimit.Middleware(l, key, also...)(next))
			check(t, brief(w) == "400" && next.requests == 0, "%s: %s", name, brief(w))
			p := problemOf(t, w)
			check(t, p.Type == "" && !strings.Contains(w.Body.String(), "abc123"), "%s: %s", name, w.Body)
		}
		var told error
		w := ask(httplimit.Middleware(l, key, httplimit.OnError(
			func(_ http.ResponseWriter, _ *http.Request, err error) bool {
				told = err
				return true
			}))(next))
		check(t, w.Code == 200 && errors.Is(told, httplimit.ErrNoKey), "%s: %d, %v", name, w.Code, told)
		check(t, name != "own error" || errors.Is(told, secret), "%v", told)
	}
	selects := httplimit.Select(func(*http.Request) (httplimit.Selection, error) {
		return httplimit.Selection{}, secret
	})
	check(t, ask(selects(&served{})).Code == http.StatusBadRequest, "the error of Select's function")
}

// A request that is never served has no Retry-After, no RateLimit and a status that clients do not retry.
// OnError is told why and may answer otherwise, but not admit it. OnLimit is not called.
func TestARequestThatIsNeverServedIsNotRepeated(t *testing.T) {
	large := []hybrid.Limit{hybrid.PerSecond(100)}
	small := []hybrid.Limit{hybrid.PerSecond(10), hybrid.PerHour(1000)}
	for _, c := range []struct {
		name         string
		limits, also []hybrid.Limit
		options      []httplimit.Option
		cost, length int64
		status       int
		why          error
	}{
		{"above the burst", small, nil, nil, 11, 0, 413, hybrid.ErrExceedsBurst},
		{"above that of one limit", large, small, nil, 11, 0, 413, hybrid.ErrExceedsBurst},
		{"and may wait", small, nil, []httplimit.Option{httplimit.Wait(time.Hour)}, 11, 0, 413,
			hybrid.ErrExceedsBurst},
		{"of an unknown length", small, nil, nil, -1, -1, 411, hybrid.ErrInvalidN},
		{"of a negative cost", small, nil, nil, -1, 1, 400, hybrid.ErrInvalidN},
		{"with several limits", small, large, nil, -5, 1, 400, hybrid.ErrInvalidN},
	} {
		for _, known := range []bool{false, true} { // the limits of the key, from the store
			synctest.Test(t, func(t *testing.T) {
				next, told := &served{}, error(nil)
				l, options := limiterOf(t, c.limits...), slices.Clone(c.options)
				if c.also != nil {
					options = append(options, httplimit.Also(limiterOf(t, c.also...), httplimit.OneKey))
				}
				cost := int64(0)
				options = append(options, httplimit.Cost(func(*http.Request) int64 { return cost }),
					httplimit.OnLimit(func(http.ResponseWriter, *http.Request, httplimit.Denial) {
						t.Error("OnLimit is called")
					}))
				asked := func(options ...httplimit.Option) *httptest.ResponseRecorder {
					return ask(httplimit.Middleware(l, httplimit.OneKey, options...)(next),
						func(r *http.Request) { r.ContentLength = c.length })
				}
				if cost = 1; known {
					asked(options...)
				}
				cost, next.requests = c.cost, 0
				w := asked(options...)
				check(t, brief(w) == strconv.Itoa(c.status), "%s: %s", c.name, brief(w))
				policy := strings.Contains(w.Header().Get("RateLimit-Policy"), ";q=10;w=1")
				check(t, policy == (known && c.status == 413), "%s: %v", c.name, w.Header())
				p := problemOf(t, w)
				check(t, p.Type == "" && len(p.Violated) == 0, "%s: %+v", c.name, p)
				w = asked(append(options, httplimit.OnError(
					func(_ http.ResponseWriter, _ *http.Request, err error) bool {
						told = err
						return true
					}))...)
				check(t, w.Code == c.status && errors.Is(told, c.why) && !errors.Is(told, httplimit.ErrNoKey),
					"%s: %d, %v", c.name, w.Code, told)
				check(t, next.requests == 0, "%s: it is served", c.name)
			})
		}
	}
}

// A function of Select that returns more rules than there can be denies its requests for good.
func TestTooManyRulesAreNotAskedAgain(t *testing.T) {
	limiter := limiterOf(t, hybrid.PerHour(1))
	rules := make([]httplimit.Rule, 17)
	for i := range rules {
		key := func(*http.Request) (string, error) { return fmt.Sprint(i), nil }
		rules[i] = httplimit.Rule{Limiter: limiter, Key: key}
	}
	w := ask(httplimit.Select(func(*http.Request) (httplimit.Selection, error) {
		return httplimit.Selection{Rules: rules, Cost: 1}, nil
	})(&served{}))
	check(t, brief(w) == "400", "%s", brief(w))
}

// A request of cost 0 says what is left, or nothing if the store has not said what is.
func TestARequestOfCost0SaysOnlyWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost, also := int64(0), limiterOf(t, hybrid.PerHour(1000))
		costs := httplimit.Cost(func(*http.Request) int64 { return cost })
		for _, more := range [][]httplimit.Option{nil, {httplimit.Also(also, httplimit.OneKey)}} {
			limiter := limiterOf(t, hybrid.PerSecond(10))
			h := httplimit.Middleware(limiter, httplimit.OneKey, append(more, costs)...)(&served{})
			for _, step := range []struct {
				cost int64
				want string
			}{{0, "200"}, {11, "413"}, {0, "200"}, {3, "200 r=7;t=1"}, {0, "200 r=7;t=1"}, {11, "413"},
				{0, "200 r=7;t=1"}} {
				cost = step.cost
				got := brief(ask(h))
				check(t, got == step.want, "%d more, cost %d: %s, want %s", len(more), cost, got, step.want)
			}
		}
	})
}

// Behind a proxy with RemoveFields a client reads each field once: those of the proxy's own limit, and the
// Retry-After of the server that denies.
func TestAProxyAnswersWithItsOwnFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := httplimit.Fields(httplimit.FieldsDraft | httplimit.FieldsLegacy)
		fields := []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining",
			"X-RateLimit-Reset"}
		for _, removes := range []bool{false, true} {
			// Given a proxy of 100 an hour before a server of 2,
			server := httplimit.Middleware(limiterOf(t, hybrid.PerHour(2)), httplimit.OneKey, both)(&served{})
			proxy := &httputil.ReverseProxy{
				Rewrite: func(*httputil.ProxyRequest) {}, Transport: inProcess{server},
			}
			if removes {
				proxy.ModifyResponse = httplimit.RemoveFields
			}
			gateway := httplimit.Middleware(limiterOf(t, hybrid.PerHour(100)), httplimit.OneKey, both)(proxy)
			// when the server admits two requests and denies the third,
			for i, status := range []int{200, 200, 429} {
				w := ask(gateway)
				// then the answers have the fields of the proxy, and those of the server unless they are
				// removed.
				check(t, w.Code == status, "%d", w.Code)
				for _, f := range fields {
					n := len(w.Header().Values(f))
					check(t, removes && n == 1 || !removes && n == 2, "%s: %d times in answer %d", f, n, i)
				}
				left, after := items(t, w.Header(), "RateLimit")[0].is["r"], w.Header().Values("Retry-After")
				check(t, left == int64(99-i) && (status == 200) == (len(after) == 0) && len(after) < 2,
					"answer %d: %v", i, w.Header())
			}
		}
	})
}

// An answer owns its fields: a handler that changes them in place changes no other answer's. A process that
// denies by one rule, before it has heard of the other one's key, names the true policy for that or none.
func TestADenialSaysNothingOfALimitThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given two rules, of which another process has used up the second,
		store := memory.New(nil)
		everybody, each := hybrid.PerSecond(1000), hybrid.Limit{Tokens: 2, Per: time.Hour}
		drained := limiterOn(t, store, hybrid.Config{Name: "each", Limits: []hybrid.Limit{each}})
		for drained.Allow("ann") {
		}
		all := limiterOn(t, store, hybrid.Config{Name: "everybody", Limits: []hybrid.Limit{everybody}})
		one := limiterOn(t, store, hybrid.Config{Name: "each", Limits: []hybrid.Limit{each}})
		h := httplimit.Middleware(all, httplimit.OneKey, httplimit.Also(one, httplimit.Header("X-User")))(&served{})
		// when the first request of a process is denied,
		w := ask(h, user("ann"))
		// then it names the policy of the second rule, and for the first the true one or none: whether the store
		// has told of it in time depends on which call came first.
		policy := w.Header().Get("RateLimit-Policy")
		check(t, w.Code == http.StatusTooManyRequests && strings.Contains(policy, `"each";q=2`) &&
			!strings.Contains(policy, `"everybody";q=2`), "%d, %s", w.Code, policy)
	})
}

func TestFieldsAreNotShared(t *testing.T) {
	limits := map[int64]hybrid.Limit{1: hybrid.PerHour(9), 0: hybrid.PerSecond(1000), 2: hybrid.PerHour(1)}
	for cost, limit := range limits {
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{limit, hybrid.PerHour(8)}, CallTimeout: realTime})
		h := httplimit.Middleware(l, httplimit.OneKey, httplimit.Fields(httplimit.FieldsDraft|httplimit.FieldsLegacy),
			httplimit.Cost(func(*http.Request) int64 { return max(cost, 1) }))(&served{})
		for range 3 {
			w := ask(h)
			for _, f := range []string{"Ratelimit-Policy", "Ratelimit", "Retry-After", "X-Ratelimit-Limit"} {
				for i, value := range w.Header()[f] {
					check(t, value != "changed", "%v: %s is another answer's", limit, f)
					w.Header()[f][i] = "changed"
				}
			}
		}
	}
}

// An OnError that admits undecided requests does not admit a request whose client has gone: otherwise a
// client could have every request served by ending it at once.
func TestACancelledRequestIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, told := &served{}, 0
		h := httplimit.Middleware(limiterOf(t, hybrid.PerHour(1)), httplimit.OneKey, httplimit.Wait(2*time.Hour),
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

// A handler that reserves tokens itself answers as a Middleware does.
func TestAHandlerThatReservesAnswersLikeAMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		absent := hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(2)}}
		absent.Policy.Fallback = hybrid.FallbackDeny
		gone := &hybridtest.FaultyStore{Store: memory.New(nil)}
		gone.Away()
		closed := limiterOf(t, hybrid.PerHour(2))
		closed.Close()
		for name, c := range map[string]struct {
			limiter *hybrid.Limiter
			cost    int64
			want    string // of the third request, as brief has it
			names   string
		}{
			"a limit":         {limiterOf(t, hybrid.PerHour(2)), 1, "429 r=0;t=1800 1800", "[2/h]"},
			"two limits":      {limiterOf(t, hybrid.PerHour(9), hybrid.PerHour(2)), 1, "429 r=0;t=1800 1800", "[2/h]"},
			"blocked":         {limiterOf(t, hybrid.Blocked), 1, "429 r=0", "[blocked]"},
			"the store away":  {limiterOn(t, gone, absent), 1, "503 1", "[]"},
			"above the burst": {limiterOf(t, hybrid.PerHour(2)), 3, "413", "[]"},
			"closed":          {closed, 1, "503 1", "[]"},
		} {
			key := c.limiter.Key("ann")
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				taken, err := key.Reserve(r.Context(), c.cost)
				switch {
				case err != nil:
					httplimit.WriteError(w, r, err)
				case !taken.OK():
					httplimit.WriteDenial(w, r, taken.Result())
				}
			})
			ask(h)
			ask(h)
			w := ask(h)
			p := problemOf(t, w)
			check(t, brief(w) == c.want && fmt.Sprint(p.Violated) == c.names && !w.Flushed &&
				w.Header().Get("RateLimit-Policy") == "", "%s: %s %v %v", name, brief(w), p.Violated, w.Header())
		}
	})
}
