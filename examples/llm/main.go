// Command llm is a gateway to a language model. Each tenant has a limit of requests and of tokens a
// minute, and all tenants share a budget. The cost of a request is unknown in advance: the gateway
// reserves an estimate and settles the model's actual use. Run it in the folder examples; the model
// is a fake in the same program:
//
//	go run ./llm                                         # limits of this process alone
//	go run ./llm -redis redis://localhost:6379           # limits that all gateways share
//	curl -iN localhost:8080/v1/chat/completions -H 'Authorization: Bearer key-acme' \
//	  -d '{"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 50}'
//
// gateway.go is the gateway with its limits, and upstream.go is the model.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	address := flag.String("address", "localhost:8080", "where the gateway listens")
	store.Main("llm-example", func(ctx context.Context, buckets lease.Store) error {
		return run(ctx, buckets, *address)
	})
}

// run serves until ctx ends, lets the streams end, and gives back the limiters' tokens.
func run(ctx context.Context, buckets lease.Store, address string) error {
	limits, err := newLimits(buckets, defaults)
	if err != nil {
		return err
	}
	g := newGateway("http://"+address+"/model", http.DefaultTransport)
	g.tenants["key-acme"] = limits.tenant("acme", interactive)
	g.tenants["key-night"] = limits.tenant("night", batch)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", g)
	mux.Handle("POST /model", &upstream{pace: 20 * time.Millisecond, answer: half})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended <- errors.Join(server.Shutdown(ending), limits.shutdown(ending))
	})
	log.Printf("serving at http://%s", address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}
