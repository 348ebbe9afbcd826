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

// routers maps names to routers that serve a user's orders behind limit. Each router sets the pattern and the
// path values of a request before limit runs, so httplimit.Pattern and httplimit.Path work.
var routers = map[string]func(limit middleware) http.Handler{
	"http": func(limit middleware) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /users/{user}/orders", limit(http.HandlerFunc(orders)))
		return mux
	},
	// With runs the limiter after chi has found the route, as does Use in a Route or a Group. With Use on the
	// whole router, the limiter would run earlier, and httplimit.Pattern would return an error.
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

// forGin adapts limit to gin, which has no adapter of its own. forGin stops gin's handlers after a denial.
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

func orders(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]string{"user": r.PathValue("user"), "path": r.URL.Path})
}
