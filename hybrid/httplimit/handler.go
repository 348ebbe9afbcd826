package httplimit

import (
	"errors"
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Rule is one limit of a request.
type Rule struct {
	// Name is what RateLimit-Policy calls the limit. Empty means the limiter's Config.Name, or
	// else "default". Where a key has several limits, each one's text is added.
	Name    string
	Limiter *hybrid.Limiter
	Key     KeyFunc
	Class   int // of the limiter's Config.Priorities
}

// Handler limits a handler: next is called for the requests that limiter admits. Goroutines share
// it. It panics where limiter or key is nil.
func Handler(limiter *hybrid.Limiter, key KeyFunc, options ...Option) func(http.Handler) http.Handler {
	s := newSettings(options)
	rules := append([]Rule{{Limiter: limiter, Key: key}}, s.also...)
	return s.around(func(r *http.Request) (Selection, error) {
		cost := int64(1)
		if s.cost != nil {
			cost = s.cost(r)
		}
		return Selection{Rules: rules, Cost: cost}, nil
	})
}

// Selection is what limits one request.
type Selection struct {
	Rules []Rule // all of them take Cost tokens, or none; without any the request is not limited
	Cost  int64
	Done  func() // if set, runs once, when the Limiters of Rules are no longer needed for the request
}

// Select is Handler where the rules depend on the request: for each one rules says what limits it.
// An error is that of a request without a key; see OnError. Selection.Rules is only read. The
// options Also, Cost and Class are for Handler and have no effect here.
func Select(rules func(*http.Request) (Selection, error), options ...Option) func(http.Handler) http.Handler {
	return newSettings(options).around(rules)
}

func newSettings(options []Option) *settings {
	s := &settings{status: http.StatusTooManyRequests, fields: FieldsDraft}
	for _, o := range options {
		o(s)
	}
	return s
}

func (s *settings) around(rules func(*http.Request) (Selection, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.admits(rules, w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// admits decides about a request, and answers it unless it is admitted.
func (s *settings) admits(rules func(*http.Request) (Selection, error), w http.ResponseWriter, r *http.Request) bool {
	selected, err := rules(r)
	if selected.Done != nil {
		defer selected.Done()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	var keys []*hybrid.Key
	for _, rule := range selected.Rules {
		name, err := rule.Key(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return false
		}
		key := rule.Limiter.Key(name)
		if rule.Class > 0 {
			key = key.Class(rule.Class)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return true
	}
	result, err := keys[0].Limiter().Join(keys...).Take(r.Context(), selected.Cost)
	switch {
	case errors.Is(err, hybrid.ErrExceedsBurst) || err == nil && !result.OK:
		w.WriteHeader(s.status)
		return false
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return false
	}
	return true
}
