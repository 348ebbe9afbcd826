package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// protocols maps names to clients for a server.
var protocols = map[string]func(*httptest.Server) *http.Client{
	"HTTP/1.1": func(s *httptest.Server) *http.Client {
		s.Start()
		return s.Client()
	},
	"HTTP/2 over TLS": func(s *httptest.Server) *http.Client {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s.Client()
	},
	"HTTP/2 without TLS": func(s *httptest.Server) *http.Client {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		return &http.Client{Transport: &http.Transport{Protocols: s.Config.Protocols}}
	},
}

// middlewares maps names to middlewares that limit each user on each route.
var middlewares = map[string]func(t *testing.T, limit hybrid.Limit) middleware{
	"httplimit": func(t *testing.T, limit hybrid.Limit) middleware {
		// A machine that stalls denies no request.
		l, err := hybrid.New(memory.New(nil),
			hybrid.Config{Name: "user", Limits: []hybrid.Limit{limit}, CallTimeout: 30 * time.Second})
		noErr(t, err)
		t.Cleanup(func() { l.Close() })
		return httplimit.Handler(l, httplimit.JoinOf(httplimit.Path("user"), httplimit.Route))
	},
	"rules": func(t *testing.T, limit hybrid.Limit) middleware {
		r, err := rules.New(rules.Table{
			Rules: map[string]rules.Rule{
				"user": {Key: []string{"path:user", "route"}, Limits: []hybrid.Limit{limit}},
			},
			Routes: map[string]rules.Route{
				"/users/{user}/orders":   {Rules: []string{"user"}},
				"/users/{user}/invoices": {Rules: []string{"user"}},
			},
		}, rules.Config{Store: memory.New(nil), Base: hybrid.Config{CallTimeout: 30 * time.Second}})
		noErr(t, err)
		t.Cleanup(func() { r.Close() })
		return r.Handler
	},
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// everywhere runs a test for each router, protocol and middleware. The client is that of a server
// at base.
func everywhere(t *testing.T, limit hybrid.Limit, test func(t *testing.T, c *http.Client, base string)) {
	for router, with := range routers {
		for protocol, serve := range protocols {
			for name, m := range middlewares {
				t.Run(router+"/"+protocol+"/"+name, func(t *testing.T) {
					t.Parallel()
					s := httptest.NewUnstartedServer(with(m(t, limit)))
					t.Cleanup(s.Close)
					c := serve(s)
					test(t, c, s.URL)
					t.Cleanup(c.CloseIdleConnections)
				})
			}
		}
	}
}

// get returns an answer and its body.
func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	answer, err := c.Get(url)
	noErr(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	noErr(t, err)
	return answer, string(body)
}

// TestEveryRouterIsLimitedAlike: limited users, limited routes and the answers are the same.
func TestEveryRouterIsLimitedAlike(t *testing.T) {
	everywhere(t, hybrid.PerHour(2), func(t *testing.T, c *http.Client, base string) {
		from := time.Now()
		for _, request := range []struct {
			path   string
			status int
			left   string // RateLimit's r
		}{
			{"/users/ann/orders", 200, "r=1"},
			{"/users/ann/orders", 200, "r=0"},
			{"/users/ann/orders", 429, "r=0"},
			{"/users/ann/orders", 429, "r=0"},
			{"/users/bob/orders", 200, "r=1"},   // the user is part of the key
			{"/users/ann/invoices", 200, "r=1"}, // and so is the route
			{"/users/ann/nothing", 404, ""},
			{"/", 200, ""},
		} {
			answer, body := get(t, c, base+request.path)
			policy, limit := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
			limited := request.left != ""
			if answer.StatusCode != request.status || (policy == `"user";q=2;w=3600`) != limited ||
				!strings.Contains(limit, request.left) || (limit != "") != limited {
				t.Errorf("GET %s: %d, %q, %q; want %d and %s", request.path, answer.StatusCode, policy,
					limit, request.status, request.left)
			}
			if request.status == 429 {
				problem(t, answer, body, from)
			} else if answer.Header.Get("Retry-After") != "" {
				t.Errorf("GET %s: an answer without a denial has Retry-After", request.path)
			}
			if user := strings.Split(request.path, "/"); request.status == 200 && limited &&
				!strings.Contains(body, `"user":"`+user[2]+`"`) {
				t.Errorf("GET %s: the handler has not answered: %s", request.path, body)
			}
		}
	})
}

// problem checks the answer to a denied request, and that no other middleware has added to it. The
// first of two requests an hour came after from.
func problem(t *testing.T, answer *http.Response, body string, from time.Time) {
	t.Helper()
	var p struct {
		Type, Title string
		Status      int
		Violated    []string `json:"violated-policies"`
	}
	err := json.Unmarshal([]byte(body), &p)
	if err != nil || p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" ||
		p.Title == "" ||
		p.Status != 429 && p.Status != 0 || len(p.Violated) != 1 || p.Violated[0] != "user" {
		t.Errorf("%s: %+v, %v", body, p, err)
	}
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || float64(seconds) < 1799-time.Since(from).Seconds() || seconds > 1801 {
		t.Errorf("Retry-After: %q", answer.Header.Get("Retry-After"))
	}
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %s", got)
	}
}

// TestWhoWaitsIsServed: a client that retries after Retry-After is served.
func TestWhoWaitsIsServed(t *testing.T) {
	for router, with := range routers {
		for name, m := range middlewares {
			t.Run(router+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := with(m(t, hybrid.PerSecond(1)))
					ask := func() *httptest.ResponseRecorder {
						w := httptest.NewRecorder()
						h.ServeHTTP(w, httptest.NewRequest("GET", "/users/ann/orders", nil))
						return w
					}
					first, denied := ask(), ask()
					after := denied.Header().Get("Retry-After")
					if first.Code != 200 || denied.Code != 429 || after != "1" {
						t.Fatalf("%d and %d, Retry-After %q", first.Code, denied.Code, after)
					}
					time.Sleep(time.Second)
					if again := ask(); again.Code != 200 {
						t.Errorf("%d: %s", again.Code, again.Body)
					}
				})
			})
		}
	}
}

// TestTheProgramServesAndEnds: as it is started, with its file of rules.
func TestTheProgramServesAndEnds(t *testing.T) {
	for router := range routers {
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			noErr(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- serve(ctx, listener, router, "rules.yaml", "") }()
			testkit.EventuallyNil(t, func() error { // a call that takes too long has no policy
				answer, err := http.Get("http://" + listener.Addr().String() + "/users/ann/orders")
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				policy := answer.Header.Get("RateLimit-Policy")
				if policy != `"everybody";q=1000;w=1, "user";q=10;w=5` {
					return fmt.Errorf("%d, RateLimit-Policy: %s", answer.StatusCode, policy)
				}
				return nil
			})
			stop()
			noErr(t, <-ended)
		})
	}
	if err := serve(t.Context(), nil, "none", "rules.yaml", ""); err == nil {
		t.Error("a router that is not there")
	}
}
