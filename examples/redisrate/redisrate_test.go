package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// open returns one more server, which has a client and a limiter of its own.
func open(t *testing.T, url string) http.Handler {
	options, err := redis.ParseURL(url)
	testkit.NoErr(t, err)
	limiter, err := hybrid.Redis(redis.NewClient(options), "projects", hybrid.Blocked)
	testkit.NoErr(t, err)
	t.Cleanup(func() { limiter.Close() })
	testkit.NoErr(t, limiter.Ping(t.Context()))
	return handler(limiter, hybrid.PerHour)
}

// ask returns the answer for a plan of 10: status, tokens left, body and whether it has a Retry-After.
func ask(server http.Handler, method, path string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	r.Header.Set("X-Plan-Limit", "10")
	server.ServeHTTP(w, r)
	return fmt.Sprintln(w.Code, w.Header().Get("X-RateLimit-Remaining"), strings.TrimSpace(w.Body.String()),
		w.Header().Get("Retry-After") != "")
}

// TestServersShareLimits: a project has one burst for two servers together, and another after a reset.
func TestServersShareLimits(t *testing.T) {
	url, id := testnet.Redis(t), "/projects/x"
	a, b := open(t, url), open(t, url)
	testkit.EventuallyNil(t, func() error { // A slow call, or a reset just before, may deny a request.
		id += "x"
		admitted := 0
		for range 10 {
			admitted += strings.Count(ask(a, "POST", id)+ask(b, "POST", id), "200")
		}
		id += "x"
		got := fmt.Sprintln(admitted) + ask(a, "POST", id+"/batch/4") + ask(b, "GET", id+"/export/99") +
			ask(a, "POST", id) + ask(b, "POST", id) + ask(a, "DELETE", "/admin"+id+"/use") +
			ask(a, "POST", id+"/batch/10") + ask(b, "POST", id)
		want := "10\n" + "200 6 4 false\n" + "200 0 6 false\n" +
			"429 0  true\n" + "429 0  true\n" + "200   false\n" +
			"200 0 10 false\n" + "429 0  true\n"
		if got != want {
			return fmt.Errorf("the answers are\n%s, want\n%s", got, want)
		}
		return nil
	})
}
