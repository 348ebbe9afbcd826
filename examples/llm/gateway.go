package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// gateway passes requests for chat completions to a model, and streams the model's answers back.
type gateway struct {
	model            string // URL of the model
	client           http.Client
	requests, tokens *hybrid.Limiter   // limits of each tenant
	budget           *hybrid.Limiter   // tokens of all tenants together
	tenants          map[string]string // tenants by API key
}

func newGateway(store lease.Store, model string, requests, tokens, budget hybrid.Limit) (*gateway, error) {
	r, err1 := hybrid.New(store, hybrid.Config{Name: "requests", Limits: []hybrid.Limit{requests}})
	t, err2 := hybrid.New(store, hybrid.Config{Name: "tokens", Limits: []hybrid.Limit{tokens}})
	b, err3 := hybrid.New(store, hybrid.Config{Name: "budget", Limits: []hybrid.Limit{budget}})
	tenants := map[string]string{"key-acme": "acme", "key-initech": "initech"}
	g := &gateway{model: model, requests: r, tokens: t, budget: b, tenants: tenants}
	return g, errors.Join(err1, err2, err3)
}

// shutdown gives back the limiters' tokens.
func (g *gateway) shutdown(ctx context.Context) error {
	return errors.Join(g.requests.Shutdown(ctx), g.tokens.Shutdown(ctx), g.budget.Shutdown(ctx))
}

// completion has the fields of a request's body that the gateway reads.
type completion struct {
	Messages  []struct{ Content string }
	MaxTokens int64 `json:"max_tokens"`
}

// promptTokens estimates the number of tokens in the prompt: the model has its own way of counting, and
// reports its count later.
func (c *completion) promptTokens() (n int64) {
	for _, m := range c.Messages {
		n += int64(len(m.Content))/4 + 4
	}
	return n
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenant := g.tenants[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if tenant == "" {
		http.Error(w, "unknown API key", http.StatusUnauthorized)
		return
	}
	var c completion
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &c) != nil || c.MaxTokens < 1 || c.MaxTokens > 4096 {
		http.Error(w, "this is no request for a completion", http.StatusBadRequest)
		return
	}
	// If one limit lacks tokens for the request, no limit is charged.
	all := g.tokens.Join(g.requests.Key(tenant), g.tokens.Key(tenant), g.budget.Key("all"))
	estimate := c.promptTokens() + c.MaxTokens
	taken, err := all.ReserveEach(r.Context(), 1, estimate, estimate)
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		http.Error(w, "the request has more tokens than its limit ever has", http.StatusBadRequest)
	case err != nil:
		http.Error(w, "the limits are unavailable", http.StatusServiceUnavailable)
	case !taken.OK():
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(taken.Result().RetryAfter.Seconds()))))
		http.Error(w, "too many requests or tokens: "+taken.Result().Limit.String(), http.StatusTooManyRequests)
	default:
		used, err := g.relay(r.Context(), w, body, c.promptTokens())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
		if err := taken.SettleEach(1, used, used); err != nil {
			log.Printf("a debt is lost: %v", err)
		}
	}
}

// relay streams the model's answer, and returns the tokens that it used, or an error if the model did not
// begin. When the client disconnects, relay stops the model; the prompt and the words sent until then count.
func (g *gateway) relay(
	ctx context.Context, w http.ResponseWriter, body []byte, prompt int64,
) (used int64, err error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, g.model, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	answer, err := g.client.Do(ask)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, errors.New("the model answers " + answer.Status)
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	used = prompt
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		used = usedAfter(used, lines.Text())
		fmt.Fprintln(w, lines.Text())
		if lines.Text() == "" && http.NewResponseController(w).Flush() != nil {
			break
		}
	}
	return used, nil
}

// usedAfter returns the number of tokens used after a line: one more for a word, or the model's own count.
func usedAfter(used int64, line string) int64 {
	var event struct {
		Choices []any
		Usage   struct {
			Total int64 `json:"total_tokens"`
		}
	}
	if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &event) != nil {
		return used
	}
	return cmp.Or(event.Usage.Total, used+int64(len(event.Choices)))
}
