package main

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"
)

// middleware is the result type of httplimit.Middleware and of rules.Rules.Handler.
type middleware = func(http.Handler) http.Handler

// routers maps names to routers that serve a user's orders behind limit. In each router, the request has the
// route's pattern and path values, so httplimit.Pattern and httplimit.Path work without changes.
var routers = map[string]func(limit middleware) http.Handler{
	"http": func(limit middleware) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /users/{user}/orders", limit(http.HandlerFunc(orders)))
		return mux
	},
	// With, or Use within a Route or a Group, runs the limiter after chi has found the route. With Use at the
	// top, the limiter runs before that, and httplimit.Pattern would find no pattern.
	"chi": func(limit middleware) http.Handler {
		r := chi.NewRouter()
		r.With(limit).Get("/users/{user}/orders", orders)
		return r
	},
	"gin": func(limit middleware) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		r := gin.New()
		r.GET("/users/:user/orders", forGin(limit), gin.WrapF(orders))
		return r
	},
	"echo": func(limit middleware) http.Handler {
		e := echo.New()
		e.GET("/users/:user/orders", echo.WrapHandler(http.HandlerFunc(orders)), echo.WrapMiddleware(limit))
		return e
	},
}

// forGin is the adapter that gin lacks. forGin stops the chain after a denial, which limit has answered.
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

// orders represents a costly handler.
func orders(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]string{"user": r.PathValue("user"), "path": r.URL.Path})
}
