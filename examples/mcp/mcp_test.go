package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

// transport answers requests by handler, without a network, and gives them a bearer token.
type transport struct {
	handler http.Handler
	token   string
}

func (tr transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r, w := r.Clone(r.Context()), httptest.NewRecorder()
	r.Header.Set("Authorization", "Bearer "+tr.token)
	r.Header.Set("X-Agent", "initech/eve") // counts for nothing
	tr.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// connect connects the SDK's client to the server.
func connect(t *testing.T, handler http.Handler, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://server/mcp", HTTPClient: &http.Client{Transport: transport{handler, token}},
		DisableStandaloneSSE: true,
	}, nil)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// call calls a tool, and returns its text, and the seconds to wait if the call was denied.
func call(t *testing.T, session *mcp.ClientSession, tool string) (text string, seconds int) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	testkit.NoErr(t, err)
	text = r.Content[0].(*mcp.TextContent).Text
	if after, ok := r.Meta["com.example/retryAfterSeconds"].(float64); ok {
		seconds = int(after)
	}
	testkit.Check(t, r.IsError == (seconds > 0), "%q, %d s, isError: %v", text, seconds, r.IsError)
	return text, seconds
}

// TestEachKeyDenies: the agent, the tool and the tenant deny, each with its name and a time after which the
// call is admitted. A denied call takes no tokens of the other keys.
func TestEachKeyDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler, limiter, err := newServer(memory.New(nil))
		testkit.NoErr(t, err)
		t.Cleanup(func() { testkit.NoErr(t, limiter.Shutdown(context.Background())) })
		ann, err1 := connect(t, handler, "secret-of-ann")
		bob, err2 := connect(t, handler, "secret-of-bob")
		eve, err3 := connect(t, handler, "secret-of-eve")
		testkit.NoErr(t, errors.Join(err1, err2, err3))
		must := func(session *mcp.ClientSession, tool, want string) (seconds int) {
			t.Helper()
			text, seconds := call(t, session, tool)
			testkit.Must(t, strings.Contains(text, want), "%q, want %q", text, want)
			return seconds
		}
		must(ann, "report", "done")
		must(ann, "report", "done")
		seconds := must(ann, "search", "agent acme/ann is reached (20/m)")
		must(bob, "report", "done")
		must(bob, "search", "tenant acme is reached (30/m)")
		must(eve, "report", "done") // The limits of acme are not initech's.
		time.Sleep(time.Duration(seconds) * time.Second)
		must(ann, "search", "done")

		time.Sleep(time.Minute) // fills all limits
		for _, session := range []*mcp.ClientSession{ann, ann, bob, eve} {
			must(session, "report", "done")
		}
		must(eve, "report", "tool report is reached (4/m)")
		time.Sleep(time.Second) // until the tokens of the denied call are back in the buckets
		left, err := limiter.Peek(t.Context(), "agent initech/eve")
		testkit.NoErr(t, err)
		testkit.Check(t, left.Remaining == 10, "%d tokens of eve are left, want 10", left.Remaining)
	})
}

// TestUnknownCallersAndToolsMakeNoKeys: an invented token gets 401, and an invented tool a JSON-RPC error.
func TestUnknownCallersAndToolsMakeNoKeys(t *testing.T) {
	handler, limiter, err := newServer(memory.New(nil))
	testkit.NoErr(t, err)
	defer limiter.Close()
	_, err = connect(t, handler, "invented")
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "Unauthorized"), "%v", err)
	ann, err := connect(t, handler, "secret-of-ann")
	testkit.NoErr(t, err)
	_, err = ann.CallTool(t.Context(), &mcp.CallToolParams{Name: "invented"})
	var wire *jsonrpc.Error
	testkit.Check(t, errors.As(err, &wire) && wire.Code == jsonrpc.CodeInvalidParams, "%v", err)
	testkit.Check(t, limiter.Stats().Keys == 0, "%d keys", limiter.Stats().Keys)
}

// TestServersShareTheLimits: with a real Redis, the second server has what the first one has left.
func TestServersShareTheLimits(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		for _, want := range []string{"report done", "report done", "agent acme/ann"} {
			handler, limiter, err := newServer(open())
			testkit.NoErr(t, err)
			ann, err := connect(t, handler, "secret-of-ann")
			testkit.NoErr(t, err)
			text, _ := call(t, ann, "report")
			if err := limiter.Shutdown(t.Context()); err != nil {
				return err
			}
			if !strings.Contains(text, want) {
				return fmt.Errorf("%q, want %q", text, want)
			}
		}
		return nil
	})
}
