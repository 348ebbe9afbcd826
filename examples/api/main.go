// Command api is an HTTP API with limits for each user, for each address and for all requests, which any
// number of replicas share. README.md describes how to run api with Redis, Prometheus and Grafana.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

var (
	redisURL    = flag.String("redis", "", "`URL` of the Redis with the limits; empty: limits of this process")
	listen      = flag.String("listen", "127.0.0.1:8080", "address for users")
	admin       = flag.String("admin", "127.0.0.1:8081", "address for operators: /healthz, /readyz and /metrics")
	limits      = flag.String("rules", "config/rules.yaml", "file with the limits, read again when it changes")
	callTimeout = flag.Duration("call-timeout", lease.DefaultCallTimeout, "time that a request waits for Redis")
	grace       = flag.Duration("grace", 10*time.Second, "time for a shutdown")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	buckets, err := open(*redisURL)
	if err != nil {
		return err
	}
	s, err := newService(buckets, *limits, *callTimeout)
	if err != nil {
		return err
	}
	users, err1 := net.Listen("tcp", *listen)
	operators, err2 := net.Listen("tcp", *admin)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return s.serve(ctx, users, operators, *grace)
}

// open returns the store in the Redis at url, or a store in this process if url is empty.
func open(url string) (lease.Store, error) {
	if url == "" {
		return memory.New(nil), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// A hanging server blocks a connection for the timeout: 5 s by default in go-redis. url may set timeouts.
	options.DialTimeout = cmp.Or(options.DialTimeout, 500*time.Millisecond)
	options.ReadTimeout = cmp.Or(options.ReadTimeout, 500*time.Millisecond)
	return redisbucket.New(redis.NewClient(options), redisbucket.Config{Prefix: "example-api:"})
}

// serve answers users and operators until ctx ends. serve then finishes the requests in progress and gives
// all leased tokens back to Redis for the other replicas.
func (s *service) serve(ctx context.Context, toUsers, toOperators net.Listener, grace time.Duration) error {
	users := &http.Server{Handler: s.api(), ReadHeaderTimeout: 5 * time.Second}
	operators := &http.Server{Handler: s.admin(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- users.Serve(toUsers) }()
	go func() { failed <- operators.Serve(toOperators) }()
	slog.Info("serving", "users", toUsers.Addr(), "operators", toOperators.Addr())
	go s.warmUp(ctx)

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.ready.Store(false)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, users.Shutdown(within), s.shutdown(within), operators.Shutdown(within))
}
