// Command api is an HTTP API with limits for each user, for each address and altogether, on any
// number of replicas. README.md says how to run it with Redis, Prometheus and Grafana.
//
//   - serve.go: the process: flags, start, readiness, shutdown.
//   - service.go: the API, its limits and its metrics.
//   - load.go: traffic for it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
