package rules

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrInvalid is wrapped by every error about an invalid Table or file.
var ErrInvalid = errors.New("rules: invalid rules")

// Table declares rules and routes. A rules file has fields of the same names. The caller must not change a
// Table after passing it to New or Set.
type Table struct {
	// Version is hybrid.Config.Version of every rule, 0 to 2^52-1. The limits of a higher Version are in
	// force at once; changed limits of an equal Version, two TTLs after the last process has the Table.
	Version int64
	// Trusted are the addresses of all proxies in front of this server, for the key form "address"; see
	// httplimit.ClientIP.
	Trusted []netip.Prefix
	Rules   map[string]Rule  // rules by name, which becomes hybrid.Config.Name
	Routes  map[string]Route // routes by pattern of http.ServeMux
}

// Rule limits requests that have the same key.
type Rule struct {
	// Key has at least one key form: "all", "address", "route", "header:NAME", "path:NAME" (a wildcard of the
	// route's pattern), or a name of Config.Keys. With several key forms, requests have the same key if the
	// values of all forms are equal.
	Key []string
	// Limits are the 1 to 4 limits of each key. A request needs tokens of all Limits.
	Limits []hybrid.Limit
	// Named has the limits of single keys, which replace Limits. A name is the value of the last form in Key:
	// a tenant if that form is "header:X-Tenant". A key that is added to Named, or removed, keeps its bucket.
	Named map[string][]hybrid.Limit
	// Priorities are hybrid.Config.Priorities; see Route.Class.
	Priorities []float64
	// Shadow admits and counts the requests that the rule would deny; see hybrid.Policy.Shadow.
	Shadow bool
	// Fallback is hybrid.Policy.Fallback; nil means the Fallback of Config.Base. In a file, Fallback is
	// local_share, deny or allow_all.
	Fallback *hybrid.Fallback
}

// Route limits the requests that match a pattern.
type Route struct {
	// Cost is the number of tokens that a request takes of each rule; 0 means 1.
	Cost int64
	// Rules has the names of at most 16 rules, which must all admit a request. An empty list means no limit.
	Rules []string
	// Class is the class of a request in Rule.Priorities, from 0. A rule with fewer classes uses its last
	// class.
	Class int
}

const rulesMax = 16 // the most keys of a hybrid.Limiter.Join

// check returns the violations of t in the order of paths. base and keys are Config.Base and Config.Keys. If
// keys is nil, check accepts any key form that may be a name in Config.Keys.
func (t Table) check(base hybrid.Config, keys map[string]httplimit.KeyFunc) error {
	c := checker{violation.List{Kind: ErrInvalid}, base, keys}
	violation.Between(&c.List, "version", t.Version, 0, 1<<52-1)
	for i, p := range t.Trusted {
		if !p.IsValid() {
			c.Add(yamlfile.Index("trusted", i), nil, "is not a valid address range")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Rules)) {
		c.rule(yamlfile.Join("rules", name), name, t)
	}
	c.routes(t)
	return c.Err()
}

type checker struct {
	violation.List
	base hybrid.Config
	keys map[string]httplimit.KeyFunc
}

func (c *checker) rule(path, name string, t Table) {
	before, r := c.Len(), t.Rules[name]
	if name == "" {
		c.Add(path, nil, "has an empty name")
	}
	if len(r.Key) == 0 {
		c.Add(path+".key", nil, "is empty, must be %s", wantKey)
	}
	for i, form := range r.Key {
		here := path + ".key"
		if len(r.Key) > 1 {
			here = yamlfile.Index(here, i)
		}
		if err := checkForm(form, c.keys); err != nil {
			c.Add(here, nil, "%v", err)
		}
	}
	for here, limits := range r.lists(path) {
		if n := len(limits); n < 1 || n > lease.LimitsMax {
			c.Add(here, limits, "must have 1 to %d, such as 10/s, unlimited or blocked", lease.LimitsMax)
		}
		for i, l := range limits {
			c.adopt(l.Validate(), yamlfile.Index(here, i))
		}
	}
	if c.Len() > before {
		return // Validate would report the same violations
	}
	for key := range r.Named {
		if err := t.checkName(name, key); err != nil {
			c.Add(yamlfile.Join(path+".named", key), nil, "%v", err)
		}
	}
	for _, limits := range r.lists(path) {
		config := configOf(c.base, name, 0, r)
		config.Limits = limits
		c.adopt(config.Validate(), path)
	}
}

// adopt adds the violations in err, with paths below path.
func (c *checker) adopt(err error, path string) {
	c.Adopt(err, func(field string) string {
		return violation.Under(path)(violation.Rename(field, strings.ToLower))
	})
}

// lists yields Limits and the limits of each name in Named, each list with its path below path.
func (r Rule) lists(path string) iter.Seq2[string, []hybrid.Limit] {
	return func(yield func(string, []hybrid.Limit) bool) {
		if !yield(path+".limits", r.Limits) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(r.Named)) {
			if !yield(yamlfile.Join(path+".named", name), r.Named[name]) {
				return
			}
		}
	}
}

// limitsOf returns the limits of a key of r.
func (r Rule) limitsOf(key string) []hybrid.Limit {
	if len(r.Key) > 1 && len(r.Named) > 0 {
		key = lastPart(key)
	}
	if own, ok := r.Named[key]; ok {
		return own
	}
	return r.Limits
}

func (c *checker) routes(t Table) {
	var mux matcher
	for _, pattern := range slices.Sorted(maps.Keys(t.Routes)) {
		route, path := t.Routes[pattern], yamlfile.Join("routes", pattern)
		wildcards, err := mux.add(pattern)
		if err != nil {
			c.Add(path, nil, "%v", err)
		}
		if route.Cost < 0 {
			c.Add(path+".cost", route.Cost, costLeast)
		}
		if len(route.Rules) > rulesMax {
			c.Add(path+".rules", route.Rules, "must have at most %d rules", rulesMax)
		}
		classes := 0
		for i, name := range route.Rules {
			here := yamlfile.Index(path+".rules", i)
			rule, ok := t.Rules[name]
			switch first := slices.Index(route.Rules, name); {
			case !ok:
				c.Add(here, name, "must be one of the rules (%s)", listed(t.Rules))
				continue
			case first < i:
				c.Add(here, name, "must not repeat [%d]: a request would take its cost twice", first)
			}
			classes = max(classes, len(rule.Priorities))
			for _, form := range rule.Key {
				wildcard, isPath := strings.CutPrefix(form, pathForm)
				if isPath && err == nil && !slices.Contains(wildcards, wildcard) {
					c.Add(here, name, "but its key %s needs the wildcard {%s} in the pattern", form, wildcard)
				}
			}
			class := min(route.Class, len(rule.Priorities))
			if most, by := rule.maxCost(yamlfile.Join("rules", name), c.base, class); route.cost() > most {
				c.Add(path+".cost", route.cost(), "must be at most %d: %s admits no more in class %d",
					most, by, class)
			}
		}
		if route.Class < 0 || route.Class > classes {
			c.Add(path+".class", route.Class, "must be 0 to %d, the most priorities of a rule of the route",
				classes)
		}
	}
}

// costMax is the highest cost of a route whose rules have no limit.
const costMax = math.MaxInt64

// maxCost returns the highest cost that all limits of r can admit in a class, and the limit with this bound.
// path is the path of r. maxCost ignores Blocked, which denies any cost.
func (r Rule) maxCost(path string, base hybrid.Config, class int) (most int64, by string) {
	kept := base.Policy.Headroom
	if class > 0 {
		kept = r.Priorities[class-1]
	}
	most = costMax
	for here, limits := range r.lists(path) {
		for _, l := range limits {
			m := l.Capacity() - int64(math.Ceil(float64(l.Capacity())*kept))
			if m > 0 && m < most && !l.Equal(hybrid.Blocked) && l.Validate() == nil {
				most, by = m, fmt.Sprintf("%s (%v)", here, l)
			}
		}
	}
	return most, by
}

// unused returns the paths of settings that affect no request.
func (t Table) unused() (paths []string) {
	classes := map[string]int{} // number of used classes by rule
	for pattern, route := range t.Routes {
		if len(route.Rules) == 0 && route.Cost > 0 {
			paths = append(paths, yamlfile.Join("routes", pattern)+".cost")
		}
		for _, name := range route.Rules {
			classes[name] = max(classes[name], route.Class+1)
		}
	}
	believes := len(t.Trusted) == 0
	for name, rule := range t.Rules {
		path := yamlfile.Join("rules", name)
		switch {
		case classes[name] == 0:
			paths = append(paths, path)
			continue
		case classes[name] == 1 && len(rule.Priorities) > 0:
			paths = append(paths, path+".priorities")
		}
		believes = believes || slices.Contains(rule.Key, addressForm)
	}
	if !believes {
		paths = append(paths, "trusted")
	}
	slices.Sort(paths)
	return paths
}

// costLeast is the end of a message about a cost that is too low.
const costLeast = "must be at least 1; write no rules for a route without limits"

func (r Route) cost() int64 { return max(r.Cost, 1) }

func listed[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// mistakesMax bounds the number of mistakes in an error, and mistakeLength the characters of each mistake. A
// large file must not fill a log.
const mistakesMax, mistakeLength = 10, 400
