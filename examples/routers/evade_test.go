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
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// searches maps names to routers with a costly handler below /search/, another one for each path of
// two names below /api, and a free one.
var searches = map[string]func(served func(name string) http.HandlerFunc) http.Handler{
	"net/http": func(served func(string) http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/search/{rest...}", served("search"))
		mux.HandleFunc("/api/{a}/{b}", served("api"))
		mux.HandleFunc("/healthz", served("healthz"))
		return mux
	},
	"chi": func(served func(string) http.HandlerFunc) http.Handler {
		r := chi.NewRouter()
		r.HandleFunc("/search/*", served("search"))
		r.HandleFunc("/api/{a}/{b}", served("api"))
		r.HandleFunc("/healthz", served("healthz"))
		return r
	},
	"gin": func(served func(string) http.HandlerFunc) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.Any("/search/*rest", gin.WrapF(served("search")))
		r.Any("/api/:a/:b", gin.WrapF(served("api")))
		r.Any("/healthz", gin.WrapF(served("healthz")))
		return r
	},
	"echo": func(served func(string) http.HandlerFunc) http.Handler {
		r := echo.New()
		r.Any("/search/*", echo.WrapHandler(served("search")))
		r.Any("/api/:a/:b", echo.WrapHandler(served("api")))
		r.Any("/healthz", echo.WrapHandler(served("healthz")))
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
	testkit.NoErr(t, err)
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
				testkit.NoErr(t, err)
				defer r.Shutdown(context.Background())
				h := r.Handler(with(func(name string) http.HandlerFunc {
					return func(http.ResponseWriter, *http.Request) { got[name]++ }
				}))
				for range 20 {
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
				}
				testkit.Check(t, got["search"] <= 3 && got["api"] <= 3, "%v were served, at most 3 an hour may be", got)
			})
		}
	}
}
