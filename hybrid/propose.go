package hybrid

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/lease"
)

// proposer knows the limits that this process proposes for its keys. All members share it.
type proposer struct {
	cfg       *Config
	observer  *observer
	defaults  lease.Config // for a key without limits of its own
	refreshes atomic.Int64 // how often Refresh and RefreshAll were called

	mu     sync.Mutex
	shared map[[lease.LimitsMax]Limit]*lease.Config // of keys at rest: many keys have few different limits
}

// proposal is the configuration that this process proposes for one key, or the error of its limits.
type proposal struct {
	config lease.Config
	err    error
}

// of is the configuration to propose for key: own, if its handle was given one, or else one with the
// limits of LimitsFor or of Config.
func (p *proposer) of(key string, own *proposal) (lease.Config, error) {
	if own != nil {
		return own.config, own.err
	}
	if p.cfg.LimitsFor == nil {
		return p.defaults, nil
	}
	limits := p.cfg.LimitsFor(key)
	if limits == nil && len(p.cfg.Limits) > 0 {
		return p.defaults, nil
	}
	made := p.with("LimitsFor", limits)
	if made.err != nil {
		p.observer.refusedLimits(key, made.err)
	}
	return made.config, made.err
}

func (p *proposer) with(source string, limits []Limit) proposal {
	c := p.cfg.Policy.ConfigFor(slices.Clone(limits), p.cfg.Version, p.cfg.CallTimeout)
	if err := c.Validate(); err != nil {
		return proposal{err: fmt.Errorf("%w: %s: %w", ErrInvalidConfig, source, err)}
	}
	p.observer.proposed(limits)
	return proposal{config: c}
}

// sharedMax bounds how many configurations are kept to be shared.
const sharedMax = 1024

// share is a configuration like c that other keys may have too. It is never changed.
func (p *proposer) share(c lease.Config) *lease.Config {
	var limits [lease.LimitsMax]Limit // all that differs between keys
	copy(limits[:], c.Limits)
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.shared[limits]; have != nil {
		return have
	}
	if len(p.shared) < sharedMax {
		p.shared[limits] = &c
	}
	return &c
}

// check returns the error of own, which a handle of key was given.
func (p *proposer) check(key string, own *proposal) error {
	if own == nil || own.err == nil {
		return nil
	}
	p.observer.refusedLimits(key, own.err)
	return own.err
}
