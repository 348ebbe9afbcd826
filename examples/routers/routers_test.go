package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease"
)

// protocols are how a server is spoken to.
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

// middlewares limit a user on a route to so much.
var middlewares = map[string]func(t *testing.T, limit hybrid.Limit) middleware{
	"httplimit": func(t *testing.T, limit hybrid.Limit) middleware {
		// A machine that stalls denies nobody.
		l, err := hybrid.New(lease.NewMemoryStore(nil),
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
		}, rules.Config{Store: lease.NewMemoryStore(nil), Base: hybrid.Config{CallTimeout: 30 * time.Second}})
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

// get is an answer and its body.
func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	answer, err := c.Get(url)
	noErr(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	noErr(t, err)
	return answer, string(body)
}

// TestEveryRouterIsLimitedAlike: who is limited, on which route, and what the answers say.
func TestEveryRouterIsLimitedAlike(t *testing.T) {
	everywhere(t, hybrid.PerHour(2), func(t *testing.T, c *http.Client, base string) {
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
				problem(t, answer, body)
			} else if answer.Header.Get("Retry-After") != "" {
				t.Errorf("GET %s: an answer without a denial has Retry-After", request.path)
			}
			if user := strings.Split(request.path, "/"); request.status == 200 && limited && !strings.Contains(body, `"user":"`+user[2]+`"`) {
				t.Errorf("GET %s: the handler has not answered: %s", request.path, body)
			}
		}
	})
}

// problem checks the answer to a request that was denied, which nobody else has added to.
func problem(t *testing.T, answer *http.Response, body string) {
	t.Helper()
	var p struct {
		Type, Title string
		Status      int
		Violated    []string `json:"violated-policies"`
	}
	err := json.Unmarshal([]byte(body), &p)
	if err != nil || p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Title == "" ||
		p.Status != 429 && p.Status != 0 || len(p.Violated) != 1 || p.Violated[0] != "user" {
		t.Errorf("%s: %+v, %v", body, p, err)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err != nil || seconds < 1799 || seconds > 1801 {
		t.Errorf("Retry-After: %q", answer.Header.Get("Retry-After"))
	}
	if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %s", got)
	}
}

// TestWhoWaitsIsServed: a client that comes back when Retry-After says is served then.
func TestWhoWaitsIsServed(t *testing.T) {
	everywhere(t, hybrid.PerSecond(1), func(t *testing.T, c *http.Client, base string) {
		url := base + "/users/ann/orders"
		answer, _ := get(t, c, url)
		for range 100 { // as the machine may be slow
			if answer.StatusCode != 429 {
				answer, _ = get(t, c, url)
			}
		}
		if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "1" {
			t.Fatalf("%d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
		}
		time.Sleep(time.Second)
		if answer, body := get(t, c, url); answer.StatusCode != 200 {
			t.Errorf("%d: %s", answer.StatusCode, body)
		}
	})
}

// TestTheProgramServesAndEnds: as it is started, with its file of rules.
func TestTheProgramServesAndEnds(t *testing.T) {
	for router := range routers {
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			free := httptest.NewServer(nil)
			address := free.Listener.Addr().String()
			free.Close()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, address, router, "rules.yaml", "") }()
			url := "http://" + address + "/users/ann/orders"
			for range 1000 {
				if answer, err := http.Get(url); err == nil {
					answer.Body.Close()
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			answer, _ := get(t, http.DefaultClient, url)
			if policy := answer.Header.Get("RateLimit-Policy"); policy != `"everybody";q=1000;w=1, "user";q=10;w=5` {
				t.Errorf("%d, RateLimit-Policy: %s", answer.StatusCode, policy)
			}
			stop()
			noErr(t, <-ended)
		})
	}
	if err := run(t.Context(), "", "none", "rules.yaml", ""); err == nil {
		t.Error("a router that is not there")
	}
}
