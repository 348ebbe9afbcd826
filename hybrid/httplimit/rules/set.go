package rules

import (
	"net/http"
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
	s := &set{table: t, matcher: newMatcher(), limiters: limiters, ended: ended}
	s.routes = make(map[string]httplimit.Selection, len(t.Routes))
	s.users.Store(1)
	for pattern, route := range t.Routes {
		_, _ = s.matcher.add(pattern) // which check has tried
		keys := keyMaker{pattern, t.Trusted, cfg.Keys}
		selected := httplimit.Selection{Cost: route.cost(), Done: s.release}
		for _, name := range route.Rules {
			rule := t.Rules[name]
			selected.Rules = append(selected.Rules, httplimit.Rule{
				Name: name, Limiter: limiters[name].Limiter,
				Key: keys.of(rule.Key), Class: min(route.Class, len(rule.Priorities)),
			})
		}
		s.routes[pattern] = selected
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
