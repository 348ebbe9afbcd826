package hybrid

import (
	"context"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Wait waits for one token of key; see WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n tokens of key are this request's and returns nil, or returns an error and has
// taken none. Of one process's waiting requests the first that came is the first that is served,
// whatever its n, and each of them goes before Allow. n may be up to the burst. It costs no
// polling: one call asks for all who wait, when the bucket has said that there will be tokens, and
// again within a TTL, in case the limits were changed.
//
// Errors wrap ErrWouldExceedDeadline, at once, where the context's deadline comes before the tokens
// can; the context's error when it ends first; ErrExceedsBurst, also where the limit is lowered
// meanwhile; ErrUnavailable where the store is away and Policy.Fallback gives nothing; ErrClosed,
// ErrInvalidKey, ErrInvalidN. WaitN of 0 costs nothing and returns nil.
//
// Where other processes draw too, a large n is gathered over several grants; each token counts
// against the limit when the bucket grants it, not when WaitN returns.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if ctx.Err() != nil {
		return ended("wait", ctx)
	}
	e := l.keys.glance(key)
	if e != nil && n > 0 && e.take(n, l.cfg.Policy.StrictExpiry) {
		return nil
	}
	return l.decide(request{name: key, n: n, tried: e, patience: lease.InLine, ctx: ctx}).err
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
