package httplimit_test

import (
	"bufio"
	"fmt"
	"io"
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

// codes are the statuses of so many requests.
func codes(h http.Handler, n int, change ...func(*http.Request)) (all []int) {
	for range n {
		all = append(all, ask(h, change...).Code)
	}
	return all
}

func TestOptions(t *testing.T) {
	path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = p } }
	for _, c := range []struct {
		name    string
		option  httplimit.Option
		limit   hybrid.Limit
		change  func(*http.Request)
		want    []int
		waits   time.Duration // of all together
		message string
	}{
		{"no option", httplimit.Status(429), hybrid.PerHour(2), path("/"),
			[]int{200, 200, 429, 429}, 0, "the limit"},
		{"Cost", httplimit.Cost(func(*http.Request) int64 { return 3 }), hybrid.PerHour(10), path("/"),
			[]int{200, 200, 200, 429}, 0, "3 of 10"},
		{"Cost 0", httplimit.Cost(func(*http.Request) int64 { return 0 }), hybrid.PerHour(1), path("/"),
			[]int{200, 200, 200, 200}, 0, "what costs nothing is admitted"},
		{"Skip", httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }), hybrid.PerHour(1),
			path("/healthz"), []int{200, 200, 200, 200}, 0, "what is skipped is admitted"},
		{"Skip another", httplimit.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
			hybrid.PerHour(1),
			path("/"), []int{200, 429, 429, 429}, 0, "what is not skipped is limited"},
		{"Status", httplimit.Status(503), hybrid.PerHour(1), path("/"),
			[]int{200, 503, 503, 503}, 0, "the status is that of the option"},
		{"Wait", httplimit.Wait(1100 * time.Millisecond), hybrid.Every(time.Second), path("/"),
			[]int{200, 200, 200, 200}, 3 * time.Second, "each waits for a second"},
		{"Wait too short", httplimit.Wait(time.Second - 2*time.Millisecond), hybrid.Every(time.Second), path("/"),
			[]int{200, 429, 429, 429}, 0, "none begins to wait in vain"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, from := httplimit.Handler(limiterOf(t, c.limit), httplimit.All, c.option)(&served{}), time.Now()
			got := codes(h, len(c.want), c.change)
			took := time.Since(from)
			check(t, slices.Equal(got, c.want), "%s: %v, want %v: %s", c.name, got, c.want, c.message)
			check(t, took >= c.waits && took <= c.waits+time.Second/5, "%s: took %v, want %v", c.name, took, c.waits)
		})
	}
}

// A class leaves a part of the burst to those before it, and is promised none of it.
func TestClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(10)}, Priorities: []float64{.5}})
		class := httplimit.Class(func(r *http.Request) int { return len(r.Header.Get("X-Batch")) })
		h := httplimit.Handler(l, httplimit.All, class)(&served{})
		batch := func(r *http.Request) { r.Header.Set("X-Batch", "1") }
		w := ask(h, batch)
		check(t, w.Header().Get("RateLimit-Policy") == "" && items(t, w.Header(), "RateLimit")[0].is["r"] == 4,
			"%v", w.Header())
		check(t, slices.Equal(codes(h, 5, batch), []int{200, 200, 200, 200, 429}),
			"the class has more than its half")
		check(t, slices.Equal(codes(h, 6), []int{200, 200, 200, 200, 200, 429}),
			"the first class lacks what was left to it")
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
		h := httplimit.Handler(limiterOf(t, hybrid.Every(1500*time.Millisecond)), httplimit.All, page)(&served{})
		ask(h)
		w := ask(h)
		check(t, w.Code == http.StatusTeapot && w.Body.String() == "slow down\n", "%d %s", w.Code, w.Body)
		check(t, w.Header().Get("Retry-After") == "7" && w.Header().Get("RateLimit") != "", "%v", w.Header())
		check(t, !told.Result.OK && told.Result.Key == "all" && told.RetryAfter == 2*time.Second &&
			slices.Equal(told.Policies, []string{"default"}), "%+v", told)
	})
}

// All limits of a request or none take their tokens, and the answer tells of all of them, by names
// that differ.
func TestSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everybody := newLimiter(t, hybrid.Config{Name: "everybody", Limits: []hybrid.Limit{hybrid.PerHour(100)}})
		users := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(2), hybrid.PerHour(3)}})
		routes := limiterOf(t, hybrid.PerMinute(50))
		h := httplimit.Handler(everybody, httplimit.All, httplimit.Also(users, httplimit.Header("X-User")),
			httplimit.Also(routes, func(*http.Request) (string, error) { return "/", nil }))(&served{})
		w := ask(h, user("ann"))
		want := `"everybody";q=100;w=3600, "default 2/s";q=2;w=1, "default 3/h";q=3;w=3600, "default-2";q=50;w=60`
		check(t, w.Header().Get("RateLimit-Policy") == want, "%v\nwant %s", w.Header().Get("RateLimit-Policy"),
			want)
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
		check(t, err == nil && r.Remaining == 97,
			"who was denied by another limit has used up this one: %+v %v", r, err)
	})
}

// Of limits that are alike, the one that binds is told of.
func TestTheLimitThatBindsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := func(name string) *hybrid.Limiter {
			return newLimiter(t, hybrid.Config{Name: name, Limits: []hybrid.Limit{hybrid.PerHour(3)}})
		}
		everybody, users := limiter("everybody"), limiter("users")
		name := httplimit.Header("X-User")
		for _, h := range []http.Handler{
			httplimit.Handler(everybody, httplimit.All, httplimit.Also(users, name))(&served{}),
			httplimit.Handler(users, name, httplimit.Also(everybody, httplimit.All))(&served{}),
		} {
			for i := 0; ask(h, user(fmt.Sprint(i))).Code == 200; i++ {
			}
			w := ask(h, user("ann"))
			check(t, slices.Equal(problemOf(t, w).Violated, []string{"everybody"}), "%s", w.Body)
			check(t, items(t, w.Header(), "RateLimit")[0].name == "everybody", "%v", w.Header())
		}
	})
}

// Select's function says for each request which rules there are.
func TestSelectChoosesTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, writes := limiterOf(t, hybrid.PerHour(3)), limiterOf(t, hybrid.PerHour(10))
		rules := map[string][]httplimit.Rule{
			"GET":  {{Name: `read "only"`, Limiter: reads, Key: httplimit.All}},
			"POST": {{Name: "écrire\n", Limiter: writes, Key: httplimit.All}},
			"PUT": {{Name: strings.Repeat("long ", 30), Limiter: limiterOf(t, hybrid.Every(time.Hour)),
				Key: httplimit.All}},
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
		long := ask(h, method("PUT"))
		state := items(t, long.Header(), "RateLimit")
		check(t, fmt.Sprint(state) == "[{"+strings.Repeat("long ", 30)+" map[r:0 t:3600]}]" &&
			long.Header().Get("Retry-After") == "3600", "%v", long.Header())
		// Names are escaped, and the same in the fields and in the problem.
		for m, name := range map[string]string{"GET": `read "only"`, "POST": "%C3%A9crire%0A"} {
			w := ask(h, method(m))
			got := items(t, w.Header(), "RateLimit-Policy")[0].name
			check(t, got == name && problemOf(t, w).Violated[0] == name, "%q, %s", got, w.Body)
		}
		check(t, ask(h, method("OPTIONS")).Header().Get("RateLimit-Policy") == "", "no rule is told of")
	})
}

func TestFields(t *testing.T) {
	names := []string{"Ratelimit-Policy", "Ratelimit", "X-Ratelimit-Limit", "X-Ratelimit-Remaining",
		"X-Ratelimit-Reset"}
	for set, want := range map[httplimit.FieldSet]string{
		httplimit.FieldsNone:                           "    ",
		httplimit.FieldsDraft:                          `"default";q=10;w=10 "default";r=0;t=5   `,
		httplimit.FieldsLegacy:                         "  10 0 946684805",
		httplimit.FieldsDraft | httplimit.FieldsLegacy: `"default";q=10;w=10 "default";r=0;t=5 10 0 946684805`,
	} {
		synctest.Test(t, func(t *testing.T) { // the time is that of 946684800
			cost := httplimit.Cost(func(*http.Request) int64 { return 5 })
			h := httplimit.Handler(limiterOf(t, hybrid.PerSecond(1).WithBurst(10)), httplimit.All, cost,
				httplimit.Fields(set))(&served{})
			w := ask(h)
			var got []string
			for range 2 {
				w = ask(h)
			}
			for _, name := range names {
				got = append(got, strings.Join(w.Header()[name], "|"))
			}
			check(t, strings.Join(got, " ") == want, "%d: %q\nwant %q", set, strings.Join(got, " "), want)
			check(t, w.Code == 429 && w.Header().Get("Retry-After") == "5", "%d %v", w.Code, w.Header())
		})
	}
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
		return httplimit.Handler(newLimiter(t, cfg), httplimit.All)
	}
	h := named("outer")(named("inner")(strips))
	for range 2 { // the second finds the cached values as they were
		w := ask(h)
		policies := items(t, w.Header(), "RateLimit-Policy")
		check(t, fmt.Sprint(policies) == "[{outer map[q:9 w:3600]} {inner map[q:9 w:3600]} {mine map[q:1]}]",
			"%v", policies)
		check(t, w.Header().Get("RateLimit") == "", "%v", w.Header())
	}
	// What somebody else has set, and may share, is added to in a copy.
	shared := []string{`"other";q=1`, "kept"}
	w := httptest.NewRecorder()
	w.Header()["Ratelimit-Policy"] = shared[:1]
	named("third")(&quiet{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	check(t, len(items(t, w.Header(), "RateLimit-Policy")) == 2 && shared[1] == "kept", "%v, %q",
		w.Header(), shared)
}

// What the server's ResponseWriter can do, the handler's can: it is the same one.
func TestTheResponseWriterIsTheServers(t *testing.T) {
	l := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerSecond(1000)}, CallTimeout: realTime})
	h := httplimit.Handler(l, httplimit.ClientIP())
	serve := func(t *testing.T, http2 bool, next http.HandlerFunc) *httptest.Server {
		s := httptest.NewUnstartedServer(h(next))
		s.EnableHTTP2 = http2
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("a stream of events, HTTP/2 %t", http2), func(t *testing.T) {
			more := make(chan struct{})
			s := serve(t, http2, func(w http.ResponseWriter, r *http.Request) {
				check(t, r.ProtoMajor == map[bool]int{false: 1, true: 2}[http2], "%s", r.Proto)
				noErr(t, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
				for range 3 {
					_, _ = io.WriteString(w, "data: tick\n\n")
					w.(http.Flusher).Flush()
					<-more
				}
			})
			answer, err := s.Client().Get(s.URL)
			noErr(t, err)
			defer answer.Body.Close()
			check(t, len(items(t, answer.Header, "RateLimit")) == 1, "%v", answer.Header)
			lines := bufio.NewScanner(answer.Body)
			for range 3 { // each comes before the next one is sent
				must(t, lines.Scan() && lines.Text() == "data: tick" && lines.Scan(), "%q %v", lines.Text(), lines.Err())
				more <- struct{}{}
			}
		})
	}
	t.Run("a connection that is taken over", func(t *testing.T) {
		s := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			noErr(t, err)
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello\n")
			_ = rw.Flush()
			_ = conn.Close()
		})
		r, _ := http.NewRequest("GET", s.URL, nil)
		r.Header.Set("Upgrade", "x")
		r.Header.Set("Connection", "Upgrade")
		answer, err := s.Client().Do(r)
		noErr(t, err)
		defer answer.Body.Close()
		line, _ := bufio.NewReader(answer.Body).ReadString('\n')
		check(t, answer.StatusCode == 101 && line == "hello\n", "%d %q", answer.StatusCode, line)
	})
	t.Run("a panic", func(t *testing.T) {
		defer func() { check(t, recover() == http.ErrAbortHandler, "the panic is not the handler's") }()
		ask(h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })),
			from("192.0.2.1"))
	})
	t.Run("the same", func(t *testing.T) {
		own := &struct{ *httptest.ResponseRecorder }{httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "/", nil)
		h(http.HandlerFunc(func(w http.ResponseWriter, got *http.Request) {
			check(t, w == http.ResponseWriter(own) && got == r, "%T", w)
		})).ServeHTTP(own, r)
	})
}

// Many goroutines, many keys, many sets of limits: more than are kept ready. For the race detector.
func TestHandlersAreShared(t *testing.T) {
	limit := func(key string) hybrid.Limit { return hybrid.PerHour(int64(1000 + len(key)%300)) }
	l := newLimiter(t, hybrid.Config{
		LimitsFor: func(key string) []hybrid.Limit { return []hybrid.Limit{limit(key)} }, CallTimeout: realTime,
	})
	h := httplimit.Handler(l, httplimit.Header("X-User"),
		httplimit.Fields(httplimit.FieldsDraft|httplimit.FieldsLegacy))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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

// A mistake in the program is told when it starts.
func TestWhatCannotBeIsRefusedAtOnce(t *testing.T) {
	l := limiterOf(t, hybrid.PerHour(1))
	for name, f := range map[string]func(){
		"no limiter":   func() { httplimit.Handler(nil, httplimit.All) },
		"no key":       func() { httplimit.Handler(l, nil) },
		"Also without": func() { httplimit.Handler(l, httplimit.All, httplimit.Also(nil, httplimit.All)) },
		"17 limits": func() {
			httplimit.Handler(l, httplimit.All, slices.Repeat([]httplimit.Option{httplimit.Also(l,
				httplimit.All)}, 16)...)
		},
		"Select of nothing":   func() { httplimit.Select(nil) },
		"RoundTripper of nil": func() { httplimit.RoundTripper(nil, httplimit.All, nil) },
		"a status":            func() { httplimit.Handler(l, httplimit.All, httplimit.Status(99)) },
		"a prefix": func() {
			httplimit.ClientIP(prefixes("10.0.0.0/8")[0].Masked(),
				prefixes("::/0")[0], zero)
		},
		"a field":      func() { httplimit.ClientAddress{Field: 3}.Key() },
		"bits of IPv6": func() { httplimit.ClientAddress{IPv6Bits: 129}.Key() },
		"bits of IPv4": func() { httplimit.ClientAddress{IPv4Bits: -1}.Key() },
		"no parts":     func() { httplimit.JoinOf() },
	} {
		func() {
			defer func() { check(t, recover() != nil, "%s: no panic", name) }()
			f()
		}()
	}
}
