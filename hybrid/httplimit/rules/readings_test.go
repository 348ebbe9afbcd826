package rules

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// A request is limited by the rules of all routes that a router may choose, once for each rule and
// key. examples/routers tests that no spelling evades a limit with real routers.
func TestAPathThatRoutersReadDifferently(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`
rules:
  all: {key: all, limits: [100/s]}
  few: {key: all, limits: [5/s], priorities: [0.2]}
  route: {key: route, limits: [100/s]}
  user: {key: "path:user", limits: [100/s]}
routes:
  "/": {rules: [all, route]}
  "/healthz": {rules: []}
  "/search/{rest...}": {rules: [all, few], cost: 3}
  "/bulk/{rest...}": {rules: [all], cost: 50, class: 0}
  "/low/{rest...}": {rules: [few], class: 1}
  "/users/{user}/files": {rules: [all, user]}
`)
		for path, want := range map[string]string{
			"/search/x":            "3 all:0 few:0",
			"/search/../healthz":   "3 all:0 few:0",
			"/search/..%2Fhealthz": "3 all:0 few:0",
			"/search%2Fx":          "3 all:0 route:0 few:0",
			"/healthz":             "0",
			"/healthz/":            "1 all:0 route:0",
			"/healthz/../search/x": "3 all:0 few:0 route:0",
			"//healthz":            "1 all:0 route:0",
			"/search/../bulk/x":    "5 all:0 few:0",
			"/low/../search/x":     "3 all:0 few:1",
			"/low/../nothing":      "1 all:0 route:0 few:1",
			"/users/a%20b/files":   "1 all:0 user:0",
			"/users/a%2Fb/files":   "1 all:0 user:0 route:0",
			"/users/../files":      "1 all:0 route:0 user:0",
			"/search/.hidden":      "3 all:0 few:0",
		} {
			s := r.current.Load()
			testkit.Must(t, s.use(), "the set has ended")
			selected, err := s.selectRules(httptest.NewRequest(http.MethodGet, path, nil))
			got := fmt.Sprint(selected.Cost)
			for _, rule := range selected.Rules {
				got += fmt.Sprintf(" %s:%d", rule.Name, rule.Class)
			}
			testkit.Check(t, err == nil && got == want, "%s is limited by %s, %v, want %s", path, got, err, want)
			if selected.Done != nil {
				selected.Done()
			}
		}
		testkit.Check(t, r.current.Load().users.Load() == 1, "a request still uses the rules")
	})
}

// A CONNECT without a path counts as "/", as in other routers than http.ServeMux.
func TestNoPathIsTheRoot(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`{rules: {all: {key: all, limits: [1/h]}}, routes: {"/": {rules: [all]}}}`)
		h := r.Handler(http.NotFoundHandler())
		for _, want := range []int{404, 429} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodConnect, "example.com:443", nil))
			testkit.Check(t, w.Code == want, "%d, want %d", w.Code, want)
		}
	})
}

// A KeyFunc that panics releases the table, or its Limiters would never end.
func TestAKeyFuncThatPanics(t *testing.T) {
	bubble(t, func(t *world) {
		r := t.with(`{rules: {a: {key: own, limits: [1/h]}}, routes: {"/": {rules: [a]}}}`, func(c *Config) {
			c.Keys = map[string]httplimit.KeyFunc{"own": func(*http.Request) (string, error) { panic("own") }}
		})
		for _, path := range []string{"/a", "/a//b"} {
			func() {
				defer func() { testkit.Check(t, recover() == "own", "%s: no panic", path) }()
				r.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			}()
			n := r.current.Load().users.Load()
			testkit.Check(t, n == 1, "%s: %d users, want 1", path, n)
		}
	})
}
