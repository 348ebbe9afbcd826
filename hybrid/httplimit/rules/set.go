package rules

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// set is a Table that is or was in force. A set is immutable, except for users.
type set struct {
	table    Table
	matcher  matcher
	routes   map[string]selection // by pattern
	limiters map[string]*limiter  // by the name of the rule
	users    atomic.Int64         // number of requests that use the set, plus 1 while the set is in force
	ended    func(*set)           // called when users falls to 0
}

type selection struct {
	httplimit.Selection
	maxCost int64 // highest cost that all rules can admit
}

// newSet returns a set with the valid Table t and one user.
func newSet(t Table, cfg *Config, limiters map[string]*limiter, ended func(*set)) *set {
	s := &set{table: t, limiters: limiters, ended: ended}
	s.routes = make(map[string]selection, len(t.Routes))
	s.users.Store(1)
	for pattern, route := range t.Routes {
		_, _ = s.matcher.add(pattern) // never an error: t is valid
		keys := keyMaker{pattern, t.Trusted, cfg.Keys}
		selected := selection{httplimit.Selection{Cost: route.cost(), Done: s.release}, costMax}
		for _, name := range route.Rules {
			rule := t.Rules[name]
			class := min(route.Class, len(rule.Priorities))
			selected.Rules = append(selected.Rules, httplimit.Rule{
				Name: name, Limiter: limiters[name].Limiter, Key: keys.keyFunc(rule.Key), Class: class,
			})
			most, _ := rule.maxCost("", cfg.Base, class)
			selected.maxCost = min(selected.maxCost, most)
		}
		s.routes[pattern] = selected
	}
	return s
}

// use adds a user, or returns false if users is 0, because the set has ended.
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
		go s.ended(s) // ended takes a lock, for which a request must not wait
	}
}

// selectRules selects the rules of r. selectRules or the Done of the Selection releases s.
func (s *set) selectRules(r *http.Request) (httplimit.Selection, error) {
	if others := readings(r); others != nil {
		return s.selectAll(r, others)
	}
	selected := s.routes[s.matcher.patternOf(r)]
	if len(selected.Rules) == 0 {
		s.release()
		return httplimit.Selection{}, nil
	}
	return selected.Selection, nil
}

// shutdownMax bounds the time in which the Limiter of a removed rule gives back its leases.
const shutdownMax = 10 * time.Second

// limiter is the Limiter of a rule. Tables share a limiter while its rule keeps its version and policy.
type limiter struct {
	*hybrid.Limiter
	config hybrid.Config        // result of configOf
	rule   atomic.Pointer[Rule] // rule with the limits to propose
	sets   int                  // number of sets that use the limiter; guarded by Rules.mu
	gone   func()               // result of Config.OnLimiter; may be nil
}

// configOf returns the configuration of a rule's Limiter, without limits.
func configOf(base hybrid.Config, name string, version int64, r Rule) hybrid.Config {
	c := base
	c.Name, c.Version, c.Priorities = name, version, r.Priorities
	c.Policy.Shadow = base.Policy.Shadow || r.Shadow
	if r.Fallback != nil {
		c.Policy.Fallback = *r.Fallback
	}
	return c
}

// serves reports whether l can serve a rule with the configuration c.
func (l *limiter) serves(c hybrid.Config) bool {
	have := l.config
	return have.Version == c.Version && have.Policy == c.Policy && slices.Equal(have.Priorities, c.Priorities)
}

// limitersFor returns a limiter for each rule of t. A limiter in before that can serve its rule stays.
func (r *Rules) limitersFor(t Table, before map[string]*limiter) (all map[string]*limiter, err error) {
	all = map[string]*limiter{}
	for _, name := range slices.Sorted(maps.Keys(t.Rules)) {
		c := configOf(r.cfg.Base, name, t.Version, t.Rules[name])
		old := before[name]
		if old != nil && old.serves(c) {
			all[name] = old
			continue
		}
		l := &limiter{config: c}
		l.rule.Store(new(t.Rules[name]))
		c.LimitsFor = func(_ context.Context, key string) ([]hybrid.Limit, error) {
			return l.rule.Load().limitsOf(key), nil
		}
		if l.Limiter, err = hybrid.New(r.cfg.Store, c); err != nil {
			for _, made := range all {
				if before[made.config.Name] != made {
					made.Close()
				}
			}
			return nil, err
		}
		all[name] = l
	}
	return all, nil
}

// propose makes every limiter propose the limits of its rule in t from now on, also for keys in use.
func (r *Rules) propose(t Table, all map[string]*limiter) {
	for name, l := range all {
		if now := t.Rules[name]; !reflect.DeepEqual(now, *l.rule.Load()) {
			l.rule.Store(&now)
			// Refresh returns no error: the limits are valid, and no Limiter is closed.
			_ = l.Refresh(context.Background())
		}
	}
}

// end closes l by close, and then runs gone.
func (l *limiter) end(close func(*hybrid.Limiter) error) error {
	err := close(l.Limiter)
	if l.gone != nil {
		l.gone()
	}
	return err
}

// selectAll selects the rules of r and of others, the other readings of r. The request takes the highest cost
// of the routes, but at most the cost that every rule can admit, once from each rule and key.
func (s *set) selectAll(r *http.Request, others []*http.Request) (httplimit.Selection, error) {
	returns := false
	defer func() {
		if !returns { // after a panic of a KeyFunc in Config.Keys, Done does not run
			s.release()
		}
	}()
	selected, most := httplimit.Selection{Done: s.release}, int64(costMax)
	var routes, keys []string
	for _, reading := range append([]*http.Request{r}, others...) {
		pattern := s.matcher.patternOf(reading)
		if slices.Contains(routes, pattern) {
			continue
		}
		routes = append(routes, pattern)
		route := s.routes[pattern]
		for _, rule := range route.Rules {
			key, err := rule.Key(reading)
			if err != nil {
				returns = true
				return selected, err
			}
			id := rule.Name + " " + key // unique, because names of rules have no spaces
			if i := slices.Index(keys, id); i >= 0 {
				selected.Rules[i].Class = max(selected.Rules[i].Class, rule.Class)
				continue
			}
			rule.Key = func(*http.Request) (string, error) { return key, nil }
			selected.Rules, keys = append(selected.Rules, rule), append(keys, id)
		}
		if len(route.Rules) > 0 {
			selected.Cost, most = max(selected.Cost, route.Cost), min(most, route.maxCost)
		}
	}
	selected.Cost, returns = min(selected.Cost, most), true
	return selected, nil
}
