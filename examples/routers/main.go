// Command routers serves one API with four routers, net/http, chi, gin and echo, behind one and
// the same middleware: routers.go has the line that each needs. The limits are in rules.yaml, and
// may be changed while it runs. Run it in the folder examples, and open its page in a browser:
//
//	go run ./routers -router chi                              # or http, gin, echo
//	go run ./routers -router gin -redis redis://localhost:6379
//	curl -i localhost:8080/users/ann/orders
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	address := flag.String("address", "localhost:8080", "where it listens")
	router := flag.String("router", "http", "the `name` of the router: http, chi, gin or echo")
	file := flag.String("rules", "routers/rules.yaml", "the `file` with the limits")
	store.Main("routers-example", func(ctx context.Context, buckets lease.Store) error {
		listener, err := net.Listen("tcp", *address)
		if err != nil {
			return err
		}
		return serve(ctx, listener, *router, *file, buckets)
	})
}

// serve serves until ctx ends, and gives back the limiters' tokens.
func serve(ctx context.Context, listener net.Listener, router, file string, buckets lease.Store) error {
	with, ok := routers[router]
	if !ok {
		return fmt.Errorf("there is no router %q", router)
	}
	defer listener.Close()
	limits, err := rules.Open(file, rules.Config{Store: buckets})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: withPage(with(limits.Handler)), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(within)
		stopped <- limits.Shutdown(within)
	})
	log.Printf("open http://%s/", listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}
