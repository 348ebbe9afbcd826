package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func TestLoadGoesToNobodyElse(t *testing.T) {
	for address, may := range map[string]bool{
		"127.0.0.1:8080": true, "[::1]:80": true, "10.1.2.3:80": true,
		"192.0.2.1:80": false, "[2001:db8::1]:80": false,
	} {
		err := own("tcp", address, nil)
		testkit.Check(t, (err == nil) == may, "%s: %v", address, err)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if got.Add(1) == 20 {
			end()
		}
	}))
	defer server.Close()
	testkit.NoErr(t, runLoad(ctx, []string{"-for=10m", server.URL}))
	testkit.Check(t, got.Load() >= 20, "%d requests", got.Load())
}

// inProcess answers requests without a network, so that a test may have its own time.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestAPoliteCallerComesBackWhenItIsTold(t *testing.T) {
	for polite, want := range map[bool]int64{true: 4, false: 100} {
		synctest.Test(t, func(t *testing.T) {
			var got atomic.Int64
			busy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				got.Add(1)
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusTooManyRequests)
			})
			l := &load{client: &http.Client{Transport: inProcess{busy}}, answers: map[int]int{}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second-time.Millisecond)
			defer cancel()
			l.drive(ctx, caller{method: "GET", path: "/", pause: 100 * time.Millisecond, polite: polite}, "http://api")
			testkit.Check(t, got.Load() == want, "polite %v: %d requests in 10 s, not %d", polite, got.Load(), want)
		})
	}
}
