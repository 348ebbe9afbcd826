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

// gateway passes requests for chat completions to a model, and streams the answers back.
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

func (g *gateway) shutdown(ctx context.Context) error {
	return errors.Join(g.requests.Shutdown(ctx), g.tokens.Shutdown(ctx), g.budget.Shutdown(ctx))
}

// completion has the fields of a request's body that the gateway reads.
type completion struct {
	Messages  []struct{ Content string }
	MaxTokens int64 `json:"max_tokens"`
}

// promptTokens estimates the number of tokens in the prompt. The model reports the exact number afterwards.
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
		http.Error(w, "the body is not a valid completion request", http.StatusBadRequest)
		return
	}
	// If one limit lacks tokens for the request, the request takes tokens of no limit.
	all := g.tokens.Join(g.requests.Key(tenant), g.tokens.Key(tenant), g.budget.Key("all"))
	estimate := c.promptTokens() + c.MaxTokens
	taken, err := all.ReserveEach(r.Context(), 1, estimate, estimate)
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		http.Error(w, "the request needs more tokens than the burst of a limit", http.StatusBadRequest)
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
			log.Printf("tokens not settled in full: %v", err)
		}
	}
}

// relay streams the model's answer, and returns the number of used tokens, or an error if the model has sent
// nothing. If the client disconnects, relay stops the model, and returns the tokens used until then.
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

// usedAfter returns the number of tokens used after a line: the model's count, or one more for each word.
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
