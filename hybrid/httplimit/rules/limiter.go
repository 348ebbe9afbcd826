package rules

import (
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// shutdownMax bounds how long the Limiter of a removed rule tries to give back its leases. After that
// they expire at the store.
const shutdownMax = 10 * time.Second

// limiter is the Limiter of a rule. It stays while there is a rule of its name with the same version
// and policy.
type limiter struct {
	*hybrid.Limiter
	config hybrid.Config // before hybrid fills in defaults
	limits *limits
	sets   int    // number of sets that use it; guarded by Rules.mu
	gone   func() // the result of Config.OnLimiter; may be nil
}

// limits are the limits that a rule proposes for each of its keys.
type limits struct{ atomic.Pointer[[]hybrid.Limit] }

func (l *limits) of(string) []hybrid.Limit { return *l.Load() }

// configOf returns the configuration of a rule's Limiter without its limits.
func configOf(base hybrid.Config, name string, version int64, r Rule) hybrid.Config {
	c := base
	c.Name, c.Version, c.Priorities = name, version, r.Priorities
	c.Policy.Shadow = base.Policy.Shadow || r.Shadow
	if r.Fallback != nil {
		c.Policy.Fallback = *r.Fallback
	}
	return c
}

// serves reports whether l may serve a rule with the configuration c.
func (l *limiter) serves(c hybrid.Config) bool {
	have := l.config
	return have.Version == c.Version && have.Policy == c.Policy && slices.Equal(have.Priorities, c.Priorities)
}

// limitersFor returns the Limiters of a table: the former ones if they can serve it, and else new ones.
func (r *Rules) limitersFor(t Table, before map[string]*limiter) (all map[string]*limiter, err error) {
	all = map[string]*limiter{}
	for _, name := range slices.Sorted(maps.Keys(t.Rules)) {
		c := configOf(r.cfg.Base, name, t.Version, t.Rules[name])
		old := before[name]
		if old != nil && old.serves(c) {
			all[name] = old
			continue
		}
		l := &limiter{config: c, limits: new(limits)}
		l.limits.Store(new(t.Rules[name].Limits))
		c.LimitsFor = l.limits.of
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

// propose makes every rule of t propose its limits from now on, also for keys in use.
func (r *Rules) propose(t Table, all map[string]*limiter) {
	for name, l := range all {
		if now := t.Rules[name].Limits; !reflect.DeepEqual(now, l.limits.of("")) {
			l.limits.Store(&now)
			// It cannot fail: the limits are valid, and the Limiter is closed only when all are.
			_ = l.RefreshAll()
		}
	}
}

// end closes a Limiter that no set uses any more.
func (l *limiter) end(close func(*hybrid.Limiter) error) error {
	err := close(l.Limiter)
	if l.gone != nil {
		l.gone()
	}
	return err
}
