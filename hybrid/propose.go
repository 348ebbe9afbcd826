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

// proposer finds the configuration to propose for a key. The members of a Limiter share one proposer.
type proposer struct {
	cfg       *Config
	observer  *observer
	defaults  lease.Config // proposal for a key without limits of its own
	refreshes atomic.Int64

	inspect func(ctx context.Context, key string) (lease.State, error) // reads a key's bucket
	refresh func(ctx context.Context, key string) error                // calls LimitsFor for a key in use

	mu     sync.Mutex
	shared map[[lease.LimitsMax]Limit]*lease.Config // proposals shared by keys with equal limits
	failed map[string]bool                          // keys with a pending retry of LimitsFor
}

// proposal is the configuration to propose for a key, or the error of invalid limits.
type proposal struct {
	config lease.Config
	err    error
}

// configFor returns the configuration to propose for key: own if it is not nil, or else the limits of
// LimitsFor or Config.Limits.
func (p *proposer) configFor(ctx context.Context, key string, own *proposal) (lease.Config, error) {
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
	made := p.newProposal("LimitsFor", limits)
	if made.err != nil {
		p.observer.refusedLimits(key, made.err)
	}
	return made.config, made.err
}

// newProposal returns a proposal with limits. source names the origin of limits in errors.
func (p *proposer) newProposal(source string, limits []Limit) proposal {
	c := p.cfg.Policy.ConfigFor(slices.Clone(limits), p.cfg.Version, p.cfg.CallTimeout)
	if err := c.Validate(); err != nil {
		return proposal{err: fmt.Errorf("%w: %s: %w", ErrInvalidConfig, source, err)}
	}
	p.observer.targetCapped(limits)
	return proposal{config: c}
}

// sharedMax bounds the configurations that keys share.
const sharedMax = 1024

// share returns a configuration equal to c, which keys share and nothing may change.
func (p *proposer) share(c lease.Config) *lease.Config {
	var limits [lease.LimitsMax]Limit // only limits differ between keys
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

// limitsRetry is the time after which a failed LimitsFor is called again for a key in use.
const limitsRetry = 5 * time.Second

// configForNew is configFor for a key that becomes active. ctx is nil if the request has no context. If
// LimitsFor fails, the limits are those of the key's bucket, or Config.Limits without a bucket, and LimitsFor
// runs again later.
func (p *proposer) configForNew(ctx context.Context, key string) (lease.Config, error) {
	ctx, end := p.withTimeout(ctx)
	defer end()
	c, err := p.configFor(ctx, key, nil)
	if !errors.Is(err, errNoLimits) {
		return c, err
	}
	p.askLater(key)
	st, unknown := p.inspect(ctx, key)
	switch {
	case unknown == nil && st.Exists:
		made := p.newProposal("the bucket", st.Config.Limits)
		return made.config, made.err
	case unknown == nil && len(p.cfg.Limits) > 0:
		return p.defaults, nil
	}
	return lease.Config{}, err
}

// withTimeout returns ctx, or a context that ends after CallTimeout if ctx is nil.
func (p *proposer) withTimeout(ctx context.Context) (bounded context.Context, end func()) {
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

// askLater calls LimitsFor for key every limitsRetry, until LimitsFor succeeds or the key is out of use.
func (p *proposer) askLater(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed[key] {
		return
	}
	p.failed[key] = true
	p.cfg.Clock.AfterFunc(limitsRetry, func() {
		go func() { // LimitsFor may block, but a timer's function must not
			p.mu.Lock()
			delete(p.failed, key)
			p.mu.Unlock()
			if ctx := p.observer.ctx; ctx.Err() == nil && p.refresh(ctx, key) != nil {
				p.askLater(key)
			}
		}()
	})
}

// checkHandle returns and announces the error of own, the proposal of a KeyWithLimits handle, or nil.
func (p *proposer) checkHandle(key string, own *proposal) error {
	if own == nil || own.err == nil {
		return nil
	}
	p.observer.refusedLimits(key, own.err)
	return own.err
}
