package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
)

// options are the flags of `api serve`.
type options struct {
	listen, admin string
	redis         string
	rules         string
	grace         time.Duration
	spans         bool
}

func parse(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "where users reach the API")
	flags.StringVar(&o.admin, "admin", "127.0.0.1:8081", "where operators reach /healthz, /readyz and /metrics")
	flags.StringVar(&o.redis, "redis", "", "URL of the Redis that all replicas share; none: limits of this process alone")
	flags.StringVar(&o.rules, "rules", "config/rules.yaml", "the file with the limits, read again when it changes")
	flags.DurationVar(&o.grace, "grace", 10*time.Second, "how long a shutdown may take")
	flags.BoolVar(&o.spans, "spans", false, "write spans to the standard output")
	return o, flags.Parse(arguments)
}

// serve runs the API until ctx ends, and then stops it in order: first no new traffic, then no
// request under way, then everything that was leased goes back to Redis for the other replicas.
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

	users := &http.Server{Handler: s.api(), ReadHeaderTimeout: 5 * time.Second}
	operators := &http.Server{Handler: s.admin(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 2)
	for server, address := range map[*http.Server]string{users: o.listen, operators: o.admin} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(listener) }()
	}
	slog.Info("serving", "users", o.listen, "operators", o.admin)
	go s.warmUp(ctx)

	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	slog.Info("stopping", "cause", context.Cause(ctx))
	s.ready.Store(false)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.grace)
	defer cancel()
	return errors.Join(err, users.Shutdown(grace), s.shutdown(grace), operators.Shutdown(grace))
}
