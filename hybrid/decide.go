package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/clock"
	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// request is one call of a verb.
type request struct {
	name     string
	spot     spot                   // of the key; the zero value where it was not looked up yet
	proposed proposed               // for the key; the zero value where it was not looked up yet
	handle   *atomic.Pointer[entry] // of the Key by which the request came; nil where it came by name
	own      *proposal              // of a KeyWithLimits; nil for others
	n        int64
	tried    *entry // the key's, if it is known; decide expects that its pool has refused n
	patience protocol.Patience
	joined   bool            // with other keys: a denial is counted where deny is told of it, and not before
	ctx      context.Context // nil stands for one that never ends
	verb     string          // for errors about ctx, of a verb that returns a Result or an error
	until    clock.Instant   // it waits for no call longer than that; 0 for CallTimeout alone
}

// callWait is for how long from now on r may wait for a call with this CallTimeout.
func (r *request) callWait(now clock.Instant, callTimeout time.Duration) time.Duration {
	if r.until == 0 {
		return callTimeout
	}
	return min(callTimeout, r.until.Sub(now))
}

// context returns the context of the caller, or nil where it gave none.
func (r *request) context() context.Context {
	if r.verb == "" {
		return nil
	}
	return r.ctx
}

// ask is r as protocol has it, without a deadline.
func (r *request) ask() protocol.Ask {
	return protocol.Ask{N: r.n, Patience: r.patience, Deadline: protocol.Never, Uncounted: r.joined}
}

func (r *request) least() int64 {
	if r.patience == protocol.UpTo {
		return min(r.n, 1)
	}
	return r.n
}

type decision struct {
	ok       bool
	taken    int64 // n where ok, or fewer for patience UpTo
	shadowed bool  // a limit denies it, and Policy.Shadow admits it; wait is that of the denial
	source   Source
	err      error
	entry    *entry
	hold     hold          // the entry's tokens that an admitted request has
	wait     time.Duration // after a denial: the earliest time at which it makes sense to ask again
	away     *storeNode    // that has decided for a key without an entry, by the local share
	most     int64         // all that a request can get of such a key
	// The outlook, for a Result; nil where there is an entry.
	outlook *protocol.Outlook
}

// Result is one decision. Above the limit a process denies until it asks again, although the bucket,
// and so Peek, may have tokens again: docs/protocol.md section 8.11.
type Result struct {
	OK        bool   // the request is admitted
	Taken     int64  // tokens that it has: all that it asked for where OK, or some of them by TakeUpTo
	Shadowed  bool   // only because of Policy.Shadow; the other fields are those of the denial
	Key       string // the key; of several that are joined, the one that binds (see Joined.Take)
	Limit     Limit  // the one with the least left of its burst, or, for a denial, the longest wait
	Remaining int64  // held here, and in the bucket at the last reply, at most Burst; not what others hold
	// RetryAfter is the earliest time at which the tokens can exist; 0 where OK, and never 0 for a
	// denial. A caller that sleeps RetryAfter between attempts is denied at most once per token.
	// Without the store it is when the local share has them, or else a CallTimeout.
	RetryAfter time.Duration
	// ResetAfter is how long it takes until Remaining is Burst, if no tokens are drawn. Of a sliding
	// window it is the longest that it can take, of a calendar the time until its boundary.
	ResetAfter time.Duration
	Source     Source // of the decision
}

func resultOf(key string, ok bool, source Source, o protocol.Outlook) Result {
	r := Result{
		OK: ok, Key: key, Limit: o.Limit, Remaining: o.Remaining, ResetAfter: o.ResetAfter, Source: source,
	}
	if !ok {
		r.RetryAfter = o.RetryAfter
	}
	return r
}

// result is the Result of d, for a request that least tokens admit.
func (d *decision) result(key string, least int64) Result {
	admitted := d.ok && !d.shadowed
	var o protocol.Outlook
	switch {
	case d.outlook != nil:
		o = *d.outlook
	case d.err != nil || d.entry == nil:
		return Result{OK: d.ok, Taken: d.taken, Shadowed: d.shadowed, Key: key, Source: d.source}
	default:
		o = d.entry.outlook(least, admitted)
	}
	r := resultOf(key, admitted, d.source, o)
	r.OK, r.Taken, r.Shadowed = d.ok, d.taken, d.shadowed
	if !admitted && d.outlook == nil {
		if d.source == SourceFallback {
			r.RetryAfter = 0 // the last reply decides nothing now
		}
		r.RetryAfter = max(r.RetryAfter, d.wait, 1)
	}
	return r
}

// hold is tokens of one key with which a request was admitted. It knows how to give them back. The
// zero value holds none, as does a request that was admitted without the bucket's tokens.
type hold struct {
	entry  *entry // nil where the key was at rest
	n      int64
	pooled int64 // of n: taken from the entry's pool, where they may go back to
	draw   pool.Draw
}

// takeHold takes n tokens from the pool, as take does.
func (e *entry) takeHold(n int64) (hold, bool) {
	if e == nil || n <= 0 {
		return hold{}, false
	}
	draw := e.client.Holder.Pool.Drawn() // before the take: a later draw would be worth more than the tokens are
	return hold{e, n, n, draw}, e.take(n)
}

// giveBack gives n of the tokens back, as if they had not been asked for. name is the key's in m, as the user
// gave it, and own the proposal of a KeyWithLimits, if the request came by one. They go to the pool they came
// from or travel with the key's next call, also where the key has gone to rest or been in use again since.
// They are burnt where the Limiter has closed or the key has left its table; Stats counts them then.
func (h *hold) giveBack(m *member, name string, own *proposal, n int64) {
	if n <= 0 || h.n == 0 {
		return
	}
	pooled := min(n, h.pooled)
	h.n, h.pooled = h.n-n, h.pooled-pooled
	e := h.entry
	if e == nil {
		e = m.known(name, own)
	}
	for ; e != nil; e = m.known(name, own) {
		if e.giveBack(n, pooled, h.draw) {
			return
		}
		if pooled = 0; !m.open() { // another entry has another pool
			break
		}
	}
	seen := never
	if h.entry != nil {
		h.entry.with(func() { seen = h.entry.seen })
	}
	m.observer.burn(n, seen)
}

func (e *entry) giveBack(n, pooled int64, d pool.Draw) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.client.GiveBack(e.Now(), n, pooled, d) {
		return false
	}
	e.Wake(false)
	return true
}

// allowed is the rest of Allow where the pool had more to do than to hand out a token.
func (m *member) allowed(r request, t pool.Taken) bool {
	switch t {
	case pool.Took:
		return true
	case pool.TookLow:
		r.tried.low()
		return true
	case pool.Denied:
		r.tried.client.Holder.Pool.Miss()
		return m.cfg.watched() && m.observer.announce(r.name, 1)
	}
	return m.decide(r).ok
}

func (m *member) wait(ctx context.Context, r request) error {
	r.ctx, r.verb = ctx, "wait"
	if ctx.Err() != nil {
		return endedBy(ctx, r.verb)
	}
	if r.tried.take(r.n) {
		return nil
	}
	return m.decide(r).err
}

func (m *member) take(ctx context.Context, r request) (Result, error) {
	result, _, err := m.takeHold(ctx, r)
	return result, err
}

// takeHold is take, with the tokens that the request holds then.
func (m *member) takeHold(ctx context.Context, r request) (Result, hold, error) {
	r.ctx, r.verb = ctx, "take"
	if ctx.Err() != nil {
		return Result{}, hold{}, endedBy(ctx, r.verb)
	}
	asked := r.n
	r.n = r.tried.most(r)
	d := decision{ok: true, taken: r.n, entry: r.tried}
	if d.hold, d.ok = r.tried.takeHold(r.n); !d.ok {
		d = m.decide(r)
	}
	if d.taken < asked && m.cfg.Policy.Shadow && d.err == nil {
		d.shadowed, d.taken = true, asked
	}
	return d.result(r.name, r.least()), d.hold, d.err
}

// decide answers a request that the pool did not serve, and counts and announces a denial.
func (m *member) decide(r request) decision {
	r.patience = m.patience(r.patience)
	d := m.answer(r)
	if !d.ok {
		d = m.deny(r, d)
	}
	return d
}

// patience is how long a request waits. With Policy.Shadow none waits for longer than Allow does: one
// that would have to is admitted at once.
func (m *member) patience(p protocol.Patience) protocol.Patience {
	if m.cfg.Policy.Shadow && p == protocol.InLine {
		return protocol.OneCall
	}
	return p
}

// deny counts the denial d, unless that is done already, and announces it. With Policy.Shadow the
// request may be admitted all the same.
func (m *member) deny(r request, d decision) decision {
	o := m.observer
	r.n = d.capped(r.patience, r.n)
	overruled := o.overrules(d.err)
	misconfigured := errors.Is(d.err, ErrInvalidConfig) || errors.Is(d.err, errNoLimits)
	n := countable(r.n)
	if misconfigured {
		o.misconfigured.Add(1)
	}
	switch {
	case errors.Is(d.err, ErrTableFull):
		o.full.Add(n)
	case overruled && d.err != nil:
		o.shadowed.Add(n)
		if d.entry != nil { // it asks for more than the burst
			o.blame(d.entry.smallest(), n)
		}
	case misconfigured:
	case !d.byLimit() || errors.Is(d.err, ErrClosed) || errors.Is(d.err, ErrExceedsBurst):
		o.invalid.Add(1)
	case r.joined:
		m.book(&d, n)
	}
	if r.n >= 0 {
		o.announce(r.name, r.n)
	}
	if overruled {
		d.ok, d.taken, d.shadowed, d.err = true, r.n, true, nil
	}
	return d
}

// byLimit reports whether a denial is that of a key's limits, or of its local share.
func (d *decision) byLimit() bool { return d.entry != nil || d.away != nil }

// capped returns how many of n tokens a request for up to n can get of d's key, or n of any other request.
func (d *decision) capped(p protocol.Patience, n int64) int64 {
	switch {
	case p != protocol.UpTo:
		return n
	case d.entry != nil:
		return min(n, d.entry.client.Capacity())
	case d.away != nil:
		return min(n, d.most)
	}
	return n
}

// book counts n tokens, which a request that is joined has not got because of d, at d's key.
func (m *member) book(d *decision, n int64) {
	switch {
	case d.away != nil:
		m.observer.countDenied(d.outlook.Limit, n)
		d.away.countFallback(n, 0)
	case m.cfg.Policy.Shadow && (errors.Is(d.err, context.Canceled) || errors.Is(d.err, context.DeadlineExceeded)):
		m.observer.ended.Add(n)
	default:
		d.entry.book(n, d.source)
	}
}

// answer finds the state of r's key and decides by it: the entry of a key in use; a draw, or the
// local share of a slot, of one at rest; or a new entry.
func (m *member) answer(r request) decision {
	switch {
	case !m.open():
		if r.tried != nil {
			r.tried.with(r.tried.burnLateLocked)
		}
		return decision{err: ErrClosed}
	case r.name == "":
		return decision{err: errEmptyKey}
	case r.n < 0:
		return decision{err: invalidN(r.n)}
	case r.n == 0:
		e := m.keys.active(r.name)
		if e != nil && e.heard.Load() == nil {
			e = nil // the store has not said yet what is left
		}
		return decision{ok: true, entry: e}
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	for e := r.tried; ; e = nil {
		if !m.open() {
			return decision{err: ErrClosed}
		}
		if e == nil {
			if r.spot.name == "" {
				r.spot = m.keys.locate(r.name)
			}
			if d, done := m.answerAtRest(&r); done {
				return d
			}
			var err error
			if e, err = m.activate(&r); err != nil {
				return decision{err: err}
			}
			if r.own != nil {
				e.insist(&r.own.config)
			}
			if r.handle != nil {
				r.handle.Store(e)
			}
			r.n = e.most(r)
			if h, ok := e.takeHold(r.n); ok {
				return decision{ok: true, taken: r.n, entry: e, hold: h}
			}
		}
		d, gone := e.decide(r)
		if !gone && !(errors.Is(d.err, ErrExceedsBurst) && m.askCapacity(e, r)) {
			d.entry = e
			return d
		}
	}
}

// countable returns as many of n denied tokens as Stats counts: a sum of any numbers would overflow.
func countable(n int64) int64 { return min(n, lease.WaitingMax) }

// askCapacity asks the store, at most once a T, whether a request above the burst that is known
// here is within the one that is in force by now (docs/protocol.md section 9.12).
func (m *member) askCapacity(e *entry, r request) bool {
	now := m.cfg.Clock.Now()
	if !e.claimCapacityAsk(now, r.n) {
		return false
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer m.cfg.Clock.AfterFunc(r.callWait(now, m.cfg.CallTimeout), cancel).Stop()
	st, err := m.configure(ctx, "limits", r.name, lease.OpInspect)
	if err != nil || !st.Exists {
		return false
	}
	e.client.KnowLimits(st.Config.Limits)
	return r.n <= e.client.Capacity()
}

// claimCapacityAsk gives a request the question to the store that may be asked once a T, if it is due.
func (e *entry) claimCapacityAsk(now clock.Instant, n int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.client.Closed():
		return false
	case e.client.Failures.Degraded():
		e.client.Refuse(min(n, e.client.Capacity())) // the reply to a probe will tell, and no request waits for it
		return false
	case e.heardAt != 0 && now < e.heardAt.Add(e.client.TTL()):
		return false
	}
	e.heardAt = now
	return true
}

// most returns the tokens that r asks for, but with patience UpTo no more than the burst.
func (e *entry) most(r request) int64 {
	if e == nil || r.patience != protocol.UpTo {
		return r.n
	}
	return min(r.n, e.client.Capacity())
}

// burnLateLocked counts as burnt what a take found to be late (Policy.StrictExpiry) when the entry
// had ended meanwhile, and its account had gone to the Limiter's.
func (e *entry) burnLateLocked() {
	if e.client.Closed() {
		if n := e.client.Holder.BurnLate(); n > 0 {
			e.m.observer.burn(n, e.seen)
		}
	}
}

// decide answers r, whose tokens the pool did not have, unless the entry is gone.
func (e *entry) decide(r request) (d decision, gone bool) {
	if until := e.client.Denials.ShutUntil(); until != 0 && r.n == 1 && r.patience != protocol.InLine {
		if now := e.Now(); now < until { // the commonest denial costs no lock
			if !r.joined {
				e.client.Holder.Pool.Miss()
			}
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
	ask := r.ask()
	ask.Deadline = deadline
	told := e.client.Decide(now, ask)
	switch told.Verdict {
	case protocol.VerdictWait:
		told = e.awaitLocked(r, now, ask)
	case protocol.VerdictClosed:
	default:
		e.countLocked(told, ask)
	}
	return e.decisionLocked(told, r, deadline.Sub(now), told.EarliestAt.Sub(now)), false
}

func (e *entry) decisionLocked(told protocol.Decision, r request, deadline, earliest time.Duration) decision {
	if told.OK() || told.Verdict == protocol.VerdictDeny {
		e.denied = !told.OK()
	}
	d := decision{ok: told.OK(), taken: told.Took, source: told.Source, entry: e}
	if d.ok && told.Source != SourceFallback {
		d.hold = hold{e, told.Took, told.Pooled, told.Draw}
	}
	if !d.ok {
		at := e.Now()
		d.wait = e.client.RetryAt(at, r.least(), d.source).Sub(at)
		d.err = e.errorOf(told, r, deadline, earliest)
	}
	return d
}

type waiter struct {
	protocol.Waiter
	told chan protocol.Decision
	ctx  context.Context
}

// awaitLocked has r wait. The lock is free meanwhile.
func (e *entry) awaitLocked(r request, now clock.Instant, ask protocol.Ask) protocol.Decision {
	w := &waiter{told: make(chan protocol.Decision, 1), ctx: r.ctx}
	w.Waiter = protocol.Waiter{Ask: ask, Owner: w}
	e.client.Enqueue(now, &w.Waiter)
	if r.patience != protocol.InLine {
		defer e.timeOut(&w.Waiter, r.callWait(now, e.m.cfg.CallTimeout)).Stop()
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
		return &timedError{fmt.Errorf("%w: tokens are available in %v, the deadline is in %v",
			ErrWouldExceedDeadline, earliest, deadline), max(earliest, 1)}
	case protocol.VerdictClosed:
		return ErrClosed
	case protocol.VerdictCancelled:
		return endedBy(r.ctx, r.verb)
	}
	return nil
}

// endedBy is the error of a verb that ctx ended, with its cause where that says more.
func endedBy(ctx context.Context, verb string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return fmt.Errorf("hybrid: %s: %w", verb, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", verb, err, cause)
}
