package hybrid

import (
	"context"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Allow takes one token of key and reports whether it got it. Unlike rate.Limiter.Allow it may wait: if this
// process has no token of key and does not know the bucket to be empty, Allow waits for one lease call, at
// most Config.CallTimeout. Key.TryAllow never waits. On a warm key Allow costs about one atomic instruction.
// It is false for every error of Take, such as an empty key, a closed Limiter or a failed Config.LimitsFor.
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

// request returns a request for n tokens of key, which is at p. e is the key's entry, or nil.
func (p spot) request(key string, e *entry, n int64, patience protocol.Patience) request {
	return request{name: key, spot: p, n: n, entry: e, patience: patience}
}

func (m *member) request(key string, n int64, patience protocol.Patience) request {
	p := m.keys.locate(key)
	return p.request(key, p.entry(), n, patience)
}

// AllowN takes n tokens of key or none. AllowN(key, 0) is true and costs nothing. A negative n, or an n above
// the burst, is false. See Allow.
func (l *Limiter) AllowN(key string, n int64) bool {
	r := l.first.request(key, n, protocol.OneCall)
	return r.entry.take(n) || l.first.decide(r).ok
}

// Take is AllowN with a context and a Result. If this process has too few tokens, Take waits for one lease
// call, at most CallTimeout. Without an answer Policy.Fallback decides, and Result.Source is SourceFallback.
// A denial is a Result with OK false, and no error. An n of 0 is OK and takes nothing.
//
// After an error the Result is zero. Errors wrap ErrExceedsBurst if n is above the burst in force,
// ErrInvalidKey, ErrInvalidN, ErrClosed, ErrTableFull, the context's error if it ends first, the error of
// Config.LimitsFor, or ErrInvalidConfig if LimitsFor returns invalid limits.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (Result, error) {
	return l.first.take(ctx, l.first.request(key, n, protocol.OneCall))
}

// Wait waits for one token of key; see Key.WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.first.wait(ctx, l.first.request(key, 1, protocol.InLine))
}

// CachedLimits returns the limits of key in the last reply to this process. It asks no store: it returns nil
// if key is out of use or has had no reply yet. Levels asks the store. The slice is read-only.
func (l *Limiter) CachedLimits(key string) []Limit { return l.first.cachedLimits(key) }

// Key is a handle for one key of a Limiter. Its methods omit the key and the look-up by name. It lives as
// long as the Limiter. Goroutines may share it.
type Key struct {
	l      *Limiter
	m      *member
	name   string
	strict bool
	reacts bool // see Config.reactsToDenials
	e      atomic.Pointer[entry]
	own    *proposal // nil unless from KeyWithLimits
}

// Key returns a handle for one key. It costs almost nothing. Every method denies an empty name.
func (l *Limiter) Key(name string) *Key { return l.key(l.first, name, nil) }

func (l *Limiter) key(m *member, name string, own *proposal) *Key {
	return &Key{l: l, m: m, name: name, own: own, strict: l.cfg.Policy.StrictExpiry, reacts: l.cfg.reactsToDenials()}
}

// KeyWithLimits returns a handle for a key whose limits the caller already knows, in place of those of
// LimitsFor or Limits. The limits are proposed with the first request of the handle, and whenever its
// requests bring the key back into use. If the bucket has other limits, it takes these over once no process
// and no other handle has proposed the others for two TTLs, about a second. Until then the others hold;
// Events.Conflict and the log report it with the next call.
//
// SetLimits changes limits at once and for all processes. A handle for each request is fine, as nothing
// registers handles. For two kinds of work of one customer, use two keys: two sets of limits of one key
// contradict each other while both are used.
//
// If the limits are invalid or empty, every request of the handle gets ErrInvalidConfig or false.
func (l *Limiter) KeyWithLimits(name string, limits ...Limit) *Key {
	own := l.proposer.newProposal("KeyWithLimits", limits)
	return l.key(l.first, name, &own)
}

// Class returns a handle for the same key and limits in class p of Config.Priorities. Its requests are
// granted tokens only while the bucket has more than that part of its burst. Class 0 has no such bound. A
// negative p means 0, and a p above the last class means the last, so without Priorities Class changes
// nothing. Keep the handle: a new one for each request looks the key up by name.
func (k *Key) Class(p int) *Key {
	return k.l.key(k.l.class(p), k.name, k.own)
}

// Name returns the name of the key.
func (k *Key) Name() string { return k.name }

// Limiter returns the Limiter of k. Its methods read and change the limits of the key for all classes.
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
// false; before the first reply Policy.ColdStart decides. Leased tokens return to the bucket after a Target
// (100 ms by default), so for a key with fewer requests than that, Allow is better.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	return e.take(1) || k.m.decide(k.request(e, 1, protocol.NoWait)).ok
}

// Take takes n tokens or none and returns a Result; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.OneCall))
}

// TakeUpTo takes as many tokens as there are, at most n and at most the burst, for work in batches of any
// size. Result.Taken is their number. OK is true if Taken is above 0, or n is 0. Otherwise TakeUpTo is Take.
func (k *Key) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.UpTo))
}

// Wait waits for one token; see WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits for n tokens, at most the burst, and takes them. With an error it has taken none. Waiting
// requests of one process are served in the order of their arrival, and before Allow. WaitN of 0 costs
// nothing.
//
// While the store is away, Policy.Fallback serves what it can. The other requests wait for the store until
// their context ends. Before the first reply Policy.ColdStart decides.
//
// Errors wrap ErrWouldExceedDeadline, at once, if the context's deadline comes before the tokens can; the
// context's error if it ends first; or an error of Take. ErrExceedsBurst also comes if the limit is lowered
// meanwhile. RetryAfter returns the time after which to try again. A token counts against the limit when the
// bucket grants it, which may be before WaitN returns.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	return k.m.wait(ctx, k.request(k.e.Load(), n, protocol.InLine))
}

// Reserve takes estimate tokens or none, as Take does, for work whose cost is known only afterwards. The
// Reservation is never nil, even with an error; its OK reports whether the tokens were taken. An estimate of
// 0, for an unknown cost, takes one token, so an empty key or a key in debt denies it. Errors are those of
// Take.
func (k *Key) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return reserve(ctx, k.m, k.request(k.e.Load(), estimate, protocol.OneCall))
}

// Refund gives back n admitted tokens that were not used after all. It does not wait: the refund travels with
// the key's next lease call, within a Target. The bucket credits n new tokens, as if taken since the last
// call. For tokens taken earlier from a window, use Reserve and Settle, because the window may no longer
// count them. A refund is lost if the store fails before the call. Refunding more than was taken breaks the
// limit.
//
// Refund does nothing after Close, for an empty key or for a negative n, and Stats.Invalid counts that. It
// also does nothing for a key that is not in this process's table.
func (k *Key) Refund(n int64) { k.m.refund(k.name, k.own, n, nil) }

// Peek reads the bucket without taking anything; see Limiter.Peek.
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
