package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// codes returns the statuses of n requests.
func codes(h http.Handler, n int, change ...func(*http.Request)) (all []int) {
	for range n {
		all = append(all, ask(h, change...).Code)
	}
	return all
}

func TestOptions(t *testing.T) {
	path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = p } }
	costs := func(n int64) httplimit.Option { return httplimit.Cost(func(*http.Request) int64 { return n }) }
	health := httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" })
	second := hybrid.Every(time.Second)
	for _, c := range []struct {
		name   string
		option httplimit.Option
		limit  hybrid.Limit
		path   string
		want   []int
		waits  time.Duration // of all together
	}{
		{"no option", httplimit.Status(429), hybrid.PerHour(2), "/", []int{200, 200, 429, 429}, 0},
		{"Cost", costs(3), hybrid.PerHour(10), "/", []int{200, 200, 200, 429}, 0},
		{"Cost 0", costs(0), hybrid.PerHour(1), "/", []int{200, 200, 200, 200}, 0},
		{"Skip", health, hybrid.PerHour(1), "/healthz", []int{200, 200, 200, 200}, 0},
		{"Skip another", health, hybrid.PerHour(1), "/", []int{200, 429, 429, 429}, 0},
		{"Status", httplimit.Status(503), hybrid.PerHour(1), "/", []int{200, 503, 503, 503}, 0},
		{"Wait", httplimit.Wait(1100 * time.Millisecond), second, "/", []int{200, 200, 200, 200}, 3 * time.Second},
		{"Wait too short", httplimit.Wait(998 * time.Millisecond), second, "/", []int{200, 429, 429, 429}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, from := httplimit.Middleware(limiterOf(t, c.limit), httplimit.OneKey, c.option)(&served{}), time.Now()
			got := codes(h, len(c.want), path(c.path))
			took := time.Since(from)
			check(t, slices.Equal(got, c.want), "%s: %v, want %v", c.name, got, c.want)
			check(t, took >= c.waits && took <= c.waits+time.Second/5, "%s: took %v, want %v", c.name, took, c.waits)
		})
	}
}

// A class leaves a part of the burst to the classes before it, and RateLimit-Policy promises none of it.
func TestClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(10)}, Priorities: []float64{.5}})
		class := httplimit.Class(func(r *http.Request) int { return len(r.Header.Get("X-Batch")) })
		h := httplimit.Middleware(l, httplimit.OneKey, class)(&served{})
		batch := func(r *http.Request) { r.Header.Set("X-Batch", "1") }
		w := ask(h, batch)
		check(t, w.Header().Get("RateLimit-Policy") == "" && items(t, w.Header(), "RateLimit")[0].is["r"] == 4,
			"%v", w.Header())
		check(t, slices.Equal(codes(h, 5, batch), []int{200, 200, 200, 200, 429}), "the class has not its half")
		check(t, slices.Equal(codes(h, 6), []int{200, 200, 200, 200, 200, 429}), "the first class has not its half")
	})
}

// OnLimit has the fields and the reasons, and answers in place of the problem.
func TestOnLimitAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told httplimit.Denial
		page := httplimit.OnLimit(func(w http.ResponseWriter, r *http.Request, d httplimit.Denial) {
			told = d
			w.Header().Set("Retry-After", "7")
			http.Error(w, "slow down", http.StatusTeapot)
		})
		h := httplimit.Middleware(limiterOf(t, hybrid.Every(1500*time.Millisecond)), httplimit.OneKey, page)(&served{})
		ask(h)
		w := ask(h)
		check(t, w.Code == http.StatusTeapot && w.Body.String() == "slow down\n", "%d %s", w.Code, w.Body)
		check(t, w.Header().Get("Retry-After") == "7" && w.Header().Get("RateLimit") != "", "%v", w.Header())
		check(t, !told.Result.OK && told.Result.Key == "all" && told.RetryAfter == 2*time.Second &&
			slices.Equal(told.Policies, []string{"default"}), "%+v", told)
	})
}

// All limits of a request give their tokens, or none does, and the answer names all of them differently.
func TestSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everybody := newLimiter(t, hybrid.Config{Name: "everybody", Limits: []hybrid.Limit{hybrid.PerHour(100)}})
		users := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(2), hybrid.PerHour(3)}})
		routes := limiterOf(t, hybrid.PerMinute(50))
		h := httplimit.Middleware(everybody, httplimit.OneKey, httplimit.Also(users, httplimit.Header("X-User")),
			httplimit.Also(routes, func(*http.Request) (string, error) { return "/", nil }))(&served{})
		w := ask(h, user("ann"))
		want := `"everybody";q=100;w=3600, "default 2/s";q=2;w=1, "default 3/h";q=3;w=3600, "default-2";q=50;w=60`
		check(t, w.Header().Get("RateLimit-Policy") == want, "%v\nwant %s", w.Header(), want)
		limit := items(t, w.Header(), "RateLimit")
		check(t, len(limit) == 1 && limit[0].name == "default 2/s" && limit[0].is["r"] == 1, "%v", limit)
		ask(h, user("ann"))
		w = ask(h, user("ann"))
		check(t, w.Code == 429 && slices.Equal(problemOf(t, w).Violated, []string{"default 2/s"}), "%d %s",
			w.Code, w.Body)
		time.Sleep(time.Second)
		check(t, slices.Equal(codes(h, 2, user("ann")), []int{200, 429}), "of 3 an hour")
		w = ask(h, user("ann"))
		check(t, slices.Equal(problemOf(t, w).Violated, []string{"default 3/h"}), "%s", w.Body)
		time.Sleep(time.Second) // what was given back has arrived
		r, err := everybody.Peek(t.Context(), "all")
		check(t, err == nil && r.Remaining == 97, "denied by another limit, it took of this one: %+v %v", r, err)
	})
}

// Among equal limits, the answer names the one that binds.
func TestTheLimitThatBindsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := func(name string) *hybrid.Limiter {
			return newLimiter(t, hybrid.Config{Name: name, Limits: []hybrid.Limit{hybrid.PerHour(3)}})
		}
		everybody, users := limiter("everybody"), limiter("users")
		name := httplimit.Header("X-User")
		for _, h := range []http.Handler{
			httplimit.Middleware(everybody, httplimit.OneKey, httplimit.Also(users, name))(&served{}),
			httplimit.Middleware(users, name, httplimit.Also(everybody, httplimit.OneKey))(&served{}),
		} {
			for i := 0; ask(h, user(fmt.Sprint(i))).Code == 200; i++ {
			}
			w := ask(h, user("ann"))
			check(t, slices.Equal(problemOf(t, w).Violated, []string{"everybody"}), "%s", w.Body)
			check(t, items(t, w.Header(), "RateLimit")[0].name == "everybody", "%v", w.Header())
		}
	})
}

// The function of Select chooses the rules of each request.
func TestSelectChoosesTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, writes := limiterOf(t, hybrid.PerHour(3)), limiterOf(t, hybrid.PerHour(10))
		long := strings.Repeat("long ", 30)
		rules := map[string][]httplimit.Rule{
			"GET":  {{Name: `read "only"`, Limiter: reads, Key: httplimit.OneKey}},
			"POST": {{Name: "écrire\n", Limiter: writes, Key: httplimit.OneKey}},
			"PUT":  {{Name: long, Limiter: limiterOf(t, hybrid.Every(time.Hour)), Key: httplimit.OneKey}},
		}
		costs := map[string]int64{"GET": 1, "POST": 5, "PUT": 1}
		h := httplimit.Select(func(r *http.Request) (httplimit.Selection, error) {
			return httplimit.Selection{Rules: rules[r.Method], Cost: costs[r.Method]}, nil
		})(&served{})
		method := func(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }
		check(t, slices.Equal(codes(h, 4, method("GET")), []int{200, 200, 200, 429}), "of 3 an hour")
		check(t, slices.Equal(codes(h, 3, method("POST")), []int{200, 200, 429}), "5 each of 10 an hour")
		check(t, slices.Equal(codes(h, 4, method("OPTIONS")), []int{200, 200, 200, 200}), "without a rule")
		check(t, slices.Equal(codes(h, 2, method("PUT")), []int{200, 429}), "1 an hour")
		w := ask(h, method("PUT"))
		state := items(t, w.Header(), "RateLimit")
		check(t, fmt.Sprint(state) == "[{"+long+" map[r:0 t:3600]}]" && w.Header().Get("Retry-After") == "3600",
			"%v", w.Header())
		// Names are escaped, and the same in the fields and in the problem.
		for m, name := range map[string]string{"GET": `read "only"`, "POST": "%C3%A9crire%0A"} {
			w := ask(h, method(m))
			got := items(t, w.Header(), "RateLimit-Policy")[0].name
			check(t, got == name && problemOf(t, w).Violated[0] == name, "%q, %s", got, w.Body)
		}
		check(t, ask(h, method("OPTIONS")).Header().Get("RateLimit-Policy") == "", "a policy without rules")
	})
}

// The fields are there when the next handler runs, which may take them away, and a handler around
// another one adds to what it has.
func TestTheNextHandlerMayChangeTheFields(t *testing.T) {
	strips := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		check(t, w.Header().Get("RateLimit") != "" && w.Header().Get("RateLimit-Policy") != "", "%v", w.Header())
		w.Header().Del("RateLimit")
		w.Header().Add("RateLimit-Policy", `"mine";q=1`)
	})
	named := func(name string) func(http.Handler) http.Handler {
		cfg := hybrid.Config{Name: name, Limits: []hybrid.Limit{hybrid.PerHour(9)}, CallTimeout: realTime}
		return httplimit.Middleware(newLimiter(t, cfg), httplimit.OneKey)
	}
	h := named("outer")(named("inner")(strips))
	for range 2 { // the second finds the cached values as they were
		w := ask(h)
		policies := items(t, w.Header(), "RateLimit-Policy")
		const want = "[{outer map[q:9 w:3600]} {inner map[q:9 w:3600]} {mine map[q:1]}]"
		check(t, fmt.Sprint(policies) == want && w.Header().Get("RateLimit") == "", "%v", w.Header())
	}
	// A value that another handler has set, and may share, is copied before it grows.
	shared := []string{`"other";q=1`, "kept"}
	w := httptest.NewRecorder()
	w.Header()["Ratelimit-Policy"] = shared[:1]
	named("third")(&quiet{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	both := len(items(t, w.Header(), "RateLimit-Policy")) == 2
	check(t, both && shared[1] == "kept", "%v, %q", w.Header(), shared)
}

// The next handler gets the ResponseWriter and the request of the server themselves, so it can flush and
// hijack, and its panics pass through.
func TestTheResponseWriterIsTheServers(t *testing.T) {
	l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}, CallTimeout: realTime})
	own := &struct{ *httptest.ResponseRecorder }{httptest.NewRecorder()}
	r := httptest.NewRequest("GET", "/", nil)
	defer func() { check(t, recover() == http.ErrAbortHandler, "the panic is not the handler's") }()
	httplimit.Middleware(l, httplimit.OneKey)(http.HandlerFunc(func(w http.ResponseWriter, got *http.Request) {
		check(t, w == http.ResponseWriter(own) && got == r, "%T", w)
		panic(http.ErrAbortHandler)
	})).ServeHTTP(own, r)
	t.Error("the handler was not called")
}

// Many goroutines, keys and sets of limits, more than are kept ready: for the race detector.
func TestHandlersAreShared(t *testing.T) {
	limit := func(key string) hybrid.Limit { return hybrid.PerHour(int64(1000 + len(key)%300)) }
	l := newLimiter(t, hybrid.Config{
		CallTimeout: realTime,
		LimitsFor: func(_ context.Context, key string) ([]hybrid.Limit, error) {
			return []hybrid.Limit{limit(key)}, nil
		},
	})
	both := httplimit.Fields(httplimit.FieldsDraft | httplimit.FieldsLegacy)
	h := httplimit.Middleware(l, httplimit.Header("X-User"), both)(&quiet{})
	var wg sync.WaitGroup
	for g := range testkit.PlainOrRace(8, 4) {
		wg.Go(func() {
			for i := range 600 {
				name := strings.Repeat("x", 1+(i*7+g)%600)
				w := ask(h, user(name))
				want := fmt.Sprintf(`"default";q=%d;w=3600`, limit(name).Tokens)
				check(t, w.Header().Get("RateLimit-Policy") == want, "%v, want %s", w.Header(), want)
			}
		})
	}
	wg.Wait()
}

// A mistake in the program panics at its start.
func TestMistakesOfTheProgramPanic(t *testing.T) {
	l := limiterOf(t, hybrid.PerHour(1))
	for name, f := range map[string]func(){
		"no limiter":   func() { httplimit.Middleware(nil, httplimit.OneKey) },
		"no key":       func() { httplimit.Middleware(l, nil) },
		"Also without": func() { httplimit.Middleware(l, httplimit.OneKey, httplimit.Also(nil, httplimit.OneKey)) },
		"17 limits": func() {
			also := slices.Repeat([]httplimit.Option{httplimit.Also(l, httplimit.OneKey)}, 16)
			httplimit.Middleware(l, httplimit.OneKey, also...)
		},
		"FirstOf nothing":     func() { httplimit.FirstOf() },
		"Select of nothing":   func() { httplimit.Select(nil) },
		"RoundTripper of nil": func() { httplimit.RoundTripper(nil, httplimit.OneKey, nil) },
		"a status":            func() { httplimit.Middleware(l, httplimit.OneKey, httplimit.Status(99)) },
		"a prefix":            func() { httplimit.ClientIP(append(prefixes("10.0.0.0/8", "::/0"), zero)...) },
		"bits of IPv6":        func() { httplimit.ClientAddress{IPv6Bits: 129}.Key() },
		"bits of IPv4":        func() { httplimit.ClientAddress{IPv4Bits: -1}.Key() },
		"no parts":            func() { httplimit.Combine() },
	} {
		func() {
			defer func() { check(t, recover() != nil, "%s: no panic", name) }()
			f()
		}()
	}
}
