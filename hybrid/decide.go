package hybrid

import (
	"context"
	"errors"
	"fmt"

	"github.com/yuzhi-go/yuzhi/clock"
)

// request is one question to the Limiter that the hot path could not answer.
type request struct {
	name  string
	key   *Key // whose entry to renew; nil where the caller came by name
	n     int64
	tried *entry // whose pool has refused it already
	wait  bool   // one lease call may be awaited
	// patient: waits until the tokens are there or ctx ends.
	patient bool
	ctx     context.Context // nil: CallTimeout alone bounds the wait
}

// decision is the answer.
type decision struct {
	ok     bool
	source Source
	err    error
	entry  *entry
	// A denial was decided at time at, and asking again before until is in vain.
	at, until clock.Instant
}

func (d decision) result(n int64) Result {
	r := Result{OK: d.ok, Source: d.source}
	if d.entry == nil {
		return r
	}
	now := d.at
	if d.ok {
		now = d.entry.l.cfg.Clock.Now()
	}
	v := d.entry.view.Load()
	if v == nil { // nothing has been heard yet
		v = &view{limits: d.entry.proposed, at: now, made: now}
	}
	r = v.result(d.ok, n, d.entry.holder.Pool.Held(), now, d.source)
	if !d.ok && d.source == SourceFallback {
		r.RetryAfter = 0 // what was last heard of the bucket decides nothing now
	}
	if !d.ok {
		r.RetryAfter = max(r.RetryAfter, d.until.Sub(d.at), 1)
	}
	return r
}

// decide is what every verb comes to when the pool did not serve it.
func (l *Limiter) decide(r request) decision {
	switch {
	case l.state.Load() != stateOpen:
		return l.invalid(r, ErrClosed)
	case r.name == "":
		return l.invalid(r, errEmptyKey)
	case r.n < 0:
		return l.invalid(r, fmt.Errorf("%w: n is %d, must be at least 0", ErrInvalidN, r.n))
	case r.n == 0:
		return decision{ok: true, entry: l.keys.inUse(r.name)}
	}
	counted := false // as missed, by an entry that has gone since
	for e := r.tried; ; e = nil {
		if e == nil {
			var err error
			if e, err = l.entry(r.name); err != nil {
				return l.refuse(r, err)
			}
			if r.key != nil {
				r.key.e.Store(e)
			}
			if counted {
				e.uncount(r.n)
				counted = false
			}
			if e.take(r.n, l.cfg.Policy.StrictExpiry) {
				return decision{ok: true, entry: e}
			}
		}
		d, gone := e.decide(r)
		if gone {
			counted = e.counts(r.n)
			continue
		}
		if errors.Is(d.err, ErrExceedsBurst) && l.hasGrown(e, r) {
			continue
		}
		d.entry = e
		if errors.Is(d.err, ErrClosed) || errors.Is(d.err, ErrExceedsBurst) {
			return l.invalid(r, d.err)
		}
		if !d.ok && l.cfg.Events.Denied != nil {
			l.cfg.Events.Denied(r.name, r.n)
		}
		return d
	}
}

// invalid answers a request that cannot be decided on.
func (l *Limiter) invalid(r request, err error) decision {
	if r.tried != nil && r.n > 0 && errors.Is(err, ErrClosed) {
		r.tried.uncount(r.n)
	}
	return l.refuse(r, err)
}

// refuse answers a request with an error; no entry counts it.
func (l *Limiter) refuse(r request, err error) decision {
	if errors.Is(err, ErrUnavailable) {
		l.counters.crowded.Add(r.n)
	} else {
		l.counters.invalid.Add(1)
	}
	if r.n >= 0 && l.cfg.Events.Denied != nil {
		l.cfg.Events.Denied(r.name, r.n)
	}
	return decision{err: err}
}

// decide answers r, whose tokens the pool did not have. gone says that the entry has left the table.
func (e *entry) decide(r request) (d decision, gone bool) {
	// The commonest denial: known to be empty. It costs no lock.
	if shut := clock.Instant(e.gate.Load()); shut != 0 && r.n == 1 && !r.patient {
		if now := e.l.cfg.Clock.Now(); now < shut {
			return decision{at: now, until: shut}, false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if d, gone = e.decideLocked(r); !d.ok {
		d.at = e.l.cfg.Clock.Now()
		d.until = e.retryAt(d, r.n)
	}
	return d, gone
}

// retryAt is when it is worth while to ask again for n tokens that d has denied.
func (e *entry) retryAt(d decision, n int64) clock.Instant {
	if d.source != SourceFallback {
		return e.holder.DeniedUntil()
	}
	if at, ok := e.holder.FallbackAt(d.at, n); ok {
		return at
	}
	return d.at.Add(e.l.cfg.CallTimeout) // by then a call that finds the store well again has its answer
}

func (e *entry) decideLocked(r request) (d decision, gone bool) {
	if e.gone {
		return decision{}, true
	}
	if e.leaver != nil || e.closed {
		return decision{err: ErrClosed}, false
	}
	if c := e.capacity.Load(); r.n > c {
		return decision{err: errExceedsBurst(r.n, c)}, false
	}
	now := e.l.cfg.Clock.Now()
	if before := e.holder.DeniedUntil(); now < before && !e.holder.Outdated() {
		if r.patient {
			e.holder.Hasten(e.queue.patient + r.n)
		} else if e.queue.patients == 0 {
			e.holder.Hasten(r.n)
		}
		if e.holder.DeniedUntil() < before {
			if e.gate.Load() != 0 {
				e.judgeGate(now)
			}
			if e.flight == nil {
				e.kick(false)
			}
		}
	}
	e.holder.Expire(now) // a process that was stopped comes here before its timers run
	if r.patient {
		return e.wait(r, now), false
	}
	if e.takeQueued(r.n) {
		return decision{ok: true}, false
	}
	switch {
	case e.holder.Degraded(), !r.wait && !e.holder.Replied():
		e.wanted(r.n)
		// Those who wait for the local share go before.
		ok := (e.queue.patients == 0 || !e.holder.Replied()) && e.admitWithout(now, r.n)
		return decision{ok: ok, source: SourceFallback}, false
	case now < e.holder.DeniedUntil() && e.queue.patients == 0 && e.holder.Spares(r.n):
		e.endDelay() // it was a larger request that the bucket did not have enough for
		if e.flight == nil {
			e.kick(false) // wanted may have been told before
		}
	case now < e.holder.DeniedUntil():
		e.refused = max(e.refused, r.n) // asked for when the delay ends
		if r.n == 1 {
			e.judgeGate(now) // what was left when the reply came may have been spent
		}
		return decision{}, false
	}
	if !r.wait {
		e.wanted(r.n)
		return decision{}, false
	}
	return e.await(r), false
}

// counts reports whether a take of n tokens that this entry refused, which has gone, is among what was missed when it
// went; what its pool counted later nobody sums up.
func (e *entry) counts(n int64) bool {
	if n > 1 && n > e.capacity.Load() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder.Pool.Missed()-e.missed >= n {
		e.missed += n // this one it was
		return false
	}
	return true
}

// uncount takes back that a take of n tokens was counted as missed: the request was no demand.
func (e *entry) uncount(n int64) {
	if n > 1 && n > e.capacity.Load() {
		return // was not counted
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holder.Served(n)
}

// await queues r for the next reply and waits without the lock, which the caller holds.
func (e *entry) await(r request) decision {
	w := &waiter{n: r.n, ready: make(chan outcome, 1)}
	e.queue.push(w)
	if e.flight == nil {
		e.kick(true)
	}
	timer := e.l.cfg.Clock.AfterFunc(e.l.cfg.CallTimeout, func() { e.expire(w) })
	e.mu.Unlock()
	var done <-chan struct{}
	if r.ctx != nil {
		done = r.ctx.Done()
	}
	var out outcome
	select {
	case out = <-w.ready:
	case <-done:
		out = e.abandon(w, ended("take", r.ctx))
	}
	timer.Stop()
	e.mu.Lock()
	return decision{ok: out.ok, source: out.source, err: out.err}
}

// ended is the error of what ctx ended: the context's own, and its cause where that says more.
func ended(what string, ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return fmt.Errorf("hybrid: %s: %w", what, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", what, err, cause)
}
