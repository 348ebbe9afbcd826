package rules

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// set is a table that is, or was, in force. It never changes but for its users.
type set struct {
	table    Table
	matcher  matcher
	routes   map[string]httplimit.Selection // by pattern
	limiters map[string]*limiter            // by the name of the rule
	users    atomic.Int64                   // requests that are being decided, and 1 while it is in force
	ended    func(*set)                     // when there are no users any more
}

// newSet is a set whose first user is that it is in force. The table is valid.
func newSet(t Table, cfg *Config, limiters map[string]*limiter, ended func(*set)) *set {
	s := &set{table: t, matcher: newMatcher(), routes: map[string]httplimit.Selection{}, limiters: limiters, ended: ended}
	s.users.Store(1)
	for pattern, route := range t.Routes {
		_, _ = s.matcher.add(pattern) // which check has tried
		var all []httplimit.Rule
		for _, name := range route.Rules {
			rule := t.Rules[name]
			key := keyOf(rule.Key, pattern, t.Trusted, cfg.Keys)
			class := min(route.Class, len(rule.Priorities))
			all = append(all, httplimit.Rule{Name: name, Limiter: limiters[name].Limiter, Key: key, Class: class})
		}
		s.routes[pattern] = httplimit.Selection{Rules: slices.Clip(all), Cost: route.cost(), Done: s.release}
	}
	return s
}

// use counts a request. It is false where the set has ended.
func (s *set) use() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *set) release() {
	if s.users.Add(-1) == 0 {
		go s.ended(s) // which takes a lock, and a request must not wait for that
	}
}

// of is what limits r. Where that is something, its Done releases s.
func (s *set) of(r *http.Request) httplimit.Selection {
	selected := s.routes[s.matcher.of(r)]
	if len(selected.Rules) == 0 {
		s.release()
		return httplimit.Selection{}
	}
	return selected
}
