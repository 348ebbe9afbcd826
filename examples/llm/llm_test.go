package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// serve serves handler on a network in memory, and returns a transport to it.
func serve(t *testing.T, handler http.Handler) *http.Transport {
	pipes := bufconn.Listen(1 << 16)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return pipes.DialContext(ctx) }
	// The deadlines of bufconn may come late, into the next request: each has a connection of its own.
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	server := &http.Server{Handler: handler}
	go server.Serve(pipes)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return transport
}

// answers is a model that answers with words words, one a millisecond, and uses total tokens, or
// that fails.
func answers(words, total int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if total == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		for range words {
			time.Sleep(time.Millisecond)
			fmt.Fprint(w, `data: {"choices": [{"delta": {"content": "word "}}]}`, "\n\n")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
		fmt.Fprintf(w, `data: {"choices": [], "usage": {"total_tokens": %d}}`+"\n\ndata: [DONE]\n\n", total)
	}
}

// world is a gateway and the clients' transport.
type world struct {
	*testing.T
	*gateway
	client *http.Client
}

// bubble runs body with a gateway in virtual time, and checks in the end that the limiters' books balance.
func bubble(t *testing.T, tokens, budget hybrid.Limit, model http.Handler, body func(t *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { body(newWorld(t, memory.New(nil), tokens, budget, model)) })
}

func newWorld(t *testing.T, buckets lease.Store, tokens, budget hybrid.Limit, model http.Handler) *world {
	g, err := newGateway(buckets, "http://model", hourly(3), tokens, budget)
	testkit.NoErr(t, err)
	t.Cleanup(func() {
		testkit.NoErr(t, g.shutdown(context.Background()))
		for _, limiter := range []*hybrid.Limiter{g.requests, g.tokens, g.budget} {
			testkit.Check(t, limiter.Stats().Conserved(), "the books do not balance: %+v", limiter.Stats())
		}
	})
	g.client.Transport = serve(t, model)
	return &world{t, g, &http.Client{Transport: serve(t, g)}}
}

// ask sends one request of a tenant, with a prompt of that number of letters. It ends with the
// answer or ctx. The error is that of reading the answer.
func (t *world) ask(
	ctx context.Context, tenant string, letters int, max int64,
) (answer *http.Response, text string, err error) {
	body := fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}], "max_tokens": %d}`,
		strings.Repeat("x", letters), max)
	r, err := http.NewRequestWithContext(ctx, "POST", "http://gateway", strings.NewReader(body))
	testkit.NoErr(t, err)
	r.Header.Set("Authorization", "Bearer key-"+tenant)
	answer, err = t.client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer, string(all), err
}

// must calls ask and requires this status.
func (t *world) must(status int, tenant string, letters int, max int64) (*http.Response, string) {
	t.Helper()
	answer, text, err := t.ask(context.Background(), tenant, letters, max)
	testkit.NoErr(t, err)
	testkit.Must(t, answer.StatusCode == status, "%s, want %d: %s", answer.Status, status, text)
	return answer, text
}

// left returns the tokens of tenant, and of the budget, that remain in the buckets.
func (t *world) left(tenant string) (tokens, budget int64) {
	time.Sleep(time.Second) // until every report has come to the bucket
	n, err1 := t.tokens.Peek(context.Background(), tenant)
	b, err2 := t.budget.Peek(context.Background(), "all")
	testkit.NoErr(t, errors.Join(err1, err2))
	return n.Remaining, b.Remaining
}

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

// TestARequestCostsWhatTheModelUsed: with any reservation.
func TestARequestCostsWhatTheModelUsed(t *testing.T) {
	for name, row := range map[string]struct {
		words, total int64 // of the model
		status       int
	}{
		"less than the estimate": {10, 30, 200},
		"all of it":              {100, 110, 200},
		"more":                   {100, 500, 200},
		"the model fails":        {0, 0, 502},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hourly(1000), hourly(2000), answers(row.words, row.total), func(t *world) {
				_, text := t.must(row.status, "acme", 24, 100) // an estimate of 110
				testkit.Check(t, row.status != 200 || strings.HasSuffix(text, "data: [DONE]\n\n"), "%q", text)
				testkit.Check(t, strings.Count(text, "word") == int(row.words), "%q", text)
				tokens, budget := t.left("acme")
				testkit.Check(t, tokens == 1000-row.total && budget == 2000-row.total,
					"%d tokens are left, and %d of the budget", tokens, budget)
			})
		})
	}
}

// TestGatewaysShareTheLimits: with a real Redis, a second gateway has what the first has left.
func TestGatewaysShareTheLimits(t *testing.T) {
	testnet.OnRedis(t, func(open func() lease.Store) error {
		for i, status := range []int{200, 200, 429} {
			w := newWorld(t, open(), hourly(1000), hourly(2000), answers(1, 400))
			answer, _, err := w.ask(t.Context(), "acme", 24, 490)
			if err = errors.Join(err, w.shutdown(t.Context())); err != nil {
				return err
			}
			if answer.StatusCode != status {
				return fmt.Errorf("gateway %d answers %s, want %d", i+1, answer.Status, status)
			}
		}
		return nil
	})
}

// TestAClientThatLeavesPaysForTheAnswerSoFar: a client disconnects amid the answer. The gateway stops the
// model, and the unused tokens are available to others.
func TestAClientThatLeavesPaysForTheAnswerSoFar(t *testing.T) {
	bubble(t, hourly(2000), hourly(2000), answers(1000, 1010), func(t *world) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, _, err := t.ask(ctx, "acme", 24, 1000)
		testkit.Must(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		tokens, _ := t.left("acme")
		testkit.Check(t, tokens > 1670 && tokens < 1710, "%d tokens are left, want about 2000 - 310", tokens)
	})
}

// TestRequestsThatAreRefusedCostNothing: neither the tenant nor the budget has fewer tokens.
func TestRequestsThatAreRefusedCostNothing(t *testing.T) {
	bubble(t, hourly(1000), hourly(1500), answers(1, 1000), func(t *world) {
		t.must(401, "nobody", 4, 10)
		t.must(400, "acme", 4, 0)
		t.must(400, "acme", 4, 4097)
		t.must(400, "acme", 24, 2000)
		t.must(200, "acme", 24, 990)
		t.must(429, "acme", 24, 10)
		t.must(429, "initech", 24, 990)
		acme, budget := t.left("acme")
		initech, _ := t.left("initech")
		testkit.Check(t, acme == 0 && initech == 1000 && budget == 500,
			"%d, %d and %d are left", acme, initech, budget)
	})
}

// TestRequestsHaveALimitToo: a tenant that has tokens, and no request left, is denied, and keeps the tokens.
func TestRequestsHaveALimitToo(t *testing.T) {
	bubble(t, hourly(1000), hourly(1500), answers(1, 11), func(t *world) {
		for range 3 {
			t.must(200, "acme", 24, 1)
		}
		t.must(429, "acme", 24, 1)
		tokens, budget := t.left("acme")
		testkit.Check(t, tokens == 967 && budget == 1467, "%d are left, and %d of the budget", tokens, budget)
	})
}

// TestUsageIsReadFromAnyEvent: unknown events cost nothing.
func TestUsageIsReadFromAnyEvent(t *testing.T) {
	for event, want := range map[string]int64{
		`{"choices": [{"delta": {"content": "x"}}]}`:          8,
		`{"choices": [], "usage": {"total_tokens": 99}}`:      99,
		`{"choices": [], "usage": {"total_tokens": "a lot"}}`: 7,
		`[DONE]`: 7,
	} {
		testkit.Check(t, usedAfter(7, "data: "+event) == want, "%s: %d, want %d", event,
			usedAfter(7, "data: "+event), want)
	}
}
