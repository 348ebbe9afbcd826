package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// settings holds the limits of each tenant, and of all together.
type settings struct {
	requests, tokens, budget hybrid.Limit
	// kept is the share of the budget's burst that batch tenants leave to the others.
	kept float64
}

var defaults = settings{
	requests: hybrid.PerMinute(60),
	tokens:   hybrid.PerMinute(10_000),
	budget:   hybrid.PerMinute(100_000),
	kept:     0.3,
}

// Classes of tenants.
const interactive, batch = 0, 1

type limits struct {
	requests, tokens, budget *hybrid.Limiter
}

func newLimits(store lease.Store, s settings) (*limits, error) {
	limiter := func(name string, limit hybrid.Limit, priorities ...float64) (*hybrid.Limiter, error) {
		return hybrid.New(store, hybrid.Config{
			Name: name, Limits: []hybrid.Limit{limit}, Priorities: priorities,
		})
	}
	requests, err1 := limiter("requests", s.requests)
	tokens, err2 := limiter("tokens", s.tokens)
	budget, err3 := limiter("budget", s.budget, s.kept)
	return &limits{requests, tokens, budget}, errors.Join(err1, err2, err3)
}

// tenant returns a tenant with one key for its requests, and its own key and the budget's for its
// tokens: a request for n tokens reserves n of both or of none.
func (l *limits) tenant(name string, class int) *tenant {
	return &tenant{
		requests: l.requests.Key(name),
		tokens:   l.tokens.Join(l.tokens.Key(name), l.budget.Key("all").Class(class)),
	}
}

// shutdown gives back the limiters' tokens.
func (l *limits) shutdown(ctx context.Context) error {
	return errors.Join(l.requests.Shutdown(ctx), l.tokens.Shutdown(ctx), l.budget.Shutdown(ctx))
}

// tenant is the owner of an API key.
type tenant struct {
	requests, tokens hybrid.KeyLimiter
	used             atomic.Int64 // tokens, for the bill
}

// gateway passes requests for chat completions on to a model, and its answers back as they come.
type gateway struct {
	model   string // its URL
	client  *http.Client
	tenants map[string]*tenant // by API key; not changed once it serves
}

func newGateway(model string, transport http.RoundTripper) *gateway {
	return &gateway{model, &http.Client{Transport: transport}, map[string]*tenant{}}
}

// completion holds the fields of a request's body that the gateway reads.
type completion struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	MaxTokens int64 `json:"max_tokens"`
	Stream    bool  `json:"stream"`
}

// promptTokens estimates the tokens of the prompt: the model counts by its own rules, and reports
// its count later.
func (c *completion) promptTokens() (n int64) {
	for _, m := range c.Messages {
		n += int64(len(m.Content))/4 + 4
	}
	return n
}

const bodyMax, tokensMax = 1 << 20, 4096

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := g.tenants[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if t == nil {
		refuse(w, http.StatusUnauthorized, "invalid_api_key", "who are you?")
		return
	}
	c := completion{MaxTokens: tokensMax}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax)).Decode(&c); err != nil ||
		c.MaxTokens < 1 || c.MaxTokens > tokensMax {
		refuse(w, http.StatusBadRequest, "invalid_request", "this is no request for a completion")
		return
	}
	request, err := t.requests.Reserve(r.Context(), 1)
	if !admits(w, "requests", request, err) {
		return
	}
	tokens, err := t.tokens.Reserve(r.Context(), c.promptTokens()+c.MaxTokens)
	if !admits(w, "tokens", tokens, err) {
		request.Cancel() // it did not happen
		return
	}
	used, began := g.relay(w, r, c)
	if !began {
		request.Cancel()
		tokens.Cancel()
		return
	}
	t.used.Add(used)
	if err := tokens.Settle(used); err != nil {
		log.Printf("a debt is lost: %v", err)
	}
}

// admits answers the request unless the reservation is OK, with the fields that clients of language
// models know.
func admits(w http.ResponseWriter, what string, r *hybrid.Reservation, err error) bool {
	result, h := r.Result(), w.Header()
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst):
		refuse(w, http.StatusBadRequest, "request_too_large", "the request has more tokens than its limit ever has")
		return false
	case err != nil || !result.OK && result.Source == hybrid.SourceFallback:
		refuse(w, http.StatusServiceUnavailable, "unavailable", "the limits cannot be asked")
		return false
	}
	h.Set("X-Ratelimit-Limit-"+what, strconv.FormatInt(result.Limit.Capacity(), 10))
	h.Set("X-Ratelimit-Remaining-"+what, strconv.FormatInt(result.Remaining, 10))
	h.Set("X-Ratelimit-Reset-"+what, result.ResetAfter.Round(time.Millisecond).String())
	if !result.OK {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(result.RetryAfter.Seconds()))))
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "too many "+what)
	}
	return result.OK
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// relay streams the model's answer and returns the tokens that it has used. began is false if the
// model did not begin. When the client goes away relay stops the model, and the words sent until
// then count.
func (g *gateway) relay(w http.ResponseWriter, r *http.Request, c completion) (used int64, began bool) {
	c.Stream = true
	body, _ := json.Marshal(c)
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodPost, g.model, bytes.NewReader(body))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return 0, false
	}
	answer, err := g.client.Do(ask)
	if err != nil {
		refuse(w, http.StatusBadGateway, "upstream", "the model does not answer")
		return 0, false
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		refuse(w, http.StatusBadGateway, "upstream", "the model says "+answer.Status)
		return 0, false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	used = c.promptTokens()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		event, _ := strings.CutPrefix(lines.Text(), "data: ")
		used = usedAfter(used, event)
		if _, err := fmt.Fprintln(w, lines.Text()); err != nil {
			break
		}
		if lines.Text() == "" && http.NewResponseController(w).Flush() != nil {
			break
		}
	}
	return used, true
}

// usedAfter returns the tokens used after an event: one more for a word, or the model's own count.
func usedAfter(used int64, event string) int64 {
	var e struct {
		Choices []any
		Usage   struct {
			Total int64 `json:"total_tokens"`
		}
	}
	if json.Unmarshal([]byte(event), &e) != nil {
		return used
	}
	return cmp.Or(e.Usage.Total, used+int64(len(e.Choices)))
}
