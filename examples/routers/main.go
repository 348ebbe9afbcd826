// Command routers serves one API by one of four routers, net/http, chi, gin and echo, with the same
// middleware. The limits are in rules.yaml, which may be changed while the command runs. Run routers in the
// folder examples, with a Redis:
//
//	go run ./routers -router chi                              # or http, gin, echo
//	curl -i localhost:8080/users/ann/orders
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func main() {
	router := flag.String("router", "http", "http, chi, gin or echo")
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	file := flag.String("rules", "routers/rules.yaml", "file with the limits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "routers-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	with, ok := routers[*router]
	if !ok {
		log.Fatal("no such router: ", *router)
	}
	limits := must(rules.Open(*file, rules.Config{Store: buckets}))
	handler := with(limits.Handler)
	server := &http.Server{Addr: "localhost:8080", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(ending), ", tokens given back: ", limits.Shutdown(ending))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
