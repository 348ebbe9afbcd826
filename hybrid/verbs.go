package hybrid

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/pool"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Allow takes one token of key and reports whether there was one. On a warm key it costs about one
// atomic instruction; it waits for one lease call, at most CallTimeout, where this process holds
// nothing and the bucket is not known to be empty. False for a closed Limiter and for an empty key.
func (l *Limiter) Allow(key string) bool {
	e := l.keys.glance(key)
	if e == nil || l.cfg.Policy.StrictExpiry {
		return l.AllowN(key, 1)
	}
	t := e.client.Pool.Take()
	return t == pool.Took || l.allowed(request{name: key, n: 1, tried: e, patience: protocol.OneCall}, t)
}

// allowed is the rest of Allow where the pool had more to do than to hand out a token.
func (l *Limiter) allowed(r request, t pool.Taken) bool {
	switch t {
	case pool.Took:
		return true
	case pool.TookLow:
		r.tried.low()
		return true
	case pool.Denied:
		return l.watched && l.denied(r.name, 1)
	}
	return l.decide(r).ok
}

// AllowN takes n tokens of key or none. AllowN(key, 0) is true and costs nothing; a negative n, or
// one above the burst, is false. See Allow.
func (l *Limiter) AllowN(key string, n int64) bool {
	e := l.keys.glance(key)
	return e.take(n) || l.decide(request{name: key, n: n, tried: e, patience: protocol.OneCall}).ok
}

// TryAllow is Allow that never waits. Where this process holds nothing it is false (before the
// first reply: what Policy.ColdStart says) and starts a lease call. What nobody takes within a
// Target goes back, so a key that is asked less often than that wants Allow.
func (l *Limiter) TryAllow(key string) bool {
	e := l.keys.glance(key)
	return e.take(1) || l.decide(request{name: key, n: 1, tried: e}).ok
}

// Take is AllowN with a context and a Result. A denial is a Result with OK false and no error. An n
// of 0 is OK, costs nothing and creates nothing. Errors wrap ErrClosed, ErrInvalidKey, ErrInvalidN,
// ErrExceedsBurst, ErrInvalidConfig where Config.LimitsFor gives limits that cannot be used, or the
// context's error when it ends first.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (Result, error) {
	return l.take(request{name: key, n: n, tried: l.keys.glance(key), patience: protocol.OneCall, ctx: ctx})
}

// TakeUpTo is Take of as many tokens of key as there are, at most n and at most the burst:
// Result.Taken says how many, and OK that there was one. It is for work that comes in batches which
// may be smaller.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, n int64) (Result, error) {
	return l.take(request{name: key, n: n, tried: l.keys.glance(key), patience: protocol.UpTo, ctx: ctx})
}

// Wait waits for one token of key; see WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n tokens of key, at most the burst, are this request's and returns nil, or
// returns an error and has taken none. Those who wait in one process are served in the order in
// which they came, and before Allow. WaitN of 0 costs nothing.
//
// Errors wrap ErrWouldExceedDeadline, at once, where the context's deadline comes before the tokens
// can; the context's error when it ends first; ErrExceedsBurst, also where the limit is lowered
// meanwhile; ErrUnavailable where the store is away and Policy.Fallback gives nothing; ErrClosed,
// ErrInvalidKey, ErrInvalidN, ErrInvalidConfig as from Take. Each token counts against the limit
// when the bucket grants it, not when WaitN returns.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	return l.wait(request{name: key, n: n, tried: l.keys.glance(key), patience: protocol.InLine, ctx: ctx})
}

// Key is a handle for one key of a Limiter: its methods without the key, and without the look-up by
// name. It lives as long as the Limiter, and goroutines may share it.
type Key struct {
	l       *Limiter
	name    string
	strict  bool
	watched bool // see Limiter.denied
	e       atomic.Pointer[entry]
	own     *proposal // of a KeyWith; nil for others
}

// Key returns a handle for one key, which costs nothing. An empty name is denied by every method.
func (l *Limiter) Key(name string) *Key {
	return &Key{l: l, name: name, strict: l.cfg.Policy.StrictExpiry, watched: l.watched}
}

// Name is the key's name.
func (k *Key) Name() string { return k.name }

// Limiter is what k is a key of, in whatever class. It has what concerns the key's limits.
func (k *Key) Limiter() *Limiter { return k.l.base }

// Allow takes one token; see Limiter.Allow.
func (k *Key) Allow() bool {
	if e := k.e.Load(); e != nil && !k.strict {
		p := &e.client.Pool
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
			return k.watched && k.l.denied(k.name, 1)
		}
		return k.allowed(e, p.End(left, mark))
	}
	return k.AllowN(1)
}

// allowed keeps the request, which is large, out of Allow.
func (k *Key) allowed(e *entry, t pool.Taken) bool {
	return k.l.allowed(request{name: k.name, key: k, n: 1, tried: e, patience: protocol.OneCall}, t)
}

// AllowN takes n tokens or none; see Limiter.AllowN.
func (k *Key) AllowN(n int64) bool {
	e := k.e.Load()
	return e.take(n) || k.l.decide(request{name: k.name, key: k, n: n, tried: e, patience: protocol.OneCall}).ok
}

// TryAllow is Allow that never waits; see Limiter.TryAllow.
func (k *Key) TryAllow() bool {
	e := k.e.Load()
	return e.take(1) || k.l.decide(request{name: k.name, key: k, n: 1, tried: e}).ok
}

// Take takes n tokens or none and says why; see Limiter.Take.
func (k *Key) Take(ctx context.Context, n int64) (Result, error) {
	return k.l.take(request{name: k.name, key: k, n: n, tried: k.e.Load(), patience: protocol.OneCall, ctx: ctx})
}

// TakeUpTo takes what there is, at most n tokens; see Limiter.TakeUpTo.
func (k *Key) TakeUpTo(ctx context.Context, n int64) (Result, error) {
	return k.l.take(request{name: k.name, key: k, n: n, tried: k.e.Load(), patience: protocol.UpTo, ctx: ctx})
}

// Wait waits for one token; see Limiter.WaitN.
func (k *Key) Wait(ctx context.Context) error { return k.WaitN(ctx, 1) }

// WaitN waits for n tokens; see Limiter.WaitN.
func (k *Key) WaitN(ctx context.Context, n int64) error {
	return k.l.wait(request{name: k.name, key: k, n: n, tried: k.e.Load(), patience: protocol.InLine, ctx: ctx})
}

// Result is one decision. Above the limit denials come in stretches (docs/protocol.md section
// 8.11): a process denies until it asks again, although the bucket, and so Peek, may have tokens
// again.
type Result struct {
	OK        bool   // the request is admitted
	Taken     int64  // tokens that it has: all that it asked for where OK, or some of them by TakeUpTo
	Shadowed  bool   // only because of Policy.Shadow; the other fields are those of the denial
	Key       string // the key; of several that are joined, the one that binds (see Joined.Take)
	Limit     Limit  // the one with the least left of its burst, or, for a denial, the longest wait
	Remaining int64  // what this process holds plus what the bucket had at the last reply, at most Burst
	// RetryAfter is the earliest time at which the tokens can exist; 0 where OK, and never 0 for a
	// denial: who sleeps that long and asks again is denied at most once for each token. Without the
	// store it is when the local share has them, or else a CallTimeout.
	RetryAfter time.Duration
	// ResetAfter is how long it takes until Remaining is Burst, if nobody draws. Of a sliding
	// window it is the longest that it can take, of a calendar the time until its boundary.
	ResetAfter time.Duration
	Source     Source // what the decision rests on
}

// resultOf is a decision with what the process can tell about the key.
func resultOf(key string, ok bool, source Source, o protocol.Outlook) Result {
	r := Result{OK: ok, Key: key, Limit: o.Limit, Remaining: o.Remaining, ResetAfter: o.ResetAfter, Source: source}
	if !ok {
		r.RetryAfter = o.RetryAfter
	}
	return r
}

// wait is WaitN.
func (l *Limiter) wait(r request) error {
	r.verb = "wait"
	if r.ctx.Err() != nil {
		return endedBy(r.ctx, r.verb)
	}
	if r.tried.take(r.n) {
		return nil
	}
	return l.decide(r).err
}

// take is Take and TakeUpTo.
func (l *Limiter) take(r request) (Result, error) {
	result, _, err := l.takeHold(r)
	return result, err
}

// takeHold is take, and what the request holds.
func (l *Limiter) takeHold(r request) (Result, hold, error) {
	r.verb = "take"
	if r.ctx.Err() != nil {
		return Result{}, hold{}, endedBy(r.ctx, r.verb)
	}
	asked := r.n
	r.n = r.tried.most(r)
	d := decision{ok: true, taken: r.n, entry: r.tried}
	if d.hold, d.ok = r.tried.takeHold(r.n); !d.ok {
		d = l.decide(r)
	}
	if d.taken < asked && l.cfg.Policy.Shadow && d.err == nil {
		d.shadowed, d.taken = true, asked
	}
	return d.result(r.name, r.least()), d.hold, d.err
}

// result is what Take says that d answers, of a request that can do with so many tokens.
func (d *decision) result(key string, least int64) Result {
	if d.outlook != nil {
		r := resultOf(key, d.ok && !d.shadowed, d.source, *d.outlook)
		r.OK, r.Taken, r.Shadowed = d.ok, d.taken, d.shadowed
		return r
	}
	if d.err != nil || d.entry == nil {
		return Result{OK: d.ok, Taken: d.taken, Shadowed: d.shadowed, Key: key, Source: d.source}
	}
	admitted := d.ok && !d.shadowed
	r := resultOf(key, admitted, d.source, d.entry.outlook(least, admitted))
	r.OK, r.Taken, r.Shadowed = d.ok, d.taken, d.shadowed
	if !admitted {
		if d.source == SourceFallback {
			r.RetryAfter = 0 // what was last heard of the bucket decides nothing now
		}
		r.RetryAfter = max(r.RetryAfter, d.wait, 1)
	}
	return r
}

// outlook is what e can tell about a request for n tokens, without the lock once there has been a
// reply.
func (e *entry) outlook(n int64, admitted bool) protocol.Outlook {
	held := e.client.Pool.Held()
	if h := e.heard.Load(); h != nil {
		return h.Outlook(e.Now(), n, held, admitted)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st := lease.State{Config: lease.Config{Limits: e.client.Limits()}}
	return protocol.StateOutlook(&st, n, held, e.l.cfg.Policy.Headroom, admitted)
}

// KnownLimits are the limits of key that this process last heard of, and that its answers rest on.
// It asks nobody, so it is nil for a key that is not in use or has not had a reply yet; LimitsOf
// asks the store. The slice is not to be changed.
func (l *Limiter) KnownLimits(key string) []Limit {
	s := l.keys.find(key)
	if s == nil {
		return nil
	}
	if e := s.entry.Load(); e != nil {
		return e.knownLimits()
	}
	idle := &l.keys.idle
	idle.mu.Lock()
	defer idle.mu.Unlock()
	if s.own == nil || !s.memory.Recent(l.cfg.Clock.Now()) {
		return nil
	}
	return s.memory.Limits(s.own)
}

// KnownLimits are the limits that this process last heard of; see Limiter.KnownLimits.
func (k *Key) KnownLimits() []Limit {
	if e := k.e.Load(); e != nil {
		return e.knownLimits()
	}
	return k.l.KnownLimits(k.name)
}

func (e *entry) knownLimits() []Limit {
	if e == nil {
		return nil
	}
	if h := e.heard.Load(); h != nil {
		return h.Limits()
	}
	return nil
}
