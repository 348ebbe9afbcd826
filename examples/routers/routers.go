package main

import (
	_ "embed"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"
)

// middleware is the type of the result of httplimit.Handler, and of rules.Rules.Handler.
type middleware = func(http.Handler) http.Handler

// routers maps names to routers that serve a user's orders and invoices behind limit. Below each the
// request has the route's pattern and its path values, so httplimit.Route and httplimit.Path work as
// they are.
var routers = map[string]func(limit middleware) http.Handler{
	"http": withHTTP, "chi": withChi, "gin": withGin, "echo": withEcho,
}

func withHTTP(limit middleware) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /users/{user}/orders", limit(http.HandlerFunc(orders)))
	mux.Handle("GET /users/{user}/invoices", limit(http.HandlerFunc(orders)))
	return mux
}

// withChi uses With, or Use within a Route or a Group: where chi has found the route already. With
// Use at the top the limiter comes before that, and httplimit.Route would find no pattern.
func withChi(limit middleware) http.Handler {
	r := chi.NewRouter()
	r.With(limit).Get("/users/{user}/orders", orders)
	r.With(limit).Get("/users/{user}/invoices", orders)
	return r
}

func withGin(limit middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	users := r.Group("/users/:user", forGin(limit))
	users.GET("/orders", gin.WrapF(orders))
	users.GET("/invoices", gin.WrapF(orders))
	return r
}

// forGin is the adapter that gin lacks. It stops the chain after a denial, which has its answer
// already.
func forGin(limit middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
		admitted := false
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { admitted = true })
		limit(next).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

func withEcho(limit middleware) http.Handler {
	e := echo.New()
	handler, limited := echo.WrapHandler(http.HandlerFunc(orders)), echo.WrapMiddleware(limit)
	e.GET("/users/:user/orders", handler, limited)
	e.GET("/users/:user/invoices", handler, limited)
	return e
}

//go:embed page.html
var page []byte

// withPage serves the page in front of a router.
func withPage(router http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			router.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
}

// orders stands for a costly handler.
func orders(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"user": r.PathValue("user"), "path": r.URL.Path})
}
