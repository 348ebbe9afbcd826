package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Peek asks the store about key; it takes and creates nothing. OK says whether one token is to be
// had now; Remaining counts what this process holds and what the bucket has. Errors wrap
// ErrUnavailable (also after ten CallTimeouts), the context's error, ErrClosed, ErrInvalidKey, or
// ErrInvalidConfig where Config.LimitsFor gives limits that cannot be used.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) { return l.peek(ctx, key, nil) }

// Peek reports without taking anything; see Limiter.Peek.
func (k *Key) Peek(ctx context.Context) (Result, error) { return k.l.peek(ctx, k.name, k) }

func (l *Limiter) peek(ctx context.Context, key string, k *Key) (Result, error) {
	st, err := l.inspect(ctx, "peek", key, k)
	if err != nil {
		return Result{}, err
	}
	held := int64(0)
	if e := l.keys.inUse(key); e != nil {
		held = e.client.Pool.Held()
	}
	headroom := l.cfg.Policy.Headroom
	ok := true
	for i, limit := range st.Config.Limits {
		ok = ok && held+st.Levels[i]-keptOf(limit, headroom) > 0
	}
	return resultOf(key, ok, SourceStore, protocol.StateOutlook(&st, 1, held, headroom, ok)), nil
}

// Refund says that n tokens of key, with which this process admitted something, were not used after
// all. It does not wait: they travel with the key's next lease call, within a Target, and are a new
// permit when the bucket credits them. A refund on the way to a store that fails is lost. Who
// refunds more than was taken breaks the limit.
//
// Nothing happens after Close, for an empty key or a negative n (counted in Stats as invalid), nor
// for a key that is not in this process's table.
func (l *Limiter) Refund(key string, n int64) { l.refund(key, nil, n) }

// refund is Refund; k is the handle that it came by, or nil.
func (l *Limiter) refund(key string, k *Key, n int64) {
	if n < 0 || key == "" || l.state.Load() != stateOpen {
		l.counters.invalid.Add(1)
		return
	}
	for n > 0 && l.state.Load() == stateOpen {
		if e, _ := l.entryOf(key, false, k); e == nil || e.refund(n) {
			return
		}
	}
}

// Refund says that n tokens were not used; see Limiter.Refund.
func (k *Key) Refund(n int64) { k.l.refund(k.name, k, n) }

// refund has n tokens travel with the next call; it is false where e has ended since it was found.
func (e *entry) refund(n int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false
	}
	e.client.Refund(min(n, e.client.Capacity()))
	e.Wake(false)
	return true
}

// Reset makes key's bucket what a new one would be: full, or empty with Policy.StartEmpty. The
// limits stay. This process gives back what it holds first; for what others held at their last
// report, room is kept. This process sees the reset at once, the others within a TTL. A bucket that
// does not exist is not created. Errors are those of Peek.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	defer l.giveBackAll(ctx, key)()
	_, err := l.configure(ctx, "reset", key, lease.OpReset)
	return err
}

// ResetTo is SetLimits and Reset in one operation: key's bucket becomes what a new one with these
// limits would be, and at no moment has the new limits and the old use. A bucket that does not
// exist is created. Errors are those of SetLimits.
func (l *Limiter) ResetTo(ctx context.Context, key string, limits ...Limit) error {
	defer l.giveBackAll(ctx, key)()
	_, err := l.configure(ctx, "reset", key, lease.OpReplace, limits...)
	return err
}

// SetLimits stores limits for key in place of those that are in force, for the whole fleet: this
// process follows at once, the others within a TTL. What was used stays used (ResetTo drops that),
// and equal limits go on wherever they stand now; docs/protocol.md sections 1 and 6 say what holds
// in between. They win over Config.Limits until a process comes with a higher Config.Version, and
// are remembered for 30 days after the last use. Errors are those of Peek, or wrap
// ErrInvalidConfig.
func (l *Limiter) SetLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "set limits", key, lease.OpSet, limits...)
	return err
}

// TrySetLimits is SetLimits where no limits were set for key before, by any process; otherwise it
// changes nothing. It reports whether it has set them.
func (l *Limiter) TrySetLimits(ctx context.Context, key string, limits ...Limit) (bool, error) {
	st, err := l.configure(ctx, "set limits", key, lease.OpSetIfAbsent, limits...)
	return st.Changed, err
}

// LimitsOf asks the store for the limits in force for key; where it has no bucket, they are those
// of Config. Errors are those of Peek.
func (l *Limiter) LimitsOf(ctx context.Context, key string) ([]Limit, error) {
	st, err := l.inspect(ctx, "limits", key, nil)
	return slices.Clone(st.Config.Limits), err
}

// Ping opens a connection to every node of the store and prepares it for calls, which on a slow
// link takes longer than CallTimeout: a service that must not deny its first requests calls it
// before it takes traffic. It draws and writes nothing. Errors wrap ErrUnavailable (and
// lease.ErrPermanent where somebody must act), the context's error or ErrClosed.
func (l *Limiter) Ping(ctx context.Context) error {
	switch {
	case l.state.Load() != stateOpen:
		return ErrClosed
	case ctx.Err() != nil:
		return endedBy(ctx, "ping")
	}
	p, ok := l.store.(lease.Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	if err := p.Ping(ctx); err != nil {
		return fmt.Errorf("hybrid: ping: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// inspect is the state of key's bucket; where there is none, what a new one would have.
func (l *Limiter) inspect(ctx context.Context, what, key string, k *Key) (lease.State, error) {
	if err := l.checkGiven(k); err != nil {
		return lease.State{}, fmt.Errorf("hybrid: %s: %w", what, err)
	}
	st, err := l.configure(ctx, what, key, lease.OpInspect)
	if err != nil || st.Exists {
		return st, err
	}
	if st.Config, err = l.proposal(key, k); err != nil {
		return lease.State{}, fmt.Errorf("hybrid: %s: %w", what, err)
	}
	for k, limit := range st.Config.Limits {
		if !l.cfg.Policy.StartEmpty {
			st.Levels[k] = limit.Capacity()
		}
	}
	return st, nil
}

// configure executes one operation on the bucket, within a deadline of its own.
func (l *Limiter) configure(
	ctx context.Context, what, key string, op lease.Op, limits ...Limit,
) (lease.State, error) {
	switch {
	case l.state.Load() != stateOpen:
		return lease.State{}, ErrClosed
	case key == "":
		return lease.State{}, errEmptyKey
	case ctx.Err() != nil:
		return lease.State{}, endedBy(ctx, what)
	}
	var c lease.Config
	if op == lease.OpSet || op == lease.OpSetIfAbsent || op == lease.OpReplace {
		c = l.cfg.Policy.ConfigFor(slices.Clone(limits), l.cfg.Version, l.cfg.CallTimeout)
		// A T that shrinks and grows again would burn leases.
		if own, err := l.proposal(key, nil); err == nil {
			c.TTL = max(c.TTL, own.TTL)
		}
		l.eachSibling(func(l *Limiter) {
			if e, _ := l.entry(key, false); e != nil {
				e.mu.Lock()
				c.TTL = max(c.TTL, e.client.TTL())
				e.mu.Unlock()
			}
		})
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.cfg.Clock.AfterFunc(lateFactor*l.cfg.CallTimeout, func() { cancel(errOverdue) }).Stop()
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	st, err := lease.State{}, error(nil)
	if len(c.Limits) > 0 {
		err = c.Validate()
	}
	if err == nil {
		st, err = l.store.Configure(bounded, l.storedKey(lease.ShortKey(key)), op, c)
	}
	switch {
	case err == nil:
		l.follow(key, st)
		return st, nil
	case ctx.Err() != nil:
		err = endedBy(ctx, what)
	case l.ctx.Err() != nil:
		err = fmt.Errorf("hybrid: %s: %w", what, ErrClosed)
	case errors.Is(err, lease.ErrInvalidConfig):
		err = fmt.Errorf("hybrid: %s: %w: %w", what, ErrInvalidConfig, err)
	default:
		err = fmt.Errorf("hybrid: %s: %w: %w", what, ErrUnavailable, err)
	}
	return lease.State{}, err
}

// follow has this process follow at once what it has changed itself.
func (l *Limiter) follow(key string, st lease.State) {
	if !st.Changed {
		return
	}
	l.eachSibling(func(l *Limiter) {
		if e := l.keys.inUse(key); e != nil {
			e.bucketChanged(st.Config.Limits)
		}
	})
}

// bucketChanged has e follow limits that are in force by now.
func (e *entry) bucketChanged(limits []Limit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.Closed() {
		e.client.BucketChanged(limits)
		e.heardAt = 0
		e.Wake(true)
	}
}

// giveBackAll gives back what this process holds of key, and takes nothing more until end is
// called.
func (l *Limiter) giveBackAll(ctx context.Context, key string) (end func()) {
	var all []*entry
	l.eachSibling(func(l *Limiter) {
		if e, _ := l.entry(key, false); e != nil {
			all = append(all, e)
			e.beginReset(ctx)
		}
	})
	return func() {
		for _, e := range all {
			e.mu.Lock()
			e.client.EndReset()
			e.Wake(e.client.HasWaiters())
			e.mu.Unlock()
		}
	}
}

// beginReset gives back what is held, with a call that is made now, and returns when that has
// ended.
func (e *entry) beginReset(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.l.seq.Load() + 1 // a call that is under way may have been built too early
	e.client.BeginReset(first)
	for !e.client.Closed() && !e.client.Degraded() && !e.client.HasEnded(first) && ctx.Err() == nil {
		if e.endings == nil {
			e.endings = make(chan struct{})
		}
		ended := e.endings
		if e.flight == nil {
			e.Wake(true)
		}
		e.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

// askCapacity asks the store, at most once a T, whether a request above the burst that is known
// here is within the one that is in force by now (docs/protocol.md section 9.12).
func (l *Limiter) askCapacity(e *entry, r request) bool {
	e.mu.Lock()
	now := l.cfg.Clock.Now()
	recent := e.heardAt != 0 && now < e.heardAt.Add(e.client.TTL())
	if e.client.Degraded() {
		e.client.Refuse(min(r.n, e.client.Capacity())) // the reply to a probe tells, but nobody waits for it
		recent = true
	}
	if recent || e.client.Closed() {
		e.mu.Unlock()
		return false
	}
	e.heardAt = now
	e.mu.Unlock()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer l.cfg.Clock.AfterFunc(r.callWait(now, l.cfg.CallTimeout), cancel).Stop()
	st, err := l.configure(ctx, "limits", r.name, lease.OpInspect)
	if err != nil || !st.Exists {
		return false
	}
	e.client.KnowLimits(st.Config.Limits)
	return r.n <= e.client.Capacity()
}
