// Command llm is a gateway to a language model. Each tenant has a limit of requests and one of tokens a
// minute, and all tenants share a budget: one decision. The cost of a request is unknown in advance: the
// gateway reserves an estimate and settles the model's actual use. Run it in the folder examples; the model
// is a fake in the same program:
//
//	go run ./llm                                         # limits of this process alone
//	go run ./llm -redis redis://localhost:6379           # limits that all gateways share
//	curl -iN localhost:8080/v1/chat/completions -H 'Authorization: Bearer key-acme' \
//	  -d '{"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 50, "stream": true}'
//
// gateway.go is the gateway with its limits.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/store"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

func main() {
	store.Main("llm-example", func(ctx context.Context, buckets lease.Store) error {
		const address = "localhost:8080"
		requests, tokens, budget := hybrid.PerMinute(60), hybrid.PerMinute(10_000), hybrid.PerMinute(100_000)
		g, err := newGateway(buckets, "http://"+address+"/model", requests, tokens, budget)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("POST /v1/chat/completions", g)
		mux.HandleFunc("POST /model", model)
		return store.Serve(ctx, address, mux, g.shutdown)
	})
}

// model is a fake: it sends half of the allowed words, one after the other, and its usage at the end.
func model(w http.ResponseWriter, r *http.Request) {
	var c completion
	_ = json.NewDecoder(r.Body).Decode(&c)
	words := (c.MaxTokens + 1) / 2
	w.Header().Set("Content-Type", "text/event-stream")
	for range words {
		time.Sleep(20 * time.Millisecond)
		fmt.Fprint(w, `data: {"choices": [{"delta": {"content": "word "}}]}`, "\n\n")
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
	fmt.Fprintf(w, `data: {"usage": {"total_tokens": %d}}`+"\n\ndata: [DONE]\n\n", c.promptTokens()+words)
}
