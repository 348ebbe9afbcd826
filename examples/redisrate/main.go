// Command redisrate is an HTTP service that was moved from redis_rate to yuzhi. A gateway sets the field
// X-Plan-Limit to the limit of the customer's plan, and the service passes this limit to KeyWithLimits. Take
// replaces Allow and AllowN of redis_rate. TakeUpTo replaces AllowAtMost.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

func main() {
	url := flag.String("redis", "redis://localhost:6379", "URL of Redis")
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	options, err := redis.ParseURL(*url)
	if err != nil {
		log.Fatal(err)
	}
	options.DialTimeout, options.ReadTimeout = 500*time.Millisecond, 500*time.Millisecond
	client := redis.NewClient(options)
	limiter, err := hybrid.Redis(client, "projects", hybrid.Blocked) // KeyWithLimits replaces Blocked
	if err != nil {
		log.Fatal(err)
	}
	log.Print("ping: ", limiter.Ping(ctx)) // Without a ping, the first request may be denied.
	server := http.Server{Addr: *addr, Handler: handler(limiter, hybrid.PerMinute)}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(end), limiter.Shutdown(end), client.Close())
}

// handler returns the service. per returns the limit of a plan for the number in X-Plan-Limit.
func handler(limiter *hybrid.Limiter, per func(int64) hybrid.Limit) http.Handler {
	mux, name := http.NewServeMux(), func(r *http.Request) string { return "project:" + r.PathValue("id") }
	limited := func(pattern string, take func(*hybrid.Key, context.Context, int64) (hybrid.Result, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			plan, _ := strconv.ParseInt(r.Header.Get("X-Plan-Limit"), 10, 64) // Take refuses a plan of 0.
			n, _ := strconv.ParseInt(cmp.Or(r.PathValue("n"), "1"), 10, 64)   // Take admits an n of 0.
			res, err := take(limiter.KeyWithLimits(name(r), per(plan)), r.Context(), n)
			switch {
			case n < 1 || err != nil: // Take returns an error for an n above the burst.
				http.Error(w, fmt.Sprint("n or the plan is not valid: ", err), http.StatusBadRequest)
			case !res.OK && res.Source == hybrid.SourceFallback:
				http.Error(w, "Redis does not answer", http.StatusServiceUnavailable)
			case !res.OK:
				w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(res.Remaining))
				w.Header().Set("Retry-After", fmt.Sprint(int64(math.Ceil(res.RetryAfter.Seconds()))))
				w.WriteHeader(http.StatusTooManyRequests)
			default:
				w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(res.Remaining))
				fmt.Fprintln(w, res.Taken)
			}
		})
	}
	limited("POST /projects/{id}", (*hybrid.Key).Take)
	limited("POST /projects/{id}/batch/{n}", (*hybrid.Key).Take)
	limited("GET /projects/{id}/export/{n}", (*hybrid.Key).TakeUpTo)
	mux.HandleFunc("DELETE /admin/projects/{id}/use", func(w http.ResponseWriter, r *http.Request) {
		if err := limiter.Reset(r.Context(), name(r)); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}
