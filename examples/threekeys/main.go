// Command threekeys is an HTTP API that limits a request by three keys at once: all requests together, the
// customer, and the customer on the route. A request takes its tokens of all three keys, or of none. Without
// an API key, the address of the client replaces the customer.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

var customers = map[string]string{"secret-of-ann": "ann", "secret-of-big": "big"} // customers by API key

var times = map[string]int64{"0:big": 2} // factors of limits by key; FirstOf puts "0:" before a customer

// customer returns "" for a request without an API key. FirstOf then runs the KeyFunc of the address.
func customer(r *http.Request) (string, error) { return customers[r.Header.Get("X-API-Key")], nil }

// open returns the API, and its limiters by name.
func open(store hybrid.Store) (http.Handler, map[string]*hybrid.Limiter) {
	limiters, mux := map[string]*hybrid.Limiter{}, http.NewServeMux()
	for name, n := range map[string]int64{"all": 45, "customer": 10, "orders": 8, "report": 3} { // per hour
		limit := func(_ context.Context, k string) ([]hybrid.Limit, error) {
			return []hybrid.Limit{hybrid.PerHour(n * max(1, times[k]))}, nil
		}
		limiters[name] = must(hybrid.New(store, hybrid.Config{Name: name, LimitsFor: limit}))
	}
	key := httplimit.FirstOf(customer, httplimit.ClientIP(netip.MustParsePrefix("127.0.0.1/32"))) // the proxy
	for _, route := range []string{"orders", "report"} {
		limit := httplimit.Middleware(limiters["all"], httplimit.OneKey,
			httplimit.Also(limiters["customer"], key), httplimit.Also(limiters[route], key))
		serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(route + "\n")) }
		mux.Handle("GET /"+route, limit(http.HandlerFunc(serve)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("X-API-Key"); key != "" && customers[key] == "" {
			http.Error(w, "unknown API key", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}), limiters
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	url := flag.String("redis", "redis://localhost:6379", "URL of Redis")
	addr := flag.String("addr", "localhost:8080", "address to serve")
	flag.Parse()
	options := must(redis.ParseURL(*url))
	options.DialTimeout, options.ReadTimeout = 500*time.Millisecond, 500*time.Millisecond
	handler, limiters := open(must(redisbucket.New(redis.NewClient(options), redisbucket.Config{})))
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	listener := must(net.Listen("tcp", *addr))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go func() { log.Print(server.Serve(listener)); stop() }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ending)
	for _, limiter := range limiters {
		err = errors.Join(err, limiter.Shutdown(ending))
	}
	log.Print("shutdown: ", err)
}
