package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// request is what a verb asks for.
type request struct {
	name     string
	key      *Key // that it came by, and is to point to the entry; nil where it came by name
	n        int64
	tried    *entry // the key's, if it is known; decide expects that its pool has refused n
	patience protocol.Patience
	ctx      context.Context // nil stands for one that never ends
	verb     string          // for errors about ctx
	until    clock.Instant   // it waits for no call longer than that; 0 for CallTimeout alone
}

// callWait is for how long from now on r may wait for a call with this CallTimeout.
func (r *request) callWait(now clock.Instant, callTimeout time.Duration) time.Duration {
	if r.until == 0 {
		return callTimeout
	}
	return min(callTimeout, r.until.Sub(now))
}

// least is how many tokens r can do with.
func (r *request) least() int64 {
	if r.patience == protocol.UpTo {
		return min(r.n, 1)
	}
	return r.n
}

// decision is the answer to a request.
type decision struct {
	ok       bool
	taken    int64 // n where ok, or fewer for patience UpTo
	shadowed bool  // a limit denies it, and Policy.Shadow admits it; wait is that of the denial
	source   Source
	err      error
	entry    *entry
	hold     hold          // what an admitted request holds of the entry's
	wait     time.Duration // after a denial: to ask again earlier is in vain
	counted  bool          // after a denial: Stats has it, though there is no entry
	// What is known of the bucket, for a Result; nil where there is an entry.
	outlook *protocol.Outlook
}

// decide is what every verb comes to when the pool did not serve it.
func (l *Limiter) decide(r request) decision {
	r.patience = l.patience(r.patience)
	d := l.answer(r)
	if !d.ok {
		d = l.refuse(r, d)
	}
	return d
}

// refuse counts what no entry does of the denial d, and tells who listens. With Policy.Shadow the
// request may be admitted all the same.
func (l *Limiter) refuse(r request, d decision) decision {
	overruled := l.overrules(d.err)
	misconfigured := errors.Is(d.err, ErrInvalidConfig)
	if misconfigured {
		l.counters.misconfigured.Add(1)
	}
	switch {
	case d.counted:
	case d.entry == nil && errors.Is(d.err, ErrUnavailable):
		l.counters.crowded.Add(r.n)
	case overruled && d.err != nil:
		l.counters.shadowed.Add(r.n)
		if d.entry != nil { // it asks for more than the burst
			l.counters.blame(d.entry.smallest(), r.n)
		}
	case misconfigured:
	case d.entry == nil || errors.Is(d.err, ErrClosed) || errors.Is(d.err, ErrExceedsBurst):
		l.counters.invalid.Add(1)
	}
	if r.n >= 0 {
		l.denied(r.name, r.n)
	}
	if overruled {
		d.ok, d.taken, d.shadowed, d.err = true, r.n, true, nil
	}
	return d
}

// answer finds the entry that decides r. The entry is nil where there is none, or no need of one.
func (l *Limiter) answer(r request) decision {
	switch {
	case l.state.Load() != stateOpen:
		r.tried.uncount(r.n)
		return decision{err: ErrClosed}
	case r.name == "":
		return decision{err: errEmptyKey}
	case r.n < 0:
		return decision{err: fmt.Errorf("%w: n is %d, must be at least 0", ErrInvalidN, r.n)}
	case r.n == 0:
		return decision{ok: true, entry: l.keys.inUse(r.name)}
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	return l.answerFrom(r)
}

// answerFrom is the answer of l's entry to r, which is a valid request.
func (l *Limiter) answerFrom(r request) decision {
	for e := r.tried; ; e = nil {
		if l.state.Load() != stateOpen {
			return decision{err: ErrClosed}
		}
		if e == nil {
			if d, done := l.drawFor(&r); done {
				return d
			}
			if d, done := l.answerAway(&r); done {
				return d
			}
			var err error
			if e, err = l.entryOf(r.name, true, r.key); err != nil {
				return decision{err: err}
			}
			r.key.bind(e)
			r.n = e.most(r)
			if h, ok := e.takeHold(r.n); ok {
				return decision{ok: true, taken: r.n, entry: e, hold: h}
			}
		}
		d, gone := e.decide(r)
		if !gone && !(errors.Is(d.err, ErrExceedsBurst) && l.askCapacity(e, r)) {
			d.entry = e
			return d
		}
	}
}

// most is how many tokens of those that r asks for there can be at once: all of them, or with
// patience UpTo the burst.
func (e *entry) most(r request) int64 {
	if e == nil || r.patience != protocol.UpTo {
		return r.n
	}
	return min(r.n, e.client.Capacity())
}

// uncount takes back that a take of n tokens was counted as missed: after Close it is no demand.
func (e *entry) uncount(n int64) {
	if e == nil || n <= 0 || n > 1 && n > e.client.Capacity() {
		return // was not counted
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client.Uncount(n)
	e.burnLateLocked()
}

// burnLateLocked counts as burnt what a take found to be late (Policy.StrictExpiry) when the entry
// had ended meanwhile, and its account had gone to the Limiter's.
func (e *entry) burnLateLocked() {
	if n := e.client.LateAfterClose(); n > 0 {
		e.l.counters.burn(e, n)
	}
}

// decide answers r, whose tokens the pool did not have, unless the entry is gone.
func (e *entry) decide(r request) (d decision, gone bool) {
	if until := e.client.ShutUntil(); until != 0 && r.n == 1 && r.patience != protocol.InLine {
		if now := e.Now(); now < until { // the commonest denial costs no lock
			d.wait = until.Sub(now)
			return d, false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client.Closed() {
		e.burnLateLocked()
		return decision{}, true
	}
	now := e.Now()
	deadline := protocol.Never
	if at, ok := r.ctx.Deadline(); ok && r.patience == protocol.InLine {
		deadline = now.Add(time.Until(at))
	}
	e.locateLocked()
	told := e.client.Decide(now, r.n, r.patience, deadline)
	switch told.Verdict {
	case protocol.VerdictWait:
		told = e.awaitLocked(r, now, deadline)
	case protocol.VerdictClosed:
		e.client.Uncount(r.n)
	default:
		e.countSource(told)
	}
	return e.decisionLocked(told, r, deadline.Sub(now), told.EarliestAt.Sub(now)), false
}

// decisionLocked is the answer to r, which was told so.
func (e *entry) decisionLocked(told protocol.Decision, r request, deadline, earliest time.Duration) decision {
	if told.OK() || told.Verdict == protocol.VerdictDeny {
		e.denied = !told.OK()
	}
	e.sufferLocked(e.Now())
	d := decision{
		ok: told.OK(), taken: told.Took, source: told.Source, entry: e, hold: e.holdOf(told),
	}
	if !d.ok {
		at := e.Now()
		d.wait = e.client.RetryAt(at, r.least(), d.source).Sub(at)
		d.err = e.errorOf(told, r, deadline, earliest)
	}
	return d
}

// waiter is a request that waits.
type waiter struct {
	protocol.Waiter
	told chan protocol.Decision
	ctx  context.Context
}

// awaitLocked has r wait. The lock is free meanwhile.
func (e *entry) awaitLocked(r request, now, deadline clock.Instant) protocol.Decision {
	w := &waiter{told: make(chan protocol.Decision, 1), ctx: r.ctx}
	w.Waiter = protocol.Waiter{N: r.n, Patience: r.patience, Deadline: deadline, Owner: w}
	e.client.Enqueue(now, &w.Waiter)
	if r.patience != protocol.InLine {
		timer := e.l.cfg.Clock.AfterFunc(r.callWait(now, e.l.cfg.CallTimeout), func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.client.TimeOut(e.Now(), &w.Waiter)
		})
		defer timer.Stop()
	}
	e.mu.Unlock()
	select {
	case d := <-w.told:
		e.mu.Lock()
		return d
	case <-r.ctx.Done():
		e.mu.Lock()
		e.client.Cancel(e.Now(), &w.Waiter) // unless it was told something in the same moment
		return <-w.told
	}
}

// errorOf is the error of a request that was told d; nil for a mere denial.
func (e *entry) errorOf(d protocol.Decision, r request, deadline, earliest time.Duration) error {
	switch d.Verdict {
	case protocol.VerdictExceedsBurst:
		return fmt.Errorf("%w: n is %d, the burst is %d", ErrExceedsBurst, r.n, e.client.Capacity())
	case protocol.VerdictTooLate:
		return fmt.Errorf("%w: the tokens can be there in %v, the deadline is in %v",
			ErrWouldExceedDeadline, earliest, deadline)
	case protocol.VerdictUnavailable:
		return fmt.Errorf("%w: and Policy.Fallback gives nothing", ErrUnavailable)
	case protocol.VerdictClosed:
		return ErrClosed
	case protocol.VerdictCancelled:
		return endedBy(r.ctx, r.verb)
	}
	return nil
}

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)

// endedBy is the error of what ctx ended: the context's own, and its cause where that says more.
func endedBy(ctx context.Context, what string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return fmt.Errorf("hybrid: %s: %w", what, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", what, err, cause)
}

// countSource counts the tokens that were admitted without the store's, and those that a request
// has waited for.
func (e *entry) countSource(d protocol.Decision) {
	switch d.Source {
	case SourceFallback:
		e.l.counters.fallback.Add(d.Took)
	case SourceStore:
		e.l.counters.awaited.Add(d.Took)
	}
}
