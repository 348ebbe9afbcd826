// Package store has the parts that the examples share: the store of their limits, and a server.
package store

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

var redisURL = flag.String("redis", "",
	"the `URL` of the Redis that holds the limits; none: limits of this process alone")

// Main parses the flags of a program, to which this package adds -redis, and calls run with the
// store of the limits and a context that ends with an interrupt. It logs the error of run.
func Main(prefix string, run func(ctx context.Context, s lease.Store) error) {
	log.SetFlags(0)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := Open(*redisURL, prefix)
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Open returns the store in the Redis at url, or for an empty url a store in this process alone.
func Open(url, prefix string) (lease.Store, error) {
	if url == "" {
		return memory.New(nil), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// A url may say otherwise; go-redis's own are 5 s, for which a server that hangs keeps a connection.
	options.DialTimeout = cmp.Or(options.DialTimeout, 500*time.Millisecond)
	options.ReadTimeout = cmp.Or(options.ReadTimeout, 500*time.Millisecond)
	return redisbucket.New(redis.NewClient(options), redisbucket.Config{Prefix: prefix})
}

// Serve serves handler until ctx ends. Then it finishes the requests under way and calls end, which
// gives back the limiters' tokens.
func Serve(ctx context.Context, address string, handler http.Handler, end func(context.Context) error) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		stopped <- errors.Join(server.Shutdown(within), end(within))
	})
	log.Printf("serving at http://%s", listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}
