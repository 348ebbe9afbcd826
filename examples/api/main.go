// Command api is an HTTP API with limits for each user, for each address and altogether, on any
// number of replicas. README.md says how to run it with Redis, Prometheus and Grafana.
//
// service.go has the API, its limits and its metrics.
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
	"github.com/yuzhi-go/yuzhi/lease"
)

var (
	listen      = flag.String("listen", "127.0.0.1:8080", "address for users")
	admin       = flag.String("admin", "127.0.0.1:8081", "address for operators: /healthz, /readyz and /metrics")
	limits      = flag.String("rules", "config/rules.yaml", "file with the limits, read again when it changes")
	callTimeout = flag.Duration("call-timeout", lease.DefaultCallTimeout, "time that a request waits for Redis")
	grace       = flag.Duration("grace", 10*time.Second, "time for a shutdown")
)

func main() {
	store.Main("example-api:", func(ctx context.Context, buckets lease.Store) error {
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
	})
}

// serve answers users and operators until ctx ends, and then stops in order: it takes no new traffic,
// finishes the requests under way, and gives all leased tokens back to Redis for the other replicas.
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
