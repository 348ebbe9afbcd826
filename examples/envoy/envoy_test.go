package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// TestRequestsAreLimitedAsByEnvoy: each minute of the clock admits as many requests as example.yaml says.
func TestRequestsAreLimitedAsByEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, err := rules.Open("rules.yaml", rules.Config{Store: memory.New(nil)})
		testkit.NoErr(t, err)
		defer func() { testkit.NoErr(t, limits.Close()) }()
		handler := limits.Handler(mock)
		for minute := range 3 {
			for _, c := range []struct {
				request string // a path and the fields of its header
				want    int    // admitted of 10 requests, sent within the same second
			}{
				{"/test", 1}, {"/test/a", 0}, {"/testing", 10}, {"/other", 10},
				{"/header foo:a", 2}, {"/header foo:b", 2},
				{"/twoheader foo:a bar:x baz:not-so-shady", 3},
				{"/twoheader foo:a bar:y baz:not-so-shady", 0},
				{"/twoheader foo:b bar:x baz:not-so-shady", 3},
				{"/twoheader foo:a bar:bkthomps baz:shady", 1},
				{"/twoheader foo:c bar:banned baz:shady", 0}, {"/twoheader foo:c bar:z baz:other", 1},
				{"/twoheader foo:d bar:x baz:shady", 3}, {"/twoheader foo:d bar:y baz:shady", 3},
				{"/fourheader foo:e bar:x destination_cluster:mock", 1},
				{"/fourheader foo:f bar:x destination_cluster:fake", 2},
				{"/fourheader foo:g bar:x destination_cluster:none", 3},
				{"/fiveheader foo:h bar:x destination_cluster:none category:account", 3},
				{"/fiveheader foo:i bar:x destination_cluster:none category:account", 1}, // the 4th
				{"/fiveheader foo:j bar:x destination_cluster:none category:other", 3},
				{"/unspec unspec:a", 2}, {"/unspec unspec:b", 2},
			} {
				parts := strings.Fields(c.request)
				got := 0
				for range 10 {
					r, w := httptest.NewRequest(http.MethodGet, parts[0], nil), httptest.NewRecorder()
					for _, field := range parts[1:] {
						name, value, _ := strings.Cut(field, ":")
						r.Header.Set(name, value)
					}
					if handler.ServeHTTP(w, r); w.Code == http.StatusOK {
						got++
					}
				}
				testkit.Check(t, got == c.want, "minute %d: %d of 10 are admitted, want %d: %s",
					minute, got, c.want, c.request)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		}
		shadowed := limits.Limiters()["foo-baz-shady"].Stats().Shadowed
		testkit.Check(t, shadowed >= 9, "%d admitted requests were shadowed, want 3 in each minute", shadowed)
	})
}
