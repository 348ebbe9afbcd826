package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// options are the flags of `api serve`.
type options struct {
	listen, admin string
	redis         string
	rules         string
	trusted       []netip.Prefix
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
	flags.Func("trust", "addresses of the proxies in front, such as 10.0.0.7/32,10.0.0.8/32", func(list string) error {
		for _, text := range strings.Split(list, ",") {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			o.trusted = append(o.trusted, prefix)
		}
		return nil
	})
	return o, flags.Parse(arguments)
}

// serve runs the API until ctx ends, and then stops it in order: first no new traffic, then no
// request under way, then everything that was leased goes back to Redis for the other replicas.
func serve(ctx context.Context, arguments []string) error {
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	var store lease.Store = lease.NewMemoryStore(nil)
	if o.redis != "" {
		at, err := redis.ParseURL(o.redis)
		if err != nil {
			return err
		}
		client := redis.NewClient(at)
		defer client.Close()
		if store, err = redisbucket.New(client, redisbucket.Config{Prefix: "example-api:"}); err != nil {
			return err
		}
	}
	s, err := newService(store, o)
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
