// Command api is an HTTP API with limits for each user, for each address and altogether, on any
// number of replicas. README.md says how to run it with Redis, Prometheus and Grafana.
//
// service.go has the API, its limits and its metrics, and load.go makes traffic for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/lease"
)

const usage = `usage: api serve [flags]         the API; api serve -h lists the flags
       api load [flags] URL...   traffic for it, from this machine or its private network
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{"serve": serve, "load": runLoad}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// options holds the flags of `api serve`.
type options struct {
	listen, admin string
	redis         string
	callTimeout   time.Duration
	rules         string
	grace         time.Duration
}

func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "where users reach the API")
	flags.StringVar(&o.admin, "admin", "127.0.0.1:8081", "where operators reach /healthz, /readyz and /metrics")
	flags.StringVar(&o.redis, "redis", "",
		"URL of the Redis that all replicas share; none: limits of this process alone")
	flags.DurationVar(&o.callTimeout, "call-timeout", lease.DefaultCallTimeout,
		"how long a request waits for Redis")
	flags.StringVar(&o.rules, "rules", "config/rules.yaml",
		"the file with the limits, read again when it changes")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "how long a shutdown may take")
	return o, flags.Parse(arguments)
}

// serve runs the API until ctx ends.
func serve(ctx context.Context, arguments []string) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	shared, done, err := store.Open(o.redis, "example-api:")
	if err != nil {
		return err
	}
	defer done()
	s, err := newService(shared, o)
	if err != nil {
		return err
	}
	var on [2]net.Listener
	for i, address := range []string{o.listen, o.admin} {
		if on[i], err = net.Listen("tcp", address); err != nil {
			return err
		}
	}
	return s.serve(ctx, on[0], on[1], o.grace)
}

// serve answers users and operators until ctx ends, and then stops in order: it takes no new
// traffic, finishes the requests under way, and gives all leased tokens back to Redis for the other
// replicas.
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
	slog.Info("stopping", "cause", context.Cause(ctx))
	s.ready.Store(false)
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(err, users.Shutdown(within), s.shutdown(within), operators.Shutdown(within))
}
