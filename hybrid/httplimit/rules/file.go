package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
)

// textMax and valuesMax bound a file. Aliases of aliases can say very much in few bytes.
const textMax, valuesMax = 1 << 20, 200_000

// Parse reads a table from YAML or JSON; the name of its file is for errors. It reports what is wrong
// at once, as Open does: the first ten mistakes, and how many more there are. Key forms that may be
// names of Config.Keys are checked by New and Set.
func Parse(name string, text []byte) (Table, error) { return parse(name, text, hybrid.Config{}, nil) }

func parse(name string, text []byte, base hybrid.Config, keys map[string]httplimit.KeyFunc) (Table, error) {
	r := reader{
		file: name, places: map[string]place{}, unread: map[string]bool{}, around: map[string]bool{}, left: valuesMax,
	}
	var t Table
	if root := r.document(text); root != nil {
		r.table(root, &t)
		for _, v := range t.check(base, keys) {
			if !r.unreadAround(v.path) {
				r.bad(v.path, r.placeOf(v.path), "%s", v.text)
			}
		}
		if len(r.found) == 0 && len(t.Rules) > 0 && len(t.Routes) == 0 { // such as one that is cut short
			r.bad(at("routes"), r.placeOf(at("routes")), "is empty, so that the rules limit nothing")
		}
	}
	return t, r.err()
}

// fallbacks are the values of Policy.Fallback as a file names them.
var fallbacks = map[string]hybrid.Fallback{
	"local_share": hybrid.FallbackLocalShare, "deny": hybrid.FallbackDeny, "allow_all": hybrid.FallbackAllowAll,
}

const (
	wantKey    = "all, address, route, header:NAME, path:NAME, a name of Config.Keys, or a list of these"
	wantLimits = "a list of limits, like [10/s burst 20, 1000/h]"
	wantRules  = "a list of names of rules; [] is not limited"
)

func (r *reader) table(root *yaml.Node, t *Table) {
	t.Rules, t.Routes = map[string]Rule{}, map[string]Route{}
	r.fields(nil, root,
		field{"version", "", func(path []string, n *yaml.Node) { r.json(path, n, "a whole number", &t.Version) }},
		field{"trusted", "", func(path []string, n *yaml.Node) {
			r.list(path, n, "a list of address ranges, like [10.0.0.0/8]", func(path []string, n *yaml.Node) {
				r.scalar(path, n, "an address range, like 10.0.0.0/8 or fd00::/8", false, func(text string) error {
					p, err := prefixOf(text)
					t.Trusted = append(t.Trusted, p)
					return err
				})
			})
		}},
		field{"rules", "", func(path []string, n *yaml.Node) {
			r.mapping(path, n, func(name string, path []string, _ place, n *yaml.Node) {
				t.Rules[name] = r.rule(path, n)
			})
		}},
		field{"routes", "", func(path []string, n *yaml.Node) {
			r.mapping(path, n, func(name string, path []string, _ place, n *yaml.Node) {
				t.Routes[name] = r.route(path, n)
			})
		}},
	)
}

func (r *reader) rule(path []string, n *yaml.Node) (rule Rule) {
	r.fields(path, n,
		field{"key", wantKey, func(path []string, n *yaml.Node) {
			if n.Kind == yaml.SequenceNode {
				r.texts(path, n, wantKey, &rule.Key)
			} else {
				r.text(path, n, wantKey, &rule.Key)
			}
		}},
		field{"limits", wantLimits, func(path []string, n *yaml.Node) {
			r.list(path, n, wantLimits, func(path []string, n *yaml.Node) {
				r.scalar(path, n, "a limit, like 10/s burst 20", false, func(text string) error {
					l, err := limitOf(text)
					rule.Limits = append(rule.Limits, l)
					return err
				})
			})
		}},
		field{"priorities", "", func(path []string, n *yaml.Node) {
			r.list(path, n, "a list of shares, like [0.2, 0.5]", func(path []string, n *yaml.Node) {
				rule.Priorities = append(rule.Priorities, 0)
				r.json(path, n, "a share, 0 to below 1", &rule.Priorities[len(rule.Priorities)-1])
			})
		}},
		field{"shadow", "", func(path []string, n *yaml.Node) { r.json(path, n, "true or false", &rule.Shadow) }},
		field{"fallback", "", func(path []string, n *yaml.Node) {
			r.scalar(path, n, "local_share, deny or allow_all", false, func(text string) error {
				f, ok := fallbacks[text]
				if !ok {
					return errOther
				}
				rule.Fallback = &f
				return nil
			})
		}},
	)
	return rule
}

func (r *reader) route(path []string, n *yaml.Node) (route Route) {
	r.fields(path, n,
		field{"cost", "", func(path []string, n *yaml.Node) {
			r.json(path, n, "a whole number, at least 1", &route.Cost)
			if route.Cost == 0 && !r.unreadAround(path) {
				r.bad(path, r.placeOf(path), "is 0, %s", costLeast)
			}
		}},
		field{"class", "", func(path []string, n *yaml.Node) {
			r.json(path, n, "a whole number, 0 or more", &route.Class)
		}},
		field{"rules", wantRules, func(path []string, n *yaml.Node) { r.texts(path, n, wantRules, &route.Rules) }},
	)
	return route
}

func (r *reader) texts(path []string, n *yaml.Node, want string, into *[]string) {
	r.list(path, n, want, func(path []string, n *yaml.Node) { r.text(path, n, "a text", into) })
}

func (r *reader) text(path []string, n *yaml.Node, want string, into *[]string) {
	r.scalar(path, n, want, false, func(text string) error {
		*into = append(*into, text)
		return nil
	})
}

// limitOf is hybrid.ParseLimit, whose error does not say again what the text is.
func limitOf(text string) (hybrid.Limit, error) {
	l, err := hybrid.ParseLimit(text)
	if err != nil {
		err = errors.New(strings.TrimPrefix(strings.Join(textsOf(err), "; "), strconv.Quote(text)+": "))
	}
	return l, err
}

// prefixOf reads a range of addresses, or one address.
func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, errOther
	case p != p.Masked():
		return p, fmt.Errorf("it is an address within %v, which is the range", p.Masked())
	}
	return p, nil
}
