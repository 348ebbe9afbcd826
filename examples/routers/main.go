// Command routers serves one API with four routers, net/http, chi, gin and echo, behind one and
// the same middleware: routers.go has the line that each needs. The limits are in rules.yaml, and
// may be changed while it runs. Run it in the folder examples:
//
//	go run ./routers -router chi                              # or http, gin, echo
//	go run ./routers -router gin -redis redis://localhost:6379
//	curl -i localhost:8080/users/ann/orders
package main

import (
	"context"
	"errors"
	"flag"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	router := flag.String("router", "http", "the `name` of the router: http, chi, gin or echo")
	store.Main("routers-example", func(ctx context.Context, buckets lease.Store) error {
		with, ok := routers[*router]
		if !ok {
			return errors.New("no such router: " + *router)
		}
		limits, err := rules.Open("routers/rules.yaml", rules.Config{Store: buckets})
		if err != nil {
			return err
		}
		return store.Serve(ctx, "localhost:8080", with(limits.Handler), limits.Shutdown)
	})
}
