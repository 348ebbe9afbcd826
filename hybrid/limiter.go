package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Limiter limits the rates of many keys for one process. The processes of a fleet share the buckets of a
// Store. A Limiter has one goroutine, and one more for each batch of calls under way. Goroutines may share
// it. Use New; the zero value does not work.
type Limiter struct {
	*group
	identity identity
}

// New returns a Limiter that leases tokens from store. It does no I/O, so it works while the store is down.
// Its errors wrap ErrInvalidConfig and name every violation; a nil store is a violation, even as a typed nil.
//
// Call Shutdown at the end, or Close. Until then, New refuses another Limiter of the same Store, Name and
// Version with other settings (see Config.Name).
func New(store Store, cfg Config) (*Limiter, error) {
	bad := violation.List{Kind: ErrInvalidConfig}
	if isNil(store) {
		bad.Add("store", nil, "is nil")
	}
	bad.Adopt(cfg.Validate(), violation.Under(""))
	if err := bad.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Limits, cfg.Priorities = slices.Clone(cfg.Limits), slices.Clone(cfg.Priorities)
	l := &Limiter{newGroup(store, cfg), identity{storeIdentity(store), cfg.Name, cfg.Version}}
	if err := l.identity.register(l.proposer.defaults); err != nil {
		return nil, err
	}
	if cfg.Scope == ScopeProcess {
		l.store = newProcessStore(l.ctx, &l.cfg, l.observer, store)
	}
	for _, limit := range cfg.Limits {
		l.observer.limits.counts(limit) // Stats.Limits lists Config.Limits first
	}
	l.observer.targetCapped(cfg.Limits)
	l.watch()
	l.first = l.newMember(cfg.Policy.Headroom)
	l.first.run()
	return l, nil
}

// Name returns Config.Name.
func (l *Limiter) Name() string { return l.cfg.Name }

// Headroom returns Policy.Headroom, the part of every burst that l leaves to others. A class of l leaves
// more.
func (l *Limiter) Headroom() float64 { return l.cfg.Policy.Headroom }

// Close stops serving at once, without I/O, and returns nil. Later requests are denied, and waiting requests
// fail with ErrClosed. Unspent tokens stay leased until they expire at the store; Shutdown gives them back.
// The caller keeps the store and its client. A second Close does nothing.
func (l *Limiter) Close() error {
	if l.state.Swap(stateClosed) == stateClosed {
		return nil
	}
	l.identity.unregister()
	l.outages.Leave(l.watcher)
	for _, m := range l.members() {
		m.close()
	}
	l.cancel() // last: Policy.Fallback must not decide requests whose calls this cancels
	return nil
}

// Shutdown gives back the unspent tokens of this process and closes the Limiter. Call it after the server has
// answered its last request and before the client is closed. ctx bounds the wait: pass a new context with a
// timeout, not the one that an interrupt has already ended.
//
// It returns nil once the store has all tokens back. Otherwise the Limiter is closed too, and the tokens
// expire within a TTL: the error is the context's, or wraps ErrUnavailable if the store did not take them.
// Log it: there is nothing left to do. A second Shutdown waits for the first.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l.state.CompareAndSwap(stateOpen, stateLeaving) {
		for _, m := range l.members() {
			m.leave()
		}
		l.leaving.Done()
	} else if l.state.Load() == stateClosed {
		return nil
	}
	ended := make(chan struct{})
	go func() { // Close ends it at the latest
		l.leaving.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
		if n := l.lost.Load(); n > 0 {
			err = fmt.Errorf("hybrid: shutdown: %w: the last call of %d keys failed; tokens that they hold expire",
				ErrUnavailable, n)
		}
	case <-ctx.Done():
		err = endedBy(ctx, "shutdown")
	}
	return errors.Join(err, l.Close())
}

// Peek reads key's bucket in the store. It takes no tokens and creates no bucket. OK reports whether the
// bucket and this process have a token now; Remaining counts their tokens. Errors wrap ErrUnavailable (also
// after ten CallTimeouts), the context's error, ErrClosed, ErrInvalidKey, the error of Config.LimitsFor, or
// ErrInvalidConfig if LimitsFor returns invalid limits.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.first.peek(ctx, key, nil)
}

// Refresh calls Config.LimitsFor again for these keys, or for every key in use if there are none. LimitsFor
// gets ctx. A key that this process does not use has its LimitsFor called with its next use.
//
// When the plan of a customer changes, store the new plan first, drop it from any cache inside LimitsFor, and
// then call Refresh with the key in every process. Each process proposes the new limits with its next call.
// Under an equal Config.Version the bucket takes them over two TTLs, about a second, after the last proposal
// of the old limits. To change the limits of all processes at once from one of them, use SetLimits.
//
// Limits continue as SetLimits says, except that a limit which continues none starts empty: a daily quota
// that the old plan lacks denies until its next period. So give all plans a quota of the same length and
// offset, for example Calendar(1e9, 24*time.Hour, 0), or change the plan by SetLimits, under which an added
// limit starts full.
//
// If LimitsFor fails or returns invalid limits, the old limits stay. Refresh then returns the error of one
// key and the number of failed keys. It returns ErrClosed for a closed Limiter, and wraps ErrInvalidKey for
// an empty key. A handle of KeyWithLimits keeps its limits. A key longer than lease.KeyMax must be named:
// this process keeps only its hash.
func (l *Limiter) Refresh(ctx context.Context, keys ...string) error {
	switch {
	case !l.open():
		return ErrClosed
	case slices.Contains(keys, ""):
		return errEmptyKey
	}
	var failed error
	failures := 0
	note := func(err error) {
		if err != nil {
			failed = err
			failures++
		}
	}
	l.proposer.refreshes.Add(1)
	for _, key := range keys {
		note(l.refreshKey(ctx, key))
	}
	for _, m := range l.members() {
		if len(keys) == 0 {
			m.refreshAll(ctx, note)
		}
	}
	if failed != nil {
		return fmt.Errorf("hybrid: refresh: %d keys keep their limits: %w", failures, failed)
	}
	return nil
}

// Reset makes key's bucket as full as a new one; with Policy.StartEmpty it becomes empty. The limits stay.
// First this process gives back its tokens of key; tokens that other processes hold stay counted as leased.
// This process follows the reset at once, other processes within a TTL. Reset creates no bucket. Errors are
// those of Peek; after ErrUnavailable the reset may have happened.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "reset", key, lease.OpReset)
	return err
}

// ReplaceLimits is SetLimits and Reset in one operation: key's bucket becomes a new one with these limits.
// The new limits never count earlier use. ReplaceLimits creates a missing bucket. Errors are those of
// SetLimits.
func (l *Limiter) ReplaceLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "replace limits", key, lease.OpReplace, limits...)
	return err
}

// SetLimits stores limits for key in its bucket, for all processes. They win over Config.Limits, LimitsFor
// and KeyWithLimits until ClearLimits removes them or a process has a higher Config.Version. The store
// remembers them for 30 days after the last use of key.
//
// This process first gives back its tokens of key. A request that begins after SetLimits is decided by the
// new limits, and a waiting request goes on waiting. The other processes follow within a TTL. Errors wrap
// ErrInvalidConfig, or are those of Peek. After ErrUnavailable the store may have taken the limits: read
// Levels, or repeat SetLimits.
//
// Tokens that were used stay used; ReplaceLimits forgets them. A token bucket continues with the level of the
// bucket that it replaces, up to its own burst. A window continues with the count of a window of the same
// kind, length and offset. Any other new limit starts full. Unlimited and Blocked suspend the limits: the
// next limits continue from those before the suspension. docs/protocol.md sections 1 and 6 give the bounds in
// between.
func (l *Limiter) SetLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "set limits", key, lease.OpSet, limits...)
	return err
}

// ClearLimits ends SetLimits and ReplaceLimits for key. The store then has the limits that this Limiter
// proposes: those of Config.LimitsFor, or Config.Limits without it. So call it in a process with the
// configuration of the service: a quota that the process lacks starts empty when the service proposes it
// again (see Refresh), and only Reset or its next period repairs that. Later a deploy or Refresh changes the
// limits of key again. ClearLimits changes nothing if no limits are set. Errors are those of SetLimits, or
// wrap the error of LimitsFor.
func (l *Limiter) ClearLimits(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "clear limits", key, lease.OpClear)
	return err
}

// Level is one limit of a key, with the tokens left.
type Level struct {
	Limit      Limit         // the limit in force
	Remaining  int64         // tokens in the bucket and this process, not in others; 0 to the burst
	ResetAfter time.Duration // time until the limit is full if nothing is drawn; a debt makes it longer
}

// Levels reads from the store the limits in force for key and the tokens left of each. A key without a bucket
// has the levels of a new one. Errors are those of Peek.
func (l *Limiter) Levels(ctx context.Context, key string) ([]Level, error) {
	st, held, err := l.first.inspect(ctx, "levels", key, nil)
	levels := make([]Level, len(st.Config.Limits))
	for k, limit := range st.Config.Limits {
		one := lease.Status{Config: lease.Config{Limits: []Limit{limit}}}
		one.Levels[0], one.Next[0] = st.Levels[k], st.Next[k]
		o := protocol.StateOutlook(&one, 1, held, 0, true)
		levels[k] = Level{limit, o.Remaining, o.ResetAfter}
	}
	return levels, err
}

// Ping opens a connection to every node of the store and prepares it for calls. On a slow link that takes
// longer than CallTimeout, so a service calls Ping before its first request. Limiters of one client, or one
// Store, share the connections. Ping tries what lease calls need, such as a write, but takes no tokens. For
// ColdStart it does not count as a reply about a key. Errors wrap the context's error, ErrClosed or
// ErrUnavailable, and also lease.ErrPermanent if an operator must act.
func (l *Limiter) Ping(ctx context.Context) error {
	switch {
	case !l.open():
		return ErrClosed
	case ctx.Err() != nil:
		return endedBy(ctx, "ping")
	}
	p, ok := l.store.(lease.Pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })()
	if err := p.Ping(ctx); err != nil {
		return unavailable("ping", err)
	}
	return nil
}

// Stats adds up all keys, including forgotten ones, each once. Counters never decrease, except that
// Reservation.Cancel and a denied Join lower Admitted. Stats reads every key in use: call it once a second,
// not for each request.
func (l *Limiter) Stats() Stats {
	c := &l.observer.counters
	c.statsMu.Lock()
	defer c.statsMu.Unlock()
	c.mu.Lock()
	c.sum = c.retired
	c.statsNumber++
	c.limits.rest.Keys = 0
	for i := range c.limits.all {
		c.limits.all[i].Keys = 0
	}
	c.mu.Unlock()
	st := Stats{Name: l.cfg.Name}
	for _, m := range l.members() {
		m.addTo(&st)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Leased, st.Returned, st.Burnt = c.sum.Granted, c.sum.Returned, c.sum.Burnt
	st.Held, st.Refunded, st.UnknownToBucket = c.sum.Held, c.sum.Refunded, c.sum.voided
	st.TableFull, st.Charged = c.full.Load(), c.charged.Load()
	for _, n := range st.Nodes {
		st.Fallback, st.FallbackDenied = st.Fallback+n.Fallback, st.FallbackDenied+n.FallbackDenied
	}
	st.Admitted = c.sum.Admitted + st.Fallback
	st.Denied = c.sum.denied + st.TableFull
	if l.cfg.Policy.Shadow {
		st.Shadowed, st.Denied = st.Denied+c.shadowed.Load(), c.ended.Load()
	}
	st.Calls, st.RoundTrips, st.Errors = c.calls.Load(), c.roundTrips.Load(), c.errors.Load()
	st.Conflicts, st.Invalid = c.conflicts.Load(), c.invalid.Load()
	st.GrantedToWaiters, st.Misconfigured = c.awaited.Load(), c.misconfigured.Load()
	st.Limits = c.limits.list(l.cfg.Policy.Shadow)
	return st
}
