package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// searches maps names to routers with a costly handler below /search/, another one for each path of
// two names below /api, and a free one.
var searches = map[string]func(served func(name string)) http.Handler{
	"net/http": func(served func(string)) http.Handler {
		mux := http.NewServeMux()
		for pattern, name := range map[string]string{"/search/{rest...}": "search", "/api/{a}/{b}": "api",
			"/healthz": "healthz"} {
			mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { served(name) })
		}
		return mux
	},
	"chi": func(served func(string)) http.Handler {
		r := chi.NewRouter()
		for pattern, name := range map[string]string{"/search/*": "search", "/api/{a}/{b}": "api",
			"/healthz": "healthz"} {
			r.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { served(name) })
		}
		return r
	},
	"gin": func(served func(string)) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		for pattern, name := range map[string]string{"/search/*rest": "search", "/api/:a/:b": "api",
			"/healthz": "healthz"} {
			r.Any(pattern, func(*gin.Context) { served(name) })
		}
		return r
	},
	"echo": func(served func(string)) http.Handler {
		r := echo.New()
		for pattern, name := range map[string]string{"/search/*": "search", "/api/:a/:b": "api",
			"/healthz": "healthz"} {
			r.Any(pattern, func(*echo.Context) error { served(name); return nil })
		}
		return r
	},
}

// The rules of a route limit every spelling of its paths that the router accepts.
func TestNoSpellingOfAPathEvadesALimit(t *testing.T) {
	table, err := rules.Parse("table", []byte(`
rules:
  rare: {key: all, limits: [3/h]}
  free: {key: all, limits: [1000000/s]}
routes:
  "/search/{rest...}": {rules: [rare]}
  "/api/{a}/{b}": {rules: [rare]}
  "/healthz": {rules: []}
  "/": {rules: [free]}
`))
	noErr(t, err)
	for router, with := range searches {
		for _, path := range []string{
			"/search/x", "/search/../healthz", "/search/./../healthz", "/search//../healthz", "/search/%2e%2e/healthz",
			"/search/..%2fhealthz", "/search/.%2e/healthz", "/search%2Fx", "/search%2f../healthz", "//search/x",
			"/./search/x", "/search//", "/%73earch/x", "/api/x/y", "/api/x%2Fy", "/api/../y", "/api/x/..",
			"/api%2Fx/y", "/api//y", "/api/./healthz", "/api/../healthz", "/healthz/../api/x/y",
			"/healthz%2f..%2fapi/x/y", "/healthz/..", "/x/../search/y",
		} {
			t.Run(router+path, func(t *testing.T) {
				got := map[string]int{}
				r, err := rules.New(table, rules.Config{Store: memory.New(nil), Base: hybrid.Config{CallTimeout: 30e9}})
				noErr(t, err)
				defer r.Shutdown(context.Background())
				h := r.Handler(with(func(name string) { got[name]++ }))
				for range 20 {
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
				}
				if got["search"] > 3 || got["api"] > 3 {
					t.Errorf("%v were served, must be at most 3 in an hour", got)
				}
			})
		}
	}
}
