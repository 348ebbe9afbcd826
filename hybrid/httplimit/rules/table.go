package rules

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/internal/yamlfile"
	"github.com/yuzhi-go/yuzhi/lease"
)

// ErrInvalid is wrapped by every error about rules that cannot be used.
var ErrInvalid = errors.New("rules: invalid rules")

// Table is what a file declares; the fields have the same names there. Whoever has given one to New
// or Set must not change it.
type Table struct {
	// Version is hybrid.Config.Version of every rule: across processes the highest one wins at once.
	// Without it changed limits are in force two TTLs after the last process has read them.
	Version int64
	// Trusted are the proxies that the key form "address" believes; see httplimit.ClientIP.
	Trusted []netip.Prefix
	Rules   map[string]Rule  // by name, which becomes hybrid.Config.Name
	Routes  map[string]Route // by pattern of http.ServeMux
}

// Rule is a limit of requests that have the same key.
type Rule struct {
	// Key says whom a request counts for: "all", "address", "route", "header:NAME", "path:NAME" (a
	// wildcard of the route's pattern), or a name of Config.Keys. Of several, which a file has as a
	// list, requests count together where all of them are equal.
	Key []string
	// Limits are of one key, all of which must have room: 1 to 4.
	Limits []hybrid.Limit
	// Priorities are hybrid.Config.Priorities; see Route.Class.
	Priorities []float64
	// Shadow admits whom the rule denies, and counts it: hybrid.Policy.Shadow.
	Shadow bool
	// Fallback decides while the store is away: hybrid.Policy.Fallback. In a file it is local_share,
	// deny or allow_all. nil means that of Config.Base.
	Fallback *hybrid.Fallback
}

// Route is what limits the requests that match a pattern.
type Route struct {
	// Cost is how many tokens a request takes of every rule. 0 means 1.
	Cost int64
	// Rules are the names of rules, all of which must admit a request. Without any it is not limited.
	Rules []string
	// Class is the class of a request, from 0, in Priorities; a rule that has fewer takes its last.
	Class int
}

// rulesMax is how many keys may be joined.
const rulesMax = 16

// violation is one thing that is wrong, and where.
type violation struct {
	path string // such as rules.user.limits[0]
	text string
}

// check is what is wrong with t, in the order of paths, with what Config has beside it. Where keys
// is nil, a key form that is not known is taken for one of Config.Keys.
func (t Table) check(base hybrid.Config, keys map[string]httplimit.KeyFunc) []violation {
	c := checker{base: base, keys: keys}
	if t.Version < 0 || t.Version >= 1<<52 {
		c.bad("version", "is %d, must be 0 to 2^52-1", t.Version)
	}
	for i, p := range t.Trusted {
		if !p.IsValid() {
			c.bad(yamlfile.Index("trusted", i), "is no range of addresses")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Rules)) {
		c.rule(yamlfile.Join("rules", name), name, t.Rules[name])
	}
	c.routes(t)
	return c.found
}

// checker collects violations.
type checker struct {
	base  hybrid.Config
	keys  map[string]httplimit.KeyFunc
	found []violation
}

func (c *checker) bad(path, format string, args ...any) {
	c.found = append(c.found, violation{path, fmt.Sprintf(format, args...)})
}

func (c *checker) rule(path, name string, r Rule) {
	before := len(c.found)
	if name == "" {
		c.bad(path, "has an empty name")
	}
	if len(r.Key) == 0 {
		c.bad(path+".key", "is empty, must be %s", wantKey)
	}
	for i, form := range r.Key {
		here := path + ".key"
		if len(r.Key) > 1 {
			here = yamlfile.Index(here, i)
		}
		if err := checkForm(form, c.keys); err != nil {
			c.bad(here, "%v", err)
		}
	}
	if n := len(r.Limits); n < 1 || n > lease.LimitsMax {
		c.bad(path+".limits", "has %d limits, must have 1 to %d (such as 10/s, unlimited or blocked)",
			n, lease.LimitsMax)
	}
	for i, l := range r.Limits {
		for _, text := range textsOf(l.Validate()) {
			c.bad(yamlfile.Index(path+".limits", i), "%s", text)
		}
	}
	if len(c.found) > before {
		return // what follows from it is no news
	}
	config := configOf(c.base, name, 0, r)
	config.Limits = r.Limits
	for _, text := range textsOf(config.Validate()) {
		if i, rest, ok := strings.Cut(strings.TrimPrefix(text, "Priorities"), " "); ok && strings.HasPrefix(i, "[") {
			c.bad(path+".priorities"+i, "%s", rest)
		} else {
			c.bad(path, "%s", text)
		}
	}
}

// routes checks what the routes say, and that ServeMux takes their patterns.
func (c *checker) routes(t Table) {
	mux := newMatcher()
	for _, pattern := range slices.Sorted(maps.Keys(t.Routes)) {
		route, path := t.Routes[pattern], yamlfile.Join("routes", pattern)
		wildcards, err := mux.add(pattern)
		if err != nil {
			c.bad(path, "%v", err)
		}
		if route.Cost < 0 {
			c.bad(path+".cost", "is %d, %s", route.Cost, costLeast)
		}
		if len(route.Rules) > rulesMax {
			c.bad(path+".rules", "has %d rules, must have at most %d", len(route.Rules), rulesMax)
		}
		classes := 0
		for i, name := range route.Rules {
			here := yamlfile.Index(path+".rules", i)
			rule, ok := t.Rules[name]
			switch first := slices.Index(route.Rules, name); {
			case !ok:
				c.bad(here, "is %q, which is no rule; there are %s", name, listed(slices.Sorted(maps.Keys(t.Rules))))
				continue
			case first < i:
				c.bad(here, "is %q, as is [%d]: a request would take its cost twice", name, first)
			}
			classes = max(classes, len(rule.Priorities))
			for _, form := range rule.Key {
				wildcard, isPath := strings.CutPrefix(form, pathForm)
				if isPath && err == nil && !slices.Contains(wildcards, wildcard) {
					c.bad(here, "is %q, whose key %s needs a wildcard {%s}, and the pattern has none",
						name, form, wildcard)
				}
			}
			c.cost(path+".cost", name, route, rule)
		}
		if route.Class < 0 || route.Class > classes {
			c.bad(path+".class", "is %d, must be 0 to %d, as many priorities as one of its rules has",
				route.Class, classes)
		}
	}
}

// cost reports a cost that a rule would never admit.
func (c *checker) cost(path, name string, route Route, rule Rule) {
	class := min(route.Class, len(rule.Priorities))
	for _, l := range rule.Limits {
		most := mostOf(l, c.base, rule, class)
		if cost := route.cost(); l.Validate() == nil && cost > most {
			c.bad(path, "is %d, must be at most %d in class %d of rule %q (%v): more would never be admitted",
				cost, most, class, name, l)
		}
	}
}

// costMax is for routes without rules: no request costs more.
const costMax = math.MaxInt64

// mostOf is the highest cost that l, of a rule in a class, can admit; costMax where it admits none.
func mostOf(l hybrid.Limit, base hybrid.Config, rule Rule, class int) int64 {
	kept := base.Policy.Headroom
	if class > 0 {
		kept = rule.Priorities[class-1]
	}
	if most := l.Capacity() - int64(math.Ceil(float64(l.Capacity())*kept)); most > 0 {
		return most
	}
	return costMax
}

// costLeast is what a cost must be.
const costLeast = "must be at least 1; a route that is not limited has no rules"

func (r Route) cost() int64 { return max(r.Cost, 1) }

// listed is a list for people.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// textsOf are the violations that an error of hybrid or lease joins, without what they wrap.
func textsOf(err error) (texts []string) {
	if err == nil {
		return nil
	}
	prefixes := strings.NewReplacer(
		hybrid.ErrInvalidConfig.Error()+": ", "", lease.ErrInvalidPolicy.Error()+": ", "",
		lease.ErrInvalidLimit.Error()+": ", "", lease.ErrInvalidConfig.Error()+": ", "")
	return strings.Split(prefixes.Replace(err.Error()), "\n")
}
