package hybrid

import (
	"context"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
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

// request returns a request for n tokens of key, which is at p. e is the key's entry, or nil.
func (p spot) request(key string, e *entry, n int64, patience protocol.Patience) request {
	return request{name: key, spot: p, n: n, entry: e, patience: patience}
}

func (m *member) request(key string, n int64, patience protocol.Patience) request {
	p := m.keys.locate(key)
	return p.request(key, p.entry(), n, patience)
}

// AllowN takes n tokens of key or none; see Allow. AllowN(key, 0) is true and costs nothing. For a negative
// n, or an n above the burst, AllowN is false.
func (l *Limiter) AllowN(key string, n int64) bool {
	r := l.first.request(key, n, protocol.OneCall)
	return r.entry.take(n) || l.first.decide(r).ok
}

// Take is AllowN with a context and a Result. If this process has too few tokens, Take waits for one lease
// call, at most CallTimeout. If the call has no answer, Policy.Fallback decides and Result.Source is
// SourceFallback. For a denial Result.OK is false, and the error is nil. An n of 0 is OK and takes nothing.
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

// CachedLimits returns the limits of key in the last reply to this process; Levels asks the store.
// CachedLimits returns nil if key is out of use or has had no reply yet. The returned slice is read-only.
func (l *Limiter) CachedLimits(key string) []Limit { return l.first.cachedLimits(key) }

// Key is a handle for one key of a Limiter. The methods of a Key omit the key and the look-up by name. A Key
// lives as long as its Limiter. Goroutines may share a Key.
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
// LimitsFor or Config.Limits. The first request of the handle proposes its limits, as does every request that
// activates the key again. If the bucket has other limits, it adopts the handle's limits once no process and
// no other handle has proposed the other limits for two TTLs, about a second. The other limits stay in force
// until the bucket adopts the handle's; Events.Conflict and the log report the conflict with the next call.
//
// SetLimits changes limits at once and for all processes. A new handle for each request is fine, because
// nothing registers handles. For two kinds of work of one customer, use two keys: two sets of limits of one
// key contradict each other while both are used.
//
// If the limits are invalid or empty, every request of the handle gets ErrInvalidConfig or false.
func (l *Limiter) KeyWithLimits(name string, limits ...Limit) *Key {
	own := l.proposer.newProposal("KeyWithLimits", limits)
	return l.key(l.first, name, &own)
}

// Class returns a handle for the same key and limits in class p of Config.Priorities. The bucket grants
// tokens to class p only while its level exceeds Priorities[p-1] of the burst; class 0 has no such bound. A
// negative p means 0, and a p above the last class means the last, so without Priorities Class changes
// nothing. Keep the handle: a new handle for each request looks up the key by name.
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
// Target (100 ms by default), so for a key with less than one request per Target, Allow is better.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	return e.take(1) || k.m.decide(k.request(e, 1, protocol.NoWait)).ok
}

// Take takes n tokens or none and returns a Result; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.OneCall))
}

// TakeUpTo takes as many tokens as the key has, at most n or the burst, for batches of any size. Result.Taken
// counts the tokens. Result.OK is true if Taken is above 0 or n is 0. Otherwise TakeUpTo is Take.
func (k *Key) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.UpTo))
}

// Wait waits for one token; see WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits for n tokens, at most the burst, and takes them. If WaitN returns an error, it has taken none.
// Waiting requests of one process are served in order of arrival, before Allow. An n of 0 does not wait.
//
// While the store is away, Policy.Fallback admits requests if it can, and other requests wait for the store
// until their contexts end. Before the first reply Policy.ColdStart decides.
//
// WaitN fails at once with ErrWouldExceedDeadline if the context's deadline comes before the tokens can
// exist. Other errors of WaitN wrap the context's error, or an error of Take, such as ErrExceedsBurst if the
// burst is lowered during the wait. RetryAfter(err) is the time after which to try again. A token counts
// against the limit when the bucket grants it, maybe before WaitN returns.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	return k.m.wait(ctx, k.request(k.e.Load(), n, protocol.InLine))
}

// Reserve takes estimate tokens or none, as Take does, for work whose cost is known only afterwards. The
// Reservation is never nil, even with an error; Reservation.OK reports whether the tokens were taken. An
// estimate of 0, for an unknown cost, takes one token, so a key in debt or without tokens denies it. Errors
// of Reserve are those of Take.
func (k *Key) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return reserve(ctx, k.m, k.request(k.e.Load(), estimate, protocol.OneCall))
}

// Refund gives back n admitted tokens that were not used after all. Refund does not wait: the refund travels
// with the key's next lease call, within a Target. The bucket credits n new tokens, as if they were taken
// since the last call. For tokens taken earlier from a window use Reserve and Settle, because the window may
// no longer count them. A refund is lost if the store fails before the call. Refunding more tokens than were
// taken breaks the limit.
//
// Refund does nothing after Close, for an empty key or for a negative n, and Stats.Invalid counts such a
// Refund. Refund also does nothing for a key outside this process's table.
func (k *Key) Refund(n int64) { k.m.refund(k.name, k.own, n, nil) }

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
