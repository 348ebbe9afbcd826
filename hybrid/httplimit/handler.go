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
	return s.around(func(r *http.Request) ([]Rule, int64, error) {
		cost := int64(1)
		if s.cost != nil {
			cost = s.cost(r)
		}
		return rules, cost, nil
	})
}

// Select is Handler where the rules depend on the request. For each request rules says which
// limits hold, of which all or none take cost tokens: without any it is not limited. An error is
// that of a request without a key; see OnError. The slice is only read. The options Also, Cost and
// Class are for Handler and have no effect here.
func Select(
	rules func(*http.Request) (rules []Rule, cost int64, err error), options ...Option,
) func(http.Handler) http.Handler {
	return newSettings(options).around(rules)
}

func newSettings(options []Option) *settings {
	s := &settings{status: http.StatusTooManyRequests, fields: FieldsDraft}
	for _, o := range options {
		o(s)
	}
	return s
}

func (s *settings) around(rules func(*http.Request) ([]Rule, int64, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all, cost, err := rules(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var keys []*hybrid.Key
			for _, rule := range all {
				name, err := rule.Key(r)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				keys = append(keys, rule.Limiter.Key(name))
			}
			if len(keys) > 0 {
				result, err := all[0].Limiter.Join(keys...).Take(r.Context(), cost)
				switch {
				case errors.Is(err, hybrid.ErrExceedsBurst) || err == nil && !result.OK:
					w.WriteHeader(s.status)
					return
				case err != nil:
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}
