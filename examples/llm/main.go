// Command llm is a gateway to a language model. Each tenant has a limit of requests and a limit of tokens per
// minute, and all tenants share a budget of tokens. A request needs tokens of all three limits. The cost of a
// request is known only afterwards, so the gateway reserves an estimate and settles the model's actual use.
// Run llm in the folder examples, with a Redis; the model is a fake in the same program:
//
//	go run ./llm
//	curl -iN localhost:8080/v1/chat/completions -H 'Authorization: Bearer key-acme' \
//	  -d '{"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 50, "stream": true}'
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

func main() {
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "llm-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	requests, tokens, budget := hybrid.PerMinute(60), hybrid.PerMinute(10_000), hybrid.PerMinute(100_000)
	g := must(newGateway(buckets, "http://localhost:8080/model", requests, tokens, budget))
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", g)
	mux.HandleFunc("POST /model", model)
	server := &http.Server{Addr: "localhost:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(ending), ", tokens given back: ", g.shutdown(ending))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// model is a fake model. model sends half of the allowed words, and then the number of used tokens.
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
