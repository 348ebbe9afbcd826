package main

import (
	"context"
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/lease"
)

// limited stands for package rules until it is there.
func (s *service) limited(store lease.Store, o options) (func(http.Handler) http.Handler, error) {
	var all []httplimit.Rule
	for _, r := range []struct {
		name   string
		key    httplimit.KeyFunc
		limit  hybrid.Limit
		shadow bool
	}{
		{"everybody", httplimit.All, hybrid.PerSecond(500).WithBurst(1000), false},
		{"address", httplimit.ClientIP(o.trusted...), hybrid.PerSecond(60).WithBurst(120), false},
		{"user", httplimit.Header("X-User"), hybrid.PerSecond(20).WithBurst(40), false},
		{"stricter", httplimit.Header("X-User"), hybrid.PerSecond(10), true},
	} {
		l, err := hybrid.New(store, hybrid.Config{Name: r.name, Limits: []hybrid.Limit{r.limit},
			Policy: hybrid.Policy{Shadow: r.shadow}})
		if err != nil {
			return nil, err
		}
		s.telemetry.Register(l)
		s.end = append([]func(context.Context) error{l.Shutdown}, s.end...)
		all = append(all, httplimit.Rule{Limiter: l, Key: r.key})
	}
	return httplimit.Select(func(*http.Request) (httplimit.Selection, error) {
		return httplimit.Selection{Rules: all, Cost: 1}, nil
	}), nil
}
