package hybrid

import (
	"context"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Key is a handle for one key of a Limiter. It has the Limiter's methods without the key, and saves
// the look-up by name. It lives as long as the Limiter, also while the key is out of use.
// Goroutines may share it.
type Key struct {
	l      *Limiter
	name   string
	strict bool
	e      atomic.Pointer[entry]
}

// Name is the key's name.
func (k *Key) Name() string { return k.name }

// Allow takes one token; see Limiter.Allow.
func (k *Key) Allow() bool {
	if e := k.e.Load(); e != nil && !k.strict {
		p := &e.client.Pool
		left, mark := p.Begin()
		if left >= mark {
			return true
		}
		switch mark {
		case lease.MarkStriped:
			i := lease.Pin()
			ok := p.TakeAt(i)
			lease.Unpin(i)
			if ok {
				return true
			}
		case lease.MarkDenied:
			i := lease.Pin()
			p.MissAt(i)
			lease.Unpin(i)
			return false
		}
		return k.allowed(e, p.End(left, mark))
	}
	return k.AllowN(1)
}

// allowed is the rest of Allow where the pool had more to do than to hand out a token.
func (k *Key) allowed(e *entry, t lease.Taken) bool {
	switch t {
	case lease.TookLow:
		e.low()
		return true
	case lease.Took:
		return true
	case lease.Denied:
		return false
	}
	return k.l.decide(request{name: k.name, key: k, n: 1, tried: e, patience: lease.OneCall}).ok
}

// AllowN takes n tokens or none; see Limiter.AllowN.
func (k *Key) AllowN(n int64) bool {
	e := k.e.Load()
	if e != nil && n > 0 && e.take(n, k.strict) {
		return true
	}
	return k.l.decide(request{name: k.name, key: k, n: n, tried: e, patience: lease.OneCall}).ok
}

// TryAllow is Allow that never waits; see Limiter.TryAllow.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	if e != nil && e.take(1, k.strict) {
		return true
	}
	return k.l.decide(request{name: k.name, key: k, n: 1, tried: e}).ok
}

// Take takes n tokens or none and says why; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, ended("take", ctx)
	}
	e := k.e.Load()
	d := decision{ok: true, entry: e}
	if e == nil || n <= 0 || !e.take(n, k.strict) {
		d = k.l.decide(request{name: k.name, key: k, n: n, tried: e, patience: lease.OneCall, ctx: ctx})
	}
	if d.err != nil {
		return Result{}, d.err
	}
	return d.result(n), nil
}

// Wait waits for one token; see Limiter.WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits for n tokens; see Limiter.WaitN.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	if ctx.Err() != nil {
		return ended("wait", ctx)
	}
	e := k.e.Load()
	if e != nil && n > 0 && e.take(n, k.strict) {
		return nil
	}
	return k.l.decide(request{name: k.name, key: k, n: n, tried: e, patience: lease.InLine, ctx: ctx}).err
}
