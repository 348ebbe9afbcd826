package hybrid

import (
	"context"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
)

// Allow takes one token of key and reports whether there was one. It may wait, unlike rate.Limiter.Allow:
// where this process holds nothing and the bucket is not known to be empty, it waits for one lease call, at
// most Config.CallTimeout. Key.TryAllow never waits. On a warm key Allow costs about one atomic instruction.
// It is false for a closed Limiter and for an empty key.
func (l *Limiter) Allow(key string) bool {
	m := l.first
	p := m.keys.locate(key)
	e := p.entry()
	if e != nil && !l.cfg.Policy.StrictExpiry {
		t := e.client.Holder.Pool.Take()
		return t == pool.Took || m.allowed(p.request(key, e, 1, protocol.OneCall), t)
	}
	return e != nil && e.take(1) || m.decide(p.request(key, e, 1, protocol.OneCall)).ok
}

// request is a request for n tokens of key, which is at p and whose entry is e, if it is in use.
func (p spot) request(key string, e *entry, n int64, patience protocol.Patience) request {
	return request{name: key, spot: p, n: n, tried: e, patience: patience}
}

func (m *member) request(key string, n int64, patience protocol.Patience) request {
	p := m.keys.locate(key)
	return p.request(key, p.entry(), n, patience)
}

// AllowN takes n tokens of key or none. AllowN(key, 0) is true and costs nothing; a negative n, or
// one above the burst, is false. See Allow.
func (l *Limiter) AllowN(key string, n int64) bool {
	r := l.first.request(key, n, protocol.OneCall)
	return r.tried.take(n) || l.first.decide(r).ok
}

// Take is AllowN with a context and a Result. It waits for one lease call, at most CallTimeout, where this
// process holds too little; without an answer Policy.Fallback decides, and Result.Source is SourceFallback. A
// denial is a Result with OK false and no error. An n of 0 is OK, costs nothing and creates nothing. Errors,
// whose Result is zero, wrap ErrClosed, ErrInvalidKey, ErrInvalidN, ErrExceedsBurst where n is more than the
// burst in force, ErrInvalidConfig where Config.LimitsFor gives limits that cannot be used, or the context's
// error when it ends first.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (Result, error) {
	return l.first.take(ctx, l.first.request(key, n, protocol.OneCall))
}

// Wait waits for one token of key; see Key.WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error {
	return l.first.wait(ctx, l.first.request(key, 1, protocol.InLine))
}

// CachedLimits are the limits of key that this process last heard of, and that its answers rest on.
// It asks no store, so it is nil for a key that is not in use or has not had a reply yet; Levels
// asks the store. The slice is not to be changed.
func (l *Limiter) CachedLimits(key string) []Limit { return l.first.cachedLimits(key) }

// Key is a handle for one key of a Limiter: its methods without the key, and without the look-up by
// name. It lives as long as the Limiter, and goroutines may share it.
type Key struct {
	l       *Limiter
	m       *member
	name    string
	strict  bool
	watched bool // a denial has consequences: see observer.denied
	e       atomic.Pointer[entry]
	own     *proposal // of a KeyWithLimits; nil for others
}

// Key returns a handle for one key, which costs nothing. An empty name is denied by every method.
func (l *Limiter) Key(name string) *Key { return l.key(l.first, name, nil) }

func (l *Limiter) key(m *member, name string, own *proposal) *Key {
	return &Key{l: l, m: m, name: name, own: own, strict: l.cfg.Policy.StrictExpiry, watched: l.cfg.watched()}
}

// KeyWithLimits is Key with limits for the key, for callers that already know them. They take the place of
// those of LimitsFor or Limits from the first request that comes by this handle, and whenever the key comes
// back into use by it. They are a proposal (see Refresh): where the bucket has other limits, it takes these
// over when no process and no other handle has proposed the others for two TTLs, about a second by default.
// Until then the others hold, which Events.Conflict and the log say with the next call. SetLimits is for a
// plan that is to hold at once, and for all. A handle for each request is fine: it is registered nowhere. Two
// limits for different work of one customer are two keys, as those of one key contradict each other for as
// long as both are used.
//
// With limits that cannot be used, or none, every request by this handle gets ErrInvalidConfig or false.
func (l *Limiter) KeyWithLimits(name string, limits ...Limit) *Key {
	own := l.proposer.with("KeyWithLimits", limits)
	return l.key(l.first, name, &own)
}

// Class returns a handle for the same key and limits in class p of Config.Priorities: a request of
// that class is granted tokens only while the bucket has more than that share of its burst. Class 0
// is granted them always. A p below 0 means 0, and one above the last class means the last, so without
// Priorities a class changes nothing. Keep
// the handle, as that of a key: a Class for each request would look the key up by name each time.
func (k *Key) Class(p int) *Key {
	return k.l.key(k.l.class(p), k.name, k.own)
}

// Name is the key's name.
func (k *Key) Name() string { return k.name }

// Limiter is the Limiter of k, whatever the class. Its methods concern the key's limits.
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
			return k.watched && k.m.observer.announce(k.name, 1)
		}
		return k.allowed(e, p.End(left, mark))
	}
	return k.AllowN(1)
}

// allowed keeps the request, which is large, out of Allow.
func (k *Key) allowed(e *entry, t pool.Taken) bool {
	return k.m.allowed(k.request(e, 1, protocol.OneCall), t)
}

func (k *Key) request(e *entry, n int64, p protocol.Patience) request {
	return request{name: k.name, handle: &k.e, own: k.own, n: n, tried: e, patience: p}
}

// AllowN takes n tokens or none; see Limiter.AllowN.
func (k *Key) AllowN(n int64) bool {
	e := k.e.Load()
	return e.take(n) || k.m.decide(k.request(e, n, protocol.OneCall)).ok
}

// TryAllow is Allow without waiting. Where this process holds nothing, it returns false (before the first
// reply: what Policy.ColdStart says) and starts a lease call. Tokens that are not taken within a Target go
// back, so Allow suits a key better that is asked less often than that.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	return e.take(1) || k.m.decide(k.request(e, 1, protocol.NoWait)).ok
}

// Take takes n tokens or none and returns the reasons; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.OneCall))
}

// TakeUpTo takes as many tokens as there are, at most n and at most the burst, for work in batches that may
// be smaller. Result.Taken says how many, and OK that there was one, or that n is 0. Otherwise it is Take.
func (k *Key) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	return k.m.take(ctx, k.request(k.e.Load(), n, protocol.UpTo))
}

// Wait waits for one token; see WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits until n tokens, at most the burst, are this request's and returns nil, or returns an error and
// has taken none. Requests that wait in one process are served in the order in which they came, and before
// Allow. WaitN of 0 costs nothing.
//
// While the store is away, Policy.Fallback serves what it can, and the other requests wait for the store:
// nothing but the context bounds that. Before the first reply Policy.ColdStart decides.
//
// Errors wrap ErrWouldExceedDeadline, at once, where the context's deadline comes before the tokens
// can; the context's error when it ends first; ErrExceedsBurst, also where the limit is lowered
// meanwhile; ErrTableFull; ErrClosed, ErrInvalidKey, ErrInvalidN, ErrInvalidConfig as from Take. RetryAfter
// says when to try again. Each token counts against the limit when the bucket grants it, not when WaitN
// returns.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	return k.m.wait(ctx, k.request(k.e.Load(), n, protocol.InLine))
}

// Reserve takes estimate tokens or none, as Take does, for something whose cost is known afterwards. The
// Reservation is never nil, and OK says whether there is one. An estimate of 0, for a cost that cannot be
// guessed, takes one token: a key that is empty, or owes what earlier requests have used, denies it. Errors
// are those of Take.
func (k *Key) Reserve(ctx context.Context, estimate int64) (*Reservation, error) {
	return reserve(ctx, k.m, k.request(k.e.Load(), estimate, protocol.OneCall))
}

// Refund says that n tokens, with which this process admitted something, were not used after all. It does not
// wait: they travel with the key's next lease call, within a Target, and are a new permit when the bucket
// credits them. They count as taken since the last call: for a window that may have forgotten them, use
// Reserve and Settle. A refund on the way to a store that fails is lost. Refunding more than was taken breaks
// the limit.
//
// Nothing happens after Close, for an empty key or a negative n (counted in Stats as invalid), nor
// for a key that is not in this process's table.
func (k *Key) Refund(n int64) { k.m.refund(k.name, k.own, n, nil) }

// Peek reports without taking anything; see Limiter.Peek.
func (k *Key) Peek(ctx context.Context) (Result, error) {
	return k.m.peek(ctx, k.name, k.own)
}

// CachedLimits are the limits that this process last heard of; see Limiter.CachedLimits.
func (k *Key) CachedLimits() []Limit {
	if e := k.e.Load(); e != nil {
		return e.limits()
	}
	return k.m.cachedLimits(k.name)
}
