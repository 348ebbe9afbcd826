// Command envoy limits requests as the example of Envoy's rate limit service does: rules.yaml has its
// descriptors as rules, with a limit for named values, and says what has no counterpart. Run it in the
// folder examples:
//
//	go run ./envoy
//	curl -i -H 'foo: a' -H 'bar: banned' -H 'baz: b' localhost:8080/twoheader
package main

import (
	"context"
	"net/http"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/lease"
)

// mock answers every request, as the cluster mock does.
var mock = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Hi\n")) })

func main() {
	store.Main("envoy-example", func(ctx context.Context, buckets lease.Store) error {
		limits, err := rules.Open("envoy/rules.yaml", rules.Config{Store: buckets})
		if err != nil {
			return err
		}
		return store.Serve(ctx, "localhost:8080", limits.Handler(mock), limits.Shutdown)
	})
}
