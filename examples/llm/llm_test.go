package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/lease/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// serve serves handler on a network in memory, and returns a transport to it.
func serve(t *testing.T, handler http.Handler) *http.Transport {
	pipes := testnet.Listen()
	server, transport := &http.Server{Handler: handler}, &http.Transport{DialContext: pipes.Dial}
	go server.Serve(pipes)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return transport
}

// world is a gateway, its model, and the clients' transport.
type world struct {
	*testing.T
	*limits
	gateway *gateway
	client  *http.Client
}

// bubble runs body with a gateway in virtual time, and checks in the end that the limiters' books balance.
func bubble(t *testing.T, s settings, model *upstream, body func(t *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := newLimits(memory.New(nil), s)
		testkit.NoErr(t, err)
		t.Cleanup(func() {
			testkit.NoErr(t, l.shutdown(context.Background()))
			for _, limiter := range []*hybrid.Limiter{l.requests, l.tokens, l.budget} {
				testkit.Check(t, limiter.Stats().Conserved(), "the books do not balance: %+v", limiter.Stats())
			}
		})
		g := newGateway("http://model", serve(t, model))
		g.tenants["acme"], g.tenants["night"] = l.tenant("acme", interactive), l.tenant("night", batch)
		body(&world{t, l, g, &http.Client{Transport: serve(t, g)}})
	})
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
	r.Header.Set("Authorization", "Bearer "+tenant)
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

// left returns the requests and tokens of tenant that remain in the bucket.
func (t *world) left(tenant string) (requests, tokens int64) {
	time.Sleep(time.Second) // until every report has come to the bucket
	r, err1 := t.requests.Peek(context.Background(), tenant)
	n, err2 := t.tokens.Peek(context.Background(), tenant)
	testkit.NoErr(t, errors.Join(err1, err2))
	return r.Remaining, n.Remaining
}

// hourly is a burst of n, with no refill during a test.
func hourly(n int64) hybrid.Limit { return hybrid.PerHour(1).WithBurst(n) }

func plenty() settings {
	n := hourly(1e5)
	return settings{requests: n, tokens: n, budget: n, kept: 0.3}
}

// exactly returns a model that answers with words words and uses total tokens, or fails.
func exactly(words, total int64) *upstream {
	return &upstream{pace: time.Millisecond, answer: func(completion) (int64, int64) { return words, total }}
}

// TestARequestCostsWhatTheModelUsed: with any reservation.
func TestARequestCostsWhatTheModelUsed(t *testing.T) {
	for name, row := range map[string]struct {
		model            *upstream
		status           int
		requests, tokens int64 // that it costs
	}{
		"less than the estimate": {exactly(10, 30), 200, 1, 30},
		"all of it":              {exactly(100, 110), 200, 1, 110},
		"more":                   {exactly(100, 500), 200, 1, 500},
		"the model fails":        {exactly(0, 0), 502, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := plenty()
			s.requests, s.tokens = hourly(10), hourly(1000)
			bubble(t, s, row.model, func(t *world) {
				answer, text := t.must(row.status, "acme", 24, 100) // an estimate of 110
				testkit.Check(t, row.status != 200 || strings.HasSuffix(text, "data: [DONE]\n\n"), "%q", text)
				testkit.Check(t, strings.Count(text, "word") == int(row.model.words()), "%q", text)
				h := answer.Header
				testkit.Check(t, h.Get("x-ratelimit-limit-tokens") == "1000" &&
					h.Get("x-ratelimit-remaining-tokens") == "890" &&
					h.Get("x-ratelimit-remaining-requests") == "9", "%v", h)
				requests, tokens := t.left("acme")
				testkit.Check(t, requests == 10-row.requests && tokens == 1000-row.tokens,
					"%d requests and %d tokens are left", requests, tokens)
				testkit.Check(t, t.gateway.tenants["acme"].used.Load() == row.tokens, "the bill is wrong")
			})
		})
	}
}

func (u *upstream) words() int64 {
	words, _ := u.answer(completion{})
	return words
}

// TestWhoGoesAwayPaysForWhatWasSaid: a client disconnects amid the answer. The gateway stops the
// model, and the unused tokens are available to others.
func TestWhoGoesAwayPaysForWhatWasSaid(t *testing.T) {
	s := plenty()
	s.tokens = hourly(2000)
	bubble(t, s, exactly(1000, 1010), func(t *world) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, _, err := t.ask(ctx, "acme", 24, 1000)
		testkit.Must(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		synctest.Wait()
		used := t.gateway.tenants["acme"].used.Load()
		testkit.Check(t, used > 290 && used < 330, "%d tokens, want about 10 + 300", used)
		_, tokens := t.left("acme")
		testkit.Check(t, tokens == 2000-used, "%d tokens are left of 2000, %d were used", tokens, used)
	})
}

// TestDebtsArePaidFirst: after a model has used more than the bucket had, requests are denied until
// the rate has paid the debt.
func TestDebtsArePaidFirst(t *testing.T) {
	s := plenty()
	s.tokens = hybrid.PerMinute(600) // 10 a second
	bubble(t, s, exactly(1, 2600), func(t *world) {
		t.must(200, "acme", 24, 590)
		time.Sleep(time.Second)
		answer, text := t.must(429, "acme", 24, 1)
		after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		testkit.NoErr(t, err)
		// It owes 2000 tokens, and a little was paid in that second; the next one needs 11.
		testkit.Check(t, after >= 198 && after <= 202, "to come back after %d s, want about 200", after)
		testkit.Check(t, answer.Header.Get("x-ratelimit-remaining-tokens") == "0", "%v", answer.Header)
		testkit.Check(t, strings.Contains(text, "rate_limit_exceeded"), "%s", text)
		requests, _ := t.left("acme")
		testkit.Check(t, requests == 1e5-1, "a request that was denied its tokens counts: %d left", requests)
		time.Sleep(time.Duration(after-20) * time.Second)
		t.must(429, "acme", 24, 1)
		time.Sleep(20 * time.Second)
		t.must(200, "acme", 24, 1)
	})
}

// TestBatchTenantsLeaveTheBudgetToOthers: they stop where 30 % of it is left, and the others go on.
func TestBatchTenantsLeaveTheBudgetToOthers(t *testing.T) {
	s := plenty()
	s.budget = hourly(1000)
	bubble(t, s, exactly(90, 100), func(t *world) {
		admitted := func(tenant string) (n int) {
			for range 20 {
				answer, _, err := t.ask(context.Background(), tenant, 24, 90)
				testkit.NoErr(t, err)
				if answer.StatusCode == 200 {
					n++
				}
			}
			return n
		}
		night, acme := admitted("night"), admitted("acme")
		testkit.Check(t, night == 7 && acme == 3, "batch has %d, the other %d; want 7 and 3", night, acme)
		_, left := t.left("night")
		testkit.Check(t, left == 1e5-700, "what the budget denied was taken from the tenant: %d", left)
	})
}

// TestRefusals: requests that fail for other reasons than limits take no token.
func TestRefusals(t *testing.T) {
	s := plenty()
	s.requests, s.tokens = hourly(2), hourly(1000)
	bubble(t, s, exactly(1, 20), func(t *world) {
		t.must(401, "nobody", 4, 10)
		t.must(400, "acme", 4, 0)
		t.must(400, "acme", 4, tokensMax+1)
		_, text := t.must(400, "acme", 24, 2000)
		testkit.Check(t, strings.Contains(text, "request_too_large"), "%s", text)
		requests, tokens := t.left("acme")
		testkit.Check(t, requests == 2 && tokens == 1000, "%d and %d are left", requests, tokens)
		t.must(200, "acme", 24, 10)
		t.must(200, "acme", 24, 10)
		answer, text := t.must(429, "acme", 24, 10)
		testkit.Check(t, strings.Contains(text, "too many requests"), "%s", text)
		testkit.Check(t, answer.Header.Get("Retry-After") != "", "%v", answer.Header)
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
		testkit.Check(t, usedAfter(7, event) == want, "%s: %d, want %d", event, usedAfter(7, event), want)
	}
}
