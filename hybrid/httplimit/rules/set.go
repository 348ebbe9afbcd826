package rules

import (
	"net/http"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// set is a table that is, or was, in force. Only the number of its users changes.
type set struct {
	table    Table
	matcher  matcher
	routes   map[string]selection // by pattern
	limiters map[string]*limiter  // by the name of the rule
	users    atomic.Int64         // requests being decided, and 1 while it is in force
	ended    func(*set)           // runs when users is 0
}

// selection has the rules of a route.
type selection struct {
	httplimit.Selection
	most int64 // the highest cost that all its rules can admit
}

// newSet returns a set in force with the valid table t.
func newSet(t Table, cfg *Config, limiters map[string]*limiter, ended func(*set)) *set {
	s := &set{table: t, matcher: newMatcher(), limiters: limiters, ended: ended}
	s.routes = make(map[string]selection, len(t.Routes))
	s.users.Store(1)
	for pattern, route := range t.Routes {
		_, _ = s.matcher.add(pattern) // check has tried it
		keys := keyMaker{pattern, t.Trusted, cfg.Keys}
		selected := selection{httplimit.Selection{Cost: route.cost(), Done: s.release}, costMax}
		for _, name := range route.Rules {
			rule := t.Rules[name]
			class := min(route.Class, len(rule.Priorities))
			selected.Rules = append(selected.Rules, httplimit.Rule{
				Name: name, Limiter: limiters[name].Limiter, Key: keys.of(rule.Key), Class: class,
			})
			for _, l := range rule.Limits {
				selected.most = min(selected.most, mostOf(l, cfg.Base, rule, class))
			}
		}
		s.routes[pattern] = selected
	}
	return s
}

// use counts a request, and reports whether the set has not ended.
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
		go s.ended(s) // it takes a lock, for which a request must not wait
	}
}

// of selects the rules of r. If there are any, Done releases s.
func (s *set) of(r *http.Request) (httplimit.Selection, error) {
	if others := readings(r); others != nil {
		return s.ofAll(r, others)
	}
	selected := s.routes[s.matcher.of(r)]
	if len(selected.Rules) == 0 {
		s.release()
		return httplimit.Selection{}, nil
	}
	return selected.Selection, nil
}
