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

type request struct {
	name     string
	spot     spot                   // the key's place in the table; zero before the look-up
	proposed proposed               // limits to propose; zero before the look-up
	handle   *atomic.Pointer[entry] // entry of the Key handle; nil without a handle
	own      *proposal              // proposal of KeyWithLimits; nil for other requests
	n        int64
	entry    *entry // entry of the key, whose pool lacks n tokens; nil without an entry
	patience protocol.Patience
	joined   bool            // whether a Join made the request; a Join counts only the denial that binds
	ctx      context.Context // context of the request; nil means no end
	verb     string          // method name in errors about ctx; empty if the caller gave no ctx
	until    clock.Instant   // end of the wait for a call; 0 means after CallTimeout
}

func (r *request) callWait(now clock.Instant, callTimeout time.Duration) time.Duration {
	if r.until == 0 {
		return callTimeout
	}
	return min(callTimeout, r.until.Sub(now))
}

func (r *request) context() context.Context {
	if r.verb == "" {
		return nil
	}
	return r.ctx
}

// ask returns r as a protocol.Ask without a deadline.
func (r *request) ask() protocol.Ask {
	return protocol.Ask{N: r.n, Patience: r.patience, Deadline: protocol.Never, Uncounted: r.joined}
}

// minTokens returns the fewest tokens that admit r.
func (r *request) minTokens() int64 {
	if r.patience == protocol.UpTo {
		return min(r.n, 1)
	}
	return r.n
}

type decision struct {
	ok       bool
	taken    int64 // tokens of an admitted request: n, or fewer for an UpTo request
	shadowed bool  // whether Policy.Shadow admitted a request that a limit denies
	source   Source
	err      error
	entry    *entry
	hold     hold              // tokens of an admitted request that can be given back
	wait     time.Duration     // RetryAfter of a denial
	share    *fallbacks        // counts of the node for which the local share decided; otherwise nil
	shareMax int64             // the most tokens that the local share admits at once
	outlook  *protocol.Outlook // values of the Result; nil if the entry supplies them
}

// Result is the decision on one request.
type Result struct {
	OK        bool   // whether the request is admitted
	Taken     int64  // tokens taken: all if OK, or fewer by TakeUpTo
	Shadowed  bool   // whether Policy.Shadow admitted a denied request; other fields describe the denial
	Key       string // the key; for a Joined the key that binds (see Joined.Take)
	Limit     Limit  // after a denial the limit with the longest wait, else that with the smallest fraction left
	Remaining int64  // tokens in this process and in the bucket at the last reply, less Policy.Headroom
	// RetryAfter is the time until the tokens can exist: 0 if OK, above 0 for a denial. A request for n
	// tokens that is repeated after each RetryAfter is denied at most n times. In an outage RetryAfter is the
	// time until the local share has the tokens, or CallTimeout if it never has them.
	RetryAfter time.Duration
	// ResetAfter is the longest time until the limit is full again if nothing is drawn.
	ResetAfter time.Duration
	Source     Source // basis of the decision
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

// result returns the Result of d. least is the fewest tokens that admit d's request.
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
			r.RetryAfter = 0 // the last reply does not decide in an outage
		}
		r.RetryAfter = max(r.RetryAfter, d.wait, 1)
	}
	return r
}

// hold has the tokens of one key that admitted a request and may be given back. A request that was admitted
// without tokens of the bucket has the zero hold.
type hold struct {
	entry  *entry // nil if the key was at rest
	n      int64
	pooled int64 // tokens that came from the entry's pool and may return to the pool
	draw   pool.Draw
}

func (e *entry) takeHold(n int64) (hold, bool) {
	if e == nil || n <= 0 {
		return hold{}, false
	}
	draw := e.client.Holder.Pool.Drawn() // read before the take, because a later Draw would credit more tokens
	return hold{e, n, n, draw}, e.take(n)
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

func (m *member) allowSlowly(r request, t pool.Taken) bool {
	switch t {
	case pool.Took:
		return true
	case pool.TookLow:
		r.entry.low()
		return true
	case pool.Denied:
		r.entry.client.Holder.Pool.Miss()
		return m.cfg.reactsToDenials() && m.observer.announce(r.name, 1)
	}
	return m.decide(r).ok
}

func (m *member) wait(ctx context.Context, r request) error {
	r.ctx, r.verb = ctx, "wait"
	if ctx.Err() != nil {
		return endedBy(ctx, r.verb)
	}
	if r.entry.take(r.n) {
		return nil
	}
	return m.decide(r).err
}

func (m *member) take(ctx context.Context, r request) (Result, error) {
	result, _, err := m.takeHold(ctx, r)
	return result, err
}

// takeHold is take, and also returns a hold with the tokens taken.
func (m *member) takeHold(ctx context.Context, r request) (Result, hold, error) {
	r.ctx, r.verb = ctx, "take"
	if ctx.Err() != nil {
		return Result{}, hold{}, endedBy(ctx, r.verb)
	}
	asked := r.n
	r.n = r.entry.capped(r)
	d := decision{ok: true, taken: r.n, entry: r.entry}
	if d.hold, d.ok = r.entry.takeHold(r.n); !d.ok {
		d = m.decide(r)
	}
	if d.taken < asked && m.cfg.Policy.Shadow && d.err == nil {
		d.shadowed, d.taken = true, asked
	}
	return d.result(r.name, r.minTokens()), d.hold, d.err
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

// patience returns p, but OneCall instead of InLine with Policy.Shadow, which admits a denied request.
func (m *member) patience(p protocol.Patience) protocol.Patience {
	if m.cfg.Policy.Shadow && p == protocol.InLine {
		return protocol.OneCall
	}
	return p
}

// deny announces d, a denial of r, and counts d unless an entry has counted it. With Policy.Shadow, deny may
// admit r.
func (m *member) deny(r request, d decision) decision {
	o := m.observer
	r.n = d.obtainable(r.patience, r.n)
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
		if d.entry != nil { // n exceeds the burst
			o.countShadowed(d.entry.smallest(), n)
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

// byLimit reports whether limits or the local share denied the request.
func (d *decision) byLimit() bool { return d.entry != nil || d.share != nil }

// obtainable returns n, but with patience UpTo at most the burst of d's key.
func (d *decision) obtainable(p protocol.Patience, n int64) int64 {
	switch {
	case p != protocol.UpTo:
		return n
	case d.entry != nil:
		return min(n, d.entry.client.Capacity())
	case d.share != nil:
		return min(n, d.shareMax)
	}
	return n
}

// book counts n tokens as denied that a joined request did not get from d's key.
func (m *member) book(d *decision, n int64) {
	switch {
	case d.share != nil:
		m.observer.countDenied(d.outlook.Limit, n)
		d.share.count(n, 0)
	case m.cfg.Policy.Shadow && (errors.Is(d.err, context.Canceled) || errors.Is(d.err, context.DeadlineExceeded)):
		m.observer.ended.Add(n)
	default:
		d.entry.book(n, d.source)
	}
}

// answer decides r by the key's entry, or for a key at rest by a draw, the local share or a new entry.
func (m *member) answer(r request) decision {
	switch {
	case !m.open():
		if r.entry != nil {
			r.entry.with(r.entry.burnLateLocked)
		}
		return decision{err: ErrClosed}
	case r.name == "":
		return decision{err: errEmptyKey}
	case r.n < 0:
		return decision{err: invalidN(r.n)}
	case r.n == 0:
		e := m.keys.active(r.name)
		if e != nil && e.heard.Load() == nil {
			e = nil // no reply yet, so Remaining is unknown
		}
		return decision{ok: true, entry: e}
	}
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	for e := r.entry; ; e = nil {
		if !m.open() {
			return decision{err: ErrClosed}
		}
		if e == nil {
			if r.spot.name == "" {
				r.spot = m.keys.locate(r.name)
			}
			one, share, err := m.begin(&r)
			switch {
			case err != nil:
				return decision{err: err}
			case share != nil:
				return *share
			case one != nil:
				return one.decide(&r)
			}
			if e, err = m.activate(&r); err != nil {
				return decision{err: err}
			}
			if r.own != nil {
				e.insist(&r.own.config)
			}
			if r.handle != nil {
				r.handle.Store(e)
			}
			r.n = e.capped(r)
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

// countable bounds n, a number of denied tokens, so that the sums in Stats cannot overflow.
func countable(n int64) int64 { return min(n, lease.WaitingMax) }

// askCapacity asks the store for the burst in force, and reports whether r is within it (9.12).
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

// claimCapacityAsk reports whether a request for n tokens is to ask the store for the burst now.
func (e *entry) claimCapacityAsk(now clock.Instant, n int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.client.Closed():
		return false
	case e.client.Failures.Degraded():
		e.client.Refuse(min(n, e.client.Capacity())) // the reply to the node's probe will name the burst
		return false
	case e.heardAt != 0 && now < e.heardAt.Add(e.client.TTL()):
		return false
	}
	e.heardAt = now
	return true
}

// capped returns r.n, but with patience UpTo at most the burst.
func (e *entry) capped(r request) int64 {
	if e == nil || r.patience != protocol.UpTo {
		return r.n
	}
	return min(r.n, e.client.Capacity())
}

// burnLateLocked counts tokens that a take with Policy.StrictExpiry has burnt after e ended.
func (e *entry) burnLateLocked() {
	if e.client.Closed() {
		if n := e.client.Holder.BurnLate(); n > 0 {
			e.m.observer.burn(n, e.seen)
		}
	}
}

// decide answers r, for which e's pool lacked the tokens. gone reports that e has ended.
func (e *entry) decide(r request) (d decision, gone bool) {
	if until := e.client.Denials.DeniesOneUntil(); until != 0 && r.n == 1 && r.patience != protocol.InLine {
		if now := e.Now(); now < until { // the most common denial takes no lock
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
	answer := e.client.Decide(now, ask)
	switch answer.Verdict {
	case protocol.VerdictWait:
		answer = e.awaitLocked(r, now, ask)
	case protocol.VerdictClosed:
	default:
		e.countLocked(answer, ask)
	}
	return e.decisionLocked(answer, r, deadline.Sub(now), answer.EarliestAt.Sub(now)), false
}

func (e *entry) decisionLocked(answer protocol.Decision, r request, deadline, earliest time.Duration) decision {
	if answer.OK() || answer.Verdict == protocol.VerdictDeny {
		e.denied = !answer.OK()
	}
	d := decision{ok: answer.OK(), taken: answer.Took, source: answer.Source, entry: e}
	if d.ok && answer.Source != SourceFallback {
		d.hold = hold{e, answer.Took, answer.Pooled, answer.Draw}
	}
	if !d.ok {
		at := e.Now()
		d.wait = e.client.RetryAt(at, r.minTokens(), d.source).Sub(at)
		d.err = e.errorOf(answer, r, deadline, earliest)
	}
	return d
}

// awaitLocked queues r and returns its answer. awaitLocked releases the entry's lock while r waits.
func (e *entry) awaitLocked(r request, now clock.Instant, ask protocol.Ask) protocol.Decision {
	w := &waiter{answer: make(chan protocol.Decision, 1), ctx: r.ctx}
	w.Waiter = protocol.Waiter{Ask: ask, Owner: w}
	e.client.Enqueue(now, &w.Waiter)
	if r.patience != protocol.InLine {
		defer e.timeOut(&w.Waiter, r.callWait(now, e.m.cfg.CallTimeout)).Stop()
	}
	e.mu.Unlock()
	select {
	case d := <-w.answer:
		e.mu.Lock()
		return d
	case <-r.ctx.Done():
		e.mu.Lock()
		e.client.Cancel(e.Now(), &w.Waiter) // Cancel does nothing if w has its answer already
		return <-w.answer
	}
}

// errorOf returns the error of r with the answer d, or nil for an admission or a plain denial.
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

// endedBy returns the error of the method verb that ctx ended, with the cause of ctx if there is one.
func endedBy(ctx context.Context, verb string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return fmt.Errorf("hybrid: %s: %w", verb, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", verb, err, cause)
}
