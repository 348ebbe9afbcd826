package hybrid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Allow takes one token of key and reports success. Unlike rate.Limiter.Allow, this Allow may wait: if this
// process has no token of key and does not know the bucket to be empty, Allow waits for one lease call, at
// most Config.CallTimeout. Key.TryAllow never waits. With tokens in the process, Allow costs about one atomic
// instruction. For an error of Take, such as an empty key or a failed Config.LimitsFor, Allow returns false.
func (l *Limiter) Allow(key string) bool {
	m := l.first
	p := m.keys.locate(key)
	e := p.entry()
	if e != nil && !l.cfg.Policy.StrictExpiry {
		t := e.client.Holder.Pool.Take()
		return t == pool.Took || m.allowSlowly(p.request(key, e, 1, protocol.OneCall), t)
	}
	return e != nil && e.take(1) || m.decide(p.request(key, e, 1, protocol.OneCall)).ok
}

func (p spot) request(key string, e *entry, n int64, patience protocol.Patience) request {
	return request{name: key, spot: p, n: n, entry: e, patience: patience}
}

func (m *member) request(key string, n int64, patience protocol.Patience) request {
	p := m.keys.locate(key)
	return p.request(key, p.entry(), n, patience)
}

// AllowN takes n tokens of key or none; see Allow. AllowN returns true for an n of 0, and false for a
// negative n or an n above the burst.
func (l *Limiter) AllowN(key string, n int64) bool {
	r := l.first.request(key, n, protocol.OneCall)
	return r.entry.take(n) || l.first.decide(r).ok
}

// Take is AllowN with a context and a Result. If this process has too few tokens, Take waits for one lease
// call, at most CallTimeout. If the call has no answer, Policy.Fallback decides and Result.Source is
// SourceFallback. For a denial Result.OK is false, and the error is nil.
//
// After an error Result.OK is false, and the Result has no counts. Errors of Take wrap ErrExceedsBurst if n
// exceeds the burst in force, ErrInvalidKey, ErrInvalidN, ErrClosed, ErrTableFull, the context's error if it
// ends first, the error of Config.LimitsFor, or ErrInvalidConfig if LimitsFor returns invalid limits.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (Result, error) {
	return l.first.take(ctx, l.first.request(key, n, protocol.OneCall))
}

// Wait waits for one token of key; see Key.WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.first.wait(ctx, l.first.request(key, 1, protocol.InLine))
}

// CachedLimits returns the limits of key in the last reply to this process, or nil if key is out of use or
// has had no reply yet. The returned slice is read-only. Levels asks the store.
func (l *Limiter) CachedLimits(key string) []Limit { return l.first.cachedLimits(key) }

// Key is a handle for one key of a Limiter. Methods of a Key look up no name. Goroutines may share a Key.
type Key struct {
	l      *Limiter
	m      *member
	name   string
	strict bool
	reacts bool // copy of Config.reactsToDenials
	e      atomic.Pointer[entry]
	own    *proposal // proposal of KeyWithLimits; nil for other handles
}

// Key returns a handle for one key, at almost no cost. Every request for a key with an empty name is denied.
func (l *Limiter) Key(name string) *Key { return l.key(l.first, name, nil) }

func (l *Limiter) key(m *member, name string, own *proposal) *Key {
	return &Key{l: l, m: m, name: name, own: own, strict: l.cfg.Policy.StrictExpiry, reacts: l.cfg.reactsToDenials()}
}

// KeyWithLimits returns a handle for a key whose limits the caller already knows, in place of limits of
// LimitsFor or Config.Limits. If the bucket has other limits, they stay in force until no process and no
// other handle has proposed them for two TTLs, about a second. Events.Conflict and the log report the
// conflict.
//
// SetLimits changes limits at once and for all processes. The caller may make a new handle for each request.
// For two kinds of work of one customer, use two keys: a key has only one set of limits at a time.
//
// If the limits are invalid or empty, every request of the handle gets ErrInvalidConfig or false.
func (l *Limiter) KeyWithLimits(name string, limits ...Limit) *Key {
	own := l.proposer.newProposal("KeyWithLimits", limits)
	return l.key(l.first, name, &own)
}

// Class returns a handle for the same key and limits in class p of Config.Priorities. The bucket grants
// tokens to class p only while its level exceeds Priorities[p-1] of the burst; class 0 has no such bound. A
// negative p means 0, and a p above the last class means the last, so without Priorities Class changes
// nothing. Keep the handle, because a new handle looks up the key by name.
func (k *Key) Class(p int) *Key {
	return k.l.key(k.l.class(p), k.name, k.own)
}

// Name returns the name of the key.
func (k *Key) Name() string { return k.name }

// Limiter returns the Limiter of k, whose methods read and change the limits of the key for all classes.
func (k *Key) Limiter() *Limiter { return k.l }

// Allow takes one token; see Limiter.Allow.
func (k *Key) Allow() bool {
	if e := k.e.Load(); e != nil && !k.strict {
		p := &e.client.Holder.Pool
		left, mark := p.Begin()
		if left >= mark {
			return true
		}
		switch mark {
		case pool.MarkStriped:
			i := pool.Pin()
			ok := p.TakeAt(i)
			pool.Unpin(i)
			if ok {
				return true
			}
		case pool.MarkDenied:
			i := pool.Pin()
			p.MissAt(i)
			pool.Unpin(i)
			return k.reacts && k.m.observer.announce(k.name, 1)
		}
		return k.allowSlowly(e, p.End(left, mark))
	}
	return k.AllowN(1)
}

// allowSlowly keeps the large request value out of Allow.
func (k *Key) allowSlowly(e *entry, t pool.Taken) bool {
	return k.m.allowSlowly(k.request(e, 1, protocol.OneCall), t)
}

func (k *Key) request(e *entry, n int64, p protocol.Patience) request {
	return request{name: k.name, handle: &k.e, own: k.own, n: n, entry: e, patience: p}
}

// AllowN takes n tokens or none; see Limiter.AllowN.
func (k *Key) AllowN(n int64) bool {
	e := k.e.Load()
	return e.take(n) || k.m.decide(k.request(e, n, protocol.OneCall)).ok
}

// TryAllow is Allow without waiting. If this process has no token, TryAllow starts a lease call and returns
// false; before the first reply Policy.ColdStart decides. Unused leased tokens return to the bucket after a
// Target (100 ms by default), so Allow is better for a key with less than one request per Target.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	return e.take(1) || k.m.decide(k.request(e, 1, protocol.NoWait)).ok
}

// Take takes n tokens or none and returns a Result; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.OneCall))
}

// TakeUpTo is Take, but takes as many tokens as the key has, at most n or the burst. Result.Taken counts the
// tokens. Result.OK is true if Taken is above 0 or n is 0.
func (k *Key) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.UpTo))
}

// Wait waits for one token; see WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits for n tokens, at most the burst, and takes them. If WaitN returns an error, it has taken none.
// A process serves waiting requests in order of arrival, before requests of Allow and Take.
//
// While the store is away, Policy.Fallback admits requests if it can, and other requests wait for the store
// until their contexts end. Before the first reply Policy.ColdStart decides.
//
// WaitN fails at once with ErrWouldExceedDeadline if the context's deadline comes before the tokens can
// exist. Other errors of WaitN wrap the context's error, or an error of Take, such as ErrExceedsBurst if the
// burst is lowered during the wait. RetryAfter(err) is the time after which to try again. A token counts
// against the limit when the bucket grants the token, which may be before WaitN returns.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	return k.m.wait(ctx, k.request(k.e.Load(), n, protocol.InLine))
}

// Reserve is Take for work whose cost is known only afterwards. The Reservation is never nil, even with an
// error; Reservation.OK reports whether the tokens were taken. An estimate of 0, for an unknown cost, takes
// one token: a key in debt denies the request.
func (k *Key) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	estimate = leastEstimate(estimate)
	result, hold, err := k.m.takeHold(ctx, k.request(k.e.Load(), estimate, protocol.OneCall))
	r := &Reservation{result: result, argParts: onlyKey}
	r.one[0] = reserved{k, 1, estimate, hold}
	r.parts = r.one[:]
	return r, err
}

// Refund gives back n admitted tokens that were not used after all. Refund does not wait: the refund travels
// with the key's next lease call, within a Target, and may be lost if that call fails. The bucket credits the
// tokens as if they were taken since the last call. For tokens taken earlier from a window use Reserve and
// Settle, because the window may no longer count them. A refund of more tokens than were taken breaks the
// limit.
//
// Refund does nothing after Close, for a negative n, or for a key outside this process's table.
func (k *Key) Refund(n int64) { k.refund(n, nil) }

// Peek reads the bucket without taking tokens; see Limiter.Peek.
func (k *Key) Peek(ctx context.Context) (Result, error) {
	return k.m.peek(ctx, k.name, k.own)
}

// CachedLimits returns the limits in the last reply to this process; see Limiter.CachedLimits.
func (k *Key) CachedLimits() []Limit {
	if e := k.e.Load(); e != nil {
		return e.limits()
	}
	return k.m.cachedLimits(k.name)
}

// inUse returns the entry of k's key, or nil if the key has none. For a handle of KeyWithLimits without an
// entry, inUse returns nil: the handle's first request must propose its limits.
func (k *Key) inUse() *entry {
	e := k.e.Load()
	if e == nil && k.own == nil {
		if e = k.m.keys.locate(k.name).entry(); e != nil {
			k.e.Store(e)
		}
	}
	return e
}

// atRest returns the result of check for k's key, which has no entry.
func (k *Key) atRest(check func(*protocol.Key) bool) (yes bool) {
	k.m.keys.idle.withKey(k.m.keys.locate(k.name).slot, func(s *protocol.Key) { yes = check(s) })
	return yes
}

// giveBack gives back n of h's tokens as if they had not been taken. The tokens return to their pool, or
// travel with the key's next call. If the Limiter is closed or the key has left the table, giveBack burns the
// tokens.
func (k *Key) giveBack(h *hold, n int64) {
	if n <= 0 || h.n == 0 {
		return
	}
	pooled := min(n, h.pooled)
	h.n, h.pooled = h.n-n, h.pooled-pooled
	e, m := h.entry, k.m
	if e == nil {
		e = m.knownEntry(k.name, k.own)
	}
	for ; e != nil; e = m.knownEntry(k.name, k.own) {
		if e.giveBack(n, pooled, h.draw) {
			return
		}
		if pooled = 0; !m.open() { // a new entry has a new pool
			break
		}
	}
	seen := never
	if h.entry != nil {
		h.entry.with(func() { seen = h.entry.seen })
	}
	m.observer.burn(n, seen)
}

// refund refunds n tokens of draw d, or of an unknown draw if d is nil.
func (k *Key) refund(n int64, d *pool.Draw) {
	m := k.m
	if n < 0 || k.name == "" || !m.open() {
		m.observer.invalid.Add(1)
		return
	}
	for n > 0 && m.open() {
		if e := m.knownEntry(k.name, k.own); e == nil || e.refund(n, d) {
			return
		}
	}
}

// charge charges up to n tokens to k's bucket and returns the charged number.
func (k *Key) charge(n int64) (charged int64, err error) {
	m := k.m
	for m.open() {
		r := request{name: k.name, own: k.own, spot: m.keys.locate(k.name)}
		e, err := m.activate(&r)
		if err != nil {
			return 0, err
		}
		if charged, ok := e.charge(n); ok {
			m.observer.charged.Add(charged)
			return charged, nil
		}
	}
	return 0, ErrClosed
}

// Reservation has tokens that were taken for work whose cost is known only afterwards, such as bytes, rows or
// the tokens of a language model. The caller reserves an estimate, does the work, and calls Settle with the
// actual cost, or Cancel if the work was not done. Only the first Settle or Cancel has an effect. A
// Reservation without Settle or Cancel has spent its estimate. Goroutines may share a Reservation.
//
// A Reservation has its tokens now or is not OK: it promises no future tokens, unlike that of x/time/rate.
type Reservation struct {
	result   Result
	settled  atomic.Bool
	parts    []reserved
	argParts []int       // index in parts of each argument of Join
	one      [1]reserved // backing array of parts for a single key
}

type reserved struct {
	*Key
	times    int64 // number of arguments of Join with this key
	estimate int64
	hold     hold
}

// leastEstimate returns estimate, or 1 for 0, because even a key in debt admits a request for 0 tokens.
func leastEstimate(estimate int64) int64 {
	if estimate == 0 {
		return 1
	}
	return estimate
}

var onlyKey = []int{0}

// OK reports whether the estimate was admitted. If OK is false, Settle and Cancel do nothing.
func (r *Reservation) OK() bool { return r.result.OK }

// Result returns the Result that Take would have returned.
func (r *Reservation) Result() Result { return r.result }

// Settle replaces the estimate by the actual cost, which is the same for every key of a Joined; see
// SettleEach. If the actual cost is lower, Settle refunds the difference; a window credits the refund only
// while it counts the reservation. If the actual cost is higher, the bucket's level drops by the difference.
// The bucket grants nothing to any process while the level is below 0. A calendar's debt ends with its
// period. The correction travels with the key's next lease call, within a Target.
//
// Settle charges at most Policy.MaxOvershoot bursts of each key, 10 by default; if the difference is larger,
// the error wraps ErrOvershoot. After a negative actual cost, the error wraps ErrInvalidN and r is not
// settled. If the difference cannot be charged, the error wraps ErrClosed, ErrTableFull, the error of
// Config.LimitsFor, or ErrInvalidConfig if LimitsFor returns invalid limits.
func (r *Reservation) Settle(actual int64) error {
	if actual < 0 {
		return fmt.Errorf("%w: the actual cost is %d, must be at least 0", ErrInvalidN, actual)
	}
	return r.settle(func(p *reserved) int64 { return product(actual, p.times) })
}

// SettleEach is Settle with an actual cost for each key, in the order of Join.
func (r *Reservation) SettleEach(actual ...int64) error {
	if !r.OK() {
		return nil
	}
	if err := eachValid(actual, len(r.argParts)); err != nil {
		return err
	}
	return r.settle(func(p *reserved) (sum int64) {
		for k, n := range actual {
			if &r.parts[r.argParts[k]] == p {
				sum += min(n, math.MaxInt64-sum)
			}
		}
		return sum
	})
}

func (r *Reservation) settle(cost func(*reserved) int64) error {
	if !r.end() {
		return nil
	}
	var errs []error
	for i := range r.parts {
		p := &r.parts[i]
		actual := cost(p)
		switch more := min(actual-p.estimate, lease.WaitingMax); { // WaitingMax is the most a bucket counts
		case more > 0:
			charged, err := p.charge(more)
			if err == nil && charged < more {
				err = fmt.Errorf("%w: key %s: the actual cost is %d, the estimate %d; "+
					"Policy.MaxOvershoot charges at most %d more",
					ErrOvershoot, brief(p.name), actual, p.estimate, charged)
			}
			errs = append(errs, err)
		case more < 0 && p.hold.n > 0: // a fallback takes no tokens of the bucket
			p.refund(-more, &p.hold.draw)
		}
	}
	return errors.Join(errs...)
}

// Cancel gives back the reserved tokens because the work was not done. The bucket credits the tokens less its
// refill since the reservation, or none after a change of limits or a refund that raised the level. Cancel
// thus never exceeds the limit; Settle(0) refunds all tokens. After Close, Cancel loses the tokens.
func (r *Reservation) Cancel() {
	if !r.end() {
		return
	}
	for i := range r.parts {
		p := &r.parts[i]
		p.giveBack(&p.hold, p.hold.n)
	}
}

// end records the end of r, and reports whether r is OK and this is its first Settle or Cancel.
func (r *Reservation) end() bool { return r.OK() && !r.settled.Swap(true) }

// product returns a*b, or the largest int64 if a*b overflows. Neither factor is negative.
func product(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

func eachValid(n []int64, keys int) error {
	if len(n) != keys {
		return fmt.Errorf("%w: %d numbers for %d keys, must be one for each key", ErrInvalidN, len(n), keys)
	}
	return invalidN(slices.Min(n))
}
