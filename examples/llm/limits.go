package main

import (
	"context"
	"errors"

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
