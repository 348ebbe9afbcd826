package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// middlewares maps names to middlewares that limit each user on each route.
var middlewares = map[string]func(t *testing.T, limit hybrid.Limit) middleware{
	"httplimit": func(t *testing.T, limit hybrid.Limit) middleware {
		// A machine that stalls denies no request.
		l, err := hybrid.New(memory.New(nil),
			hybrid.Config{Name: "user", Limits: []hybrid.Limit{limit}, CallTimeout: 30 * time.Second})
		testkit.NoErr(t, err)
		t.Cleanup(func() { l.Close() })
		return httplimit.Middleware(l, httplimit.Combine(httplimit.Path("user"), httplimit.Pattern))
	},
	"rules": func(t *testing.T, limit hybrid.Limit) middleware {
		r, err := rules.New(rules.Table{
			Rules: map[string]rules.Rule{
				"user": {Key: []string{"path:user", "route"}, Limits: []hybrid.Limit{limit}},
			},
			Routes: map[string]rules.Route{
				"/users/{user}/orders": {Rules: []string{"user"}},
			},
		}, rules.Config{Store: memory.New(nil), Base: hybrid.Config{CallTimeout: 30 * time.Second}})
		testkit.NoErr(t, err)
		t.Cleanup(func() { r.Close() })
		return r.Handler
	},
}

// TestEveryRouterIsLimitedAlike: limited users, limited routes and the answers are the same.
func TestEveryRouterIsLimitedAlike(t *testing.T) {
	for router, with := range routers {
		for name, m := range middlewares {
			t.Run(router+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := httptest.NewServer(with(m(t, hybrid.PerHour(2))))
				defer s.Close()
				for _, request := range []struct {
					path   string
					status int
					left   string // RateLimit's r
				}{
					{"/users/ann/orders", 200, "r=1"},
					{"/users/ann/orders", 200, "r=0"},
					{"/users/ann/orders", 429, "r=0"},
					{"/users/bob/orders", 200, "r=1"}, // the user is part of the key
					{"/users/ann/nothing", 404, ""},
				} {
					answer, err := s.Client().Get(s.URL + request.path)
					testkit.NoErr(t, err)
					text, err := io.ReadAll(answer.Body)
					testkit.NoErr(t, errors.Join(err, answer.Body.Close()))
					policy, limit := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
					limited := request.left != ""
					testkit.Check(t, answer.StatusCode == request.status && (policy == `"user";q=2;w=3600`) == limited &&
						(limit != "") == limited && strings.Contains(limit, request.left), "GET %s: %d, %q, %q; want %d and %s",
						request.path, answer.StatusCode, policy, limit, request.status, request.left)
					switch request.status {
					case 429: // no other middleware has added to the answer
						isProblem := json.Valid(text) && strings.Contains(string(text), `"violated-policies":["user"]`)
						testkit.Check(t, isProblem && answer.Header.Get("Content-Type") == "application/problem+json",
							"%v: %s", answer.Header, text)
					case 200:
						user := `"user":"` + strings.Split(request.path, "/")[2] + `"`
						testkit.Check(t, strings.Contains(string(text), user), "GET %s: the handler has not answered: %s",
							request.path, text)
					}
				}
			})
		}
	}
}

// TestRoutersShareTheRulesInRedis: with the file of the program, all routers on one Redis have one limit.
func TestRoutersShareTheRulesInRedis(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		admitted, from := 0, time.Now()
		for router, with := range routers {
			limits, err := rules.Open("rules.yaml", rules.Config{Store: open()})
			testkit.NoErr(t, err)
			handler := with(limits.Handler)
			for range 20 {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/users/ann/orders", nil))
				if w.Code != http.StatusOK {
					continue
				}
				admitted++
				policy := w.Header().Get("RateLimit-Policy")
				if policy != `"everybody";q=1000;w=1, "user";q=10;w=5` {
					return fmt.Errorf("%s: RateLimit-Policy: %s", router, policy)
				}
			}
			if err := limits.Shutdown(t.Context()); err != nil {
				return err
			}
		}
		most := 10 + 2*time.Since(from).Seconds()
		if admitted < 10 || float64(admitted) > most {
			return fmt.Errorf("%d are admitted, want 10 to %.1f", admitted, most)
		}
		return nil
	})
}
