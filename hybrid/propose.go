package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// proposer knows the limits that this process proposes for its keys. All members share it.
type proposer struct {
	cfg       *Config
	observer  *observer
	defaults  lease.Config // for a key without limits of its own
	refreshes atomic.Int64 // how often Refresh was called

	inspect func(ctx context.Context, key string) (lease.State, error) // of the key's bucket
	refresh func(ctx context.Context, key string) error                // asks LimitsFor, if the key is in use

	mu     sync.Mutex
	shared map[[lease.LimitsMax]Limit]*lease.Config // of keys at rest: many keys have few different limits
	failed map[string]bool                          // keys for which LimitsFor will be asked again
}

// proposal is the configuration that this process proposes for one key, or the error of its limits.
type proposal struct {
	config lease.Config
	err    error
}

// errNoLimits is wrapped by the error of a LimitsFor that has failed.
var errNoLimits = errors.New("hybrid: LimitsFor failed")

// of returns the configuration to propose for key: own, if its handle was given one, or else one with the
// limits of LimitsFor or of Config.
func (p *proposer) of(ctx context.Context, key string, own *proposal) (lease.Config, error) {
	if own != nil {
		return own.config, own.err
	}
	if p.cfg.LimitsFor == nil {
		return p.defaults, nil
	}
	limits, err := p.cfg.LimitsFor(ctx, key)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNoLimits, err)
		p.observer.failedLimits(key, err)
		return lease.Config{}, err
	}
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

// limitsRetry is how long after an error of LimitsFor it is asked again for a key in use.
const limitsRetry = 5 * time.Second

// ofNew is of for a key that comes into use by a request with ctx, or with nil where it has none. Where
// LimitsFor fails, it is the configuration of the key's bucket, or of Config where the key has no bucket, and
// LimitsFor is asked again later.
func (p *proposer) ofNew(ctx context.Context, key string) (lease.Config, error) {
	ctx, end := p.bounded(ctx)
	defer end()
	c, err := p.of(ctx, key, nil)
	if !errors.Is(err, errNoLimits) {
		return c, err
	}
	p.askLater(key)
	st, unknown := p.inspect(ctx, key)
	switch {
	case unknown == nil && st.Exists:
		made := p.with("the bucket", st.Config.Limits)
		return made.config, made.err
	case unknown == nil && len(p.cfg.Limits) > 0:
		return p.defaults, nil
	}
	return lease.Config{}, err
}

// bounded returns ctx, or one that ends after CallTimeout where that is nil.
func (p *proposer) bounded(ctx context.Context) (bounded context.Context, end func()) {
	if ctx != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(p.observer.ctx)
	timer := p.cfg.Clock.AfterFunc(p.cfg.CallTimeout, func() { cancel(errOverdue) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// askLater asks LimitsFor again for key, until it answers or the key is out of use.
func (p *proposer) askLater(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed[key] {
		return
	}
	p.failed[key] = true
	p.cfg.Clock.AfterFunc(limitsRetry, func() {
		go func() { // LimitsFor may block, and a Clock's function may not
			p.mu.Lock()
			delete(p.failed, key)
			p.mu.Unlock()
			if ctx := p.observer.ctx; ctx.Err() == nil && p.refresh(ctx, key) != nil {
				p.askLater(key)
			}
		}()
	})
}

// check returns the error of own, which a handle of key was given.
func (p *proposer) check(key string, own *proposal) error {
	if own == nil || own.err == nil {
		return nil
	}
	p.observer.refusedLimits(key, own.err)
	return own.err
}
