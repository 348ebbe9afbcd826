package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Peek reports on key without taking anything: it asks the store once, costs no tokens, and creates
// nothing there or here. OK says whether one token is to be had now; Remaining counts what this
// process holds and what the bucket has. Errors wrap ErrUnavailable (where the store does not
// answer within ten CallTimeouts, if ctx allows as much), the context's error, ErrClosed or
// ErrInvalidKey, or ErrInvalidConfig where Config.LimitsFor gives limits that cannot be used.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	st, err := l.inspect(ctx, "peek", key)
	if err != nil {
		return Result{}, err
	}
	held := int64(0)
	if e := l.keys.inUse(key); e != nil {
		held = e.client.Pool.Held()
	}
	ok := held+slices.Min(st.Levels[:len(st.Config.Limits)]) > 0
	return resultOf(ok, SourceStore, st.Outlook(1, held, ok)), nil
}

// Peek reports without taking anything; see Limiter.Peek.
func (k *Key) Peek(ctx context.Context) (Result, error) { return k.l.Peek(ctx, k.name) }

// Refund says that n tokens of key, with which this process admitted something, were not used after
// all. It does not wait: they travel with the key's next lease call, within a Target. When the
// bucket credits them, up to its burst, they are a new permit at that moment. A refund on the way
// to a store that fails is lost. Who refunds more than was taken breaks the limit.
//
// Nothing happens, and nothing is created, for a key that is not in this process's table: one that
// it never used, or so long ago that its bucket was full since, or that had to make room for others
// (Config.KeysMax). Nor after Close, for an empty key, or for n of 0 or less (counted in Stats as
// invalid).
func (l *Limiter) Refund(key string, n int64) {
	if n < 0 || key == "" || l.state.Load() != stateOpen {
		l.counters.invalid.Add(1)
		return
	}
	if n == 0 {
		return
	}
	for l.state.Load() == stateOpen {
		if e, _ := l.entry(key, false); e == nil || e.refund(n) {
			return
		}
	}
}

// Refund says that n tokens were not used; see Limiter.Refund.
func (k *Key) Refund(n int64) { k.l.Refund(k.name, n) }

// refund has n tokens travel with the next call; it is false where e has ended since it was found.
func (e *entry) refund(n int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return false
	}
	e.client.Refund(min(n, e.client.Capacity()))
	e.wake(false)
	return true
}

// Reset makes key's bucket what a new one would be: full, or empty with Policy.StartEmpty. The
// limits stay. This process gives back what it holds first, so that a whole burst can be had if it
// is the only one. What other processes hold stays theirs, and room is kept for what they held at
// their last report, spent or not: of the burst, as much is missing. This process sees the reset at
// once, the others within a TTL. A bucket that does not exist is not created. Errors are those of
// Peek.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if e, _ := l.entry(key, false); e != nil {
		e.beginReset(ctx)
		defer e.endReset()
	}
	_, err := l.configure(ctx, "reset", key, lease.OpReset)
	return err
}

// SetLimits stores limits for key in place of those that are in force, for the whole fleet: this
// process follows at once, the others with their next lease call, at most a TTL later. They keep
// what was used: a burst that grows leaves the level, one that shrinks leaves max(0, new burst -
// used). (To drop what was used, Reset afterwards.) What was leased under the old limits counts as
// used and ends within a TTL; where more is leased than the new burst allows nothing is granted
// until then. Which bound holds meanwhile: docs/protocol.md section 1.
//
// Equal limits go on wherever they stand now, then those of equal Per in their order, then the
// rest; one that is left over is new and starts full.
//
// Limits that were set win over Config.Limits until a process comes with a higher Config.Version,
// and are remembered for 30 days after the last use. Errors are those of Peek, or wrap
// ErrInvalidConfig and name every violation.
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
	st, err := l.inspect(ctx, "limits", key)
	return slices.Clone(st.Config.Limits), err
}

// Ping opens a connection to every node of the store and prepares it for calls, which takes several
// round trips: on a slow link more than CallTimeout. A service that must not deny its first
// requests calls it before it takes traffic. It draws nothing and writes nothing. With a store that
// needs no connection it does nothing.
//
// It ends with ctx, or as soon as it is known why there is no connection: errors wrap
// ErrUnavailable (and lease.ErrPermanent where somebody must act: a certificate, a password, a
// permission), the context's error or ErrClosed.
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
func (l *Limiter) inspect(ctx context.Context, what, key string) (lease.State, error) {
	st, err := l.configure(ctx, what, key, lease.OpInspect)
	if err != nil || st.Exists {
		return st, err
	}
	if st.Config, err = l.proposal(key); err != nil {
		return lease.State{}, fmt.Errorf("hybrid: %s: %w", what, err)
	}
	for k, limit := range st.Config.Limits {
		if !l.cfg.Policy.StartEmpty {
			st.Levels[k] = limit.Capacity()
		}
	}
	return st, nil
}

// configure executes one operation on the bucket, within a deadline of its own: a store that hangs
// cannot hold its caller for ever.
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
	if op == lease.OpSet || op == lease.OpSetIfAbsent {
		c = l.configFor(key, slices.Clone(limits))
	}
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.cfg.Clock.AfterFunc(lateFactor*l.cfg.CallTimeout, func() { cancel(errOverdue) }).Stop()
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	st, err := l.store.Configure(bounded, key, op, c)
	switch {
	case err == nil:
		if st.Changed {
			l.follow(key, st)
		}
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

// follow has this process follow what it has changed itself at once, and not with its next lease
// call.
func (l *Limiter) follow(key string, st lease.State) {
	e := l.keys.inUse(key)
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		return
	}
	e.client.BucketChanged(st.Config.Capacity())
	e.heardAt = 0
	e.wake(true)
}

// beginReset reports what was spent and gives back what is held, with a call that is made now. It
// returns when that call has ended, or ctx has.
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
			e.wake(true)
		}
		e.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
}

func (e *entry) endReset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.EndReset()
	e.wake(e.client.HasWaiters())
}

// configFor is the configuration that sets limits for key. Its TTL is not below the one that this
// process has used so far. Others propose that with their next calls too, and a T that shrinks and
// then grows costs them what they hold.
func (l *Limiter) configFor(key string, limits []Limit) lease.Config {
	c := l.cfg.Policy.ConfigFor(limits, l.cfg.Version, l.cfg.CallTimeout)
	if before, err := l.proposal(key); err == nil {
		c.TTL = max(c.TTL, before.TTL)
	}
	if e, _ := l.entry(key, false); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		c.TTL = max(c.TTL, e.client.TTL())
	}
	return c
}

// askCapacity asks the store, at most once a T, whether a request above the burst that is known
// here is within the one that is in force by now. Where all of a process's requests are as large,
// no lease call would tell.
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
	defer l.cfg.Clock.AfterFunc(l.cfg.CallTimeout, cancel).Stop()
	st, err := l.configure(ctx, "limits", e.slot.name, lease.OpInspect)
	if err != nil || !st.Exists {
		return false
	}
	e.client.KnowCapacity(st.Config.Capacity())
	return r.n <= st.Config.Capacity()
}
