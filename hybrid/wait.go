package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Wait waits for one token of key; see WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n tokens of key are this request's and returns nil, or returns an error and has taken none. Of
// one process's waiting requests the first that came is the first that is served, whatever its n, and each of them
// goes before Allow. n may be up to the burst. It costs no polling: one call asks for all who wait, when the bucket
// has said that there will be tokens, and again within a TTL, in case the limits were changed.
//
// Errors wrap ErrWouldExceedDeadline, at once, where the context's deadline comes before the tokens can; the
// context's error when it ends first; ErrExceedsBurst, also where the limit is lowered meanwhile; ErrUnavailable
// where the store is away and Policy.Fallback gives nothing; ErrClosed, ErrInvalidKey, ErrInvalidN. WaitN of 0 costs
// nothing and returns nil.
//
// Where other processes draw too, a large n is gathered over several grants; each token counts against the limit when
// the bucket grants it, not when WaitN returns.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if ctx.Err() != nil {
		return ended("wait", ctx)
	}
	e := l.keys.glance(key)
	if e != nil && n > 0 && e.take(n, l.cfg.Policy.StrictExpiry) {
		return nil
	}
	return l.decide(request{name: key, n: n, tried: e, patient: true, ctx: ctx}).err
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
	return k.l.decide(request{name: k.name, key: k, n: n, tried: e, patient: true, ctx: ctx}).err
}

// wait serves a patient request now, or queues it and waits without the lock, which the caller holds.
func (e *entry) wait(r request, now clock.Instant) decision {
	if e.queue.patients == 0 && e.takeQueued(r.n) {
		return decision{ok: true}
	}
	if e.holder.Degraded() {
		e.wanted(r.n) // somebody wants a probe
		if e.queue.patients == 0 && e.admitWithout(now, r.n) {
			return decision{ok: true, source: SourceFallback}
		}
		if _, ok := e.holder.FallbackAt(now, r.n); !ok {
			return decision{err: errAway}
		}
	}
	w := &waiter{n: r.n, patient: true, deadline: lease.Never, ready: make(chan outcome, 1)}
	if at, ok := r.ctx.Deadline(); ok {
		w.deadline = now.Add(time.Until(at))
	}
	if err := e.inVain(now, e.queue.patient+r.n, w.deadline); err != nil {
		return decision{err: err}
	}
	e.queue.push(w)
	if now < e.holder.DeniedUntil() && e.holder.Spares(e.queue.patient) {
		e.endDelay() // it was a larger request that the bucket did not have enough for
	}
	if e.queue.patients == 1 {
		e.gather(w) // what is left in the pool, which is less than all
	}
	if e.flight == nil {
		e.kick(now >= e.holder.DeniedUntil())
	}
	e.mu.Unlock()
	var out outcome
	select {
	case out = <-w.ready:
	case <-r.ctx.Done():
		out = e.abandon(w, ended("wait", r.ctx))
	}
	e.mu.Lock()
	return decision{ok: out.ok, source: out.source, err: out.err}
}

// inVain is the error of a request that certainly cannot have its tokens by deadline: not even if other processes gave
// back all that they held at the last reply. ahead is what it and those before it lack. Nil where that is not known, or
// what is known is older than a T: then the next reply tells.
func (e *entry) inVain(now clock.Instant, ahead int64, deadline clock.Instant) error {
	v := e.view.Load()
	if v == nil || deadline == lease.Never || e.holder.Degraded() || e.holder.Outdated() || e.resets > 0 || now >= v.at.Add(e.holder.TTL()) {
		return nil
	}
	ahead -= e.holder.Pool.Held() + e.holder.Pending()
	if ahead <= 0 {
		return nil
	}
	at := max(now, v.earliest(ahead))
	if e.flight == nil && !e.holder.Spares(ahead) {
		at = max(at, e.holder.DeniedUntil()) // no call brings any before
	}
	if at <= deadline {
		return nil
	}
	return fmt.Errorf("%w: the tokens can be there in %v, the deadline is in %v", ErrWouldExceedDeadline, at.Sub(now), deadline.Sub(now))
}
