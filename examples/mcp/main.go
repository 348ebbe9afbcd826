// Command mcp is an MCP server (Model Context Protocol) that limits tools/call by three keys at once: the
// agent, the tool and the tenant. A call takes its tokens of all three keys, or of none. The agent and the
// tenant come from the bearer token, because a caller could invent other header fields. Run mcp in the folder
// examples, with a Redis:
//
//	go run ./mcp
//	for i in 1 2 3; do curl localhost:8080/mcp -H 'Authorization: Bearer secret-of-ann' \
//	  -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
//	  -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report"}}'; done
//
// The answer to a denied call is a tool result with isError, not a JSON-RPC error, because the specification
// (2025-11-25, Tools, Error Handling) says that clients should show tool results to the model. The text of
// the result tells the model when to retry, and _meta tells the client.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
)

// tools has the limit of each tool for all tenants together. cost is the number of tokens that a call takes
// of the agent and of the tenant.
var tools = map[string]struct {
	limit hybrid.Limit
	cost  int64
}{
	"search": {hybrid.PerMinute(600), 1},
	"report": {hybrid.PerMinute(4), 10},
}

// agents has the known agents by bearer token. A real service takes the agent from a verified token.
var agents = map[string]struct{ tenant, name string }{
	"secret-of-ann": {"acme", "ann"},
	"secret-of-bob": {"acme", "bob"},
	"secret-of-eve": {"initech", "eve"},
}

func limitsFor(_ context.Context, key string) ([]hybrid.Limit, error) {
	kind, name, _ := strings.Cut(key, " ")
	switch kind {
	case "tool":
		return []hybrid.Limit{tools[name].limit}, nil
	case "agent":
		return []hybrid.Limit{hybrid.PerMinute(20)}, nil
	}
	return []hybrid.Limit{hybrid.PerMinute(30)}, nil // limit of a tenant
}

// verify returns the agent of a bearer token. RequireBearerToken answers an error with status 401.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	a, known := agents[token]
	if !known {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: a.tenant + "/" + a.name, Extra: map[string]any{"tenant": a.tenant}}, nil
}

// limited limits the calls of known tools. A client must not create keys from invented names; the server
// refuses unknown tools.
func limited(limiter *hybrid.Limiter) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			call, ok := r.(*mcp.CallToolRequest)
			if !ok || tools[call.Params.Name].cost == 0 {
				return next(ctx, method, r)
			}
			from, cost := call.Extra.TokenInfo, tools[call.Params.Name].cost
			all := limiter.Join(limiter.Key("agent "+from.UserID), limiter.Key("tool "+call.Params.Name),
				limiter.Key(fmt.Sprint("tenant ", from.Extra["tenant"])))
			taken, err := all.TakeEach(ctx, cost, 1, cost)
			if err != nil {
				return nil, err // a JSON-RPC error, because the model cannot correct a failure of the limiter
			}
			if !taken.OK {
				return denied(taken), nil
			}
			return next(ctx, method, r)
		}
	}
}

// denied returns the answer to a denied call, with the limit and the time to retry.
func denied(r hybrid.Result) *mcp.CallToolResult {
	seconds := int64(math.Ceil(r.RetryAfter.Seconds()))
	text := fmt.Sprintf("The limit of %s is reached (%v). Retry in %d seconds.", r.Key, r.Limit, seconds)
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		Meta: mcp.Meta{"com.example/retryAfterSeconds": seconds},
	}
}

func newServer(buckets lease.Store) (http.Handler, *hybrid.Limiter, error) {
	limiter, err := hybrid.New(buckets, hybrid.Config{Name: "mcp", LimitsFor: limitsFor})
	server := mcp.NewServer(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	for name := range tools {
		done := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " done"}}}
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "does " + name},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return done, nil, nil
			})
	}
	server.AddReceivingMiddleware(limited(limiter))
	// The server is stateless, so that any replica can answer any request.
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	options := auth.RequireBearerTokenOptions{AllowMissingExpiration: true} // agents' tokens do not expire
	return auth.RequireBearerToken(verify, &options)(handler), limiter, err
}

func main() {
	url := flag.String("redis", "redis://localhost:6379?dial_timeout=500ms&read_timeout=500ms", "URL of Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(must(redis.ParseURL(*url)))
	buckets := must(redisbucket.New(client, redisbucket.Config{Prefix: "mcp-example:"}))
	log.Print("ping: ", buckets.Ping(ctx)) // Without a ping, the first requests may be denied.
	handler, limiter, err := newServer(buckets)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	server := &http.Server{Addr: "localhost:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	log.Print("shutdown: ", server.Shutdown(ending), ", tokens given back: ", limiter.Shutdown(ending))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
