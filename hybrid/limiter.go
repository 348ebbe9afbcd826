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

// Limiter limits the rates of many keys for one process; the processes of a fleet share buckets
// through the Store. It has one goroutine, plus one for each batch of calls under way. Goroutines
// may share it. Use New; the zero value does not work.
type Limiter struct {
	*group
	identity identity
}

// New returns a Limiter that leases from store. It does no I/O, so it works while the store is
// down. Errors wrap ErrInvalidConfig and name every violation; a nil store is one, also where it is
// a nil of some type, which would crash later. Shutdown it when done, or Close it, which gives
// nothing back: until then no other with its Name may contradict it (see Config.Name).
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
		l.observer.limits.of(limit) // it comes first
	}
	l.observer.proposed(cfg.Limits)
	l.watch()
	l.first = l.newMember(cfg.Policy.Headroom)
	l.first.run()
	return l, nil
}

// Name is Config.Name.
func (l *Limiter) Name() string { return l.cfg.Name }

// Headroom is Policy.Headroom, the part of every burst that l leaves. A class of l leaves more.
func (l *Limiter) Headroom() float64 { return l.cfg.Policy.Headroom }

// Close stops serving at once, without I/O: every later request is denied, waiting ones fail with
// ErrClosed, and tokens that are held are left to expire at the store. The store and its client stay
// the caller's. Close may be called more than once and returns nil.
func (l *Limiter) Close() error {
	if l.state.Swap(stateClosed) == stateClosed {
		return nil
	}
	l.identity.unregister()
	l.outages.Leave(l.watcher)
	for _, m := range l.members() {
		m.close()
	}
	l.cancel() // last, or the failures of cancelled calls would be answered by Policy.Fallback
	return nil
}

// Shutdown gives back the tokens that this process holds and then closes. It returns when all are
// back, with the context's error, or with one that wraps ErrUnavailable where the store did not take
// them, so that they expire a TTL later; the Limiter is closed in any case. ctx bounds the wait, so it is not
// the one that an interrupt has ended. Call it after the server has answered its last request, and before the
// client is closed. A second Shutdown waits for the first.
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
	go func() { // ends with Close at the latest
		l.leaving.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
		if n := l.lost.Load(); n > 0 {
			err = fmt.Errorf("hybrid: shutdown: %w: %d keys could not return their tokens, which expire",
				ErrUnavailable, n)
		}
	case <-ctx.Done():
		err = endedBy(ctx, "shutdown")
	}
	return errors.Join(err, l.Close())
}

// Peek asks the store about key; it takes and creates nothing. OK says whether one token is to be
// had now; Remaining counts what this process holds and what the bucket has. Errors wrap
// ErrUnavailable (also after ten CallTimeouts), the context's error, ErrClosed, ErrInvalidKey, or
// ErrInvalidConfig where Config.LimitsFor gives limits that cannot be used.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.first.peek(ctx, key, nil)
}

// Refresh asks Config.LimitsFor again for the limits of these keys, or of every key in use where none is
// given. A key that this process does not use now is asked for with its next use. The new limits are proposed
// to the bucket from the next call on. Under an equal Config.Version the bucket takes them over when no
// process has proposed the old limits for two TTLs, so every process of the fleet must refresh; SetLimits is
// for a change that one process orders for all. A key with a KeyWithLimits keeps the limits that were given.
// LimitsFor gets ctx. Of a key longer than lease.KeyMax this process keeps only a hash: name it.
//
// Where LimitsFor fails or gives limits that cannot be used, the old ones stay, and Refresh returns the error
// of one key, with their number. It is ErrClosed for a closed Limiter, and wraps ErrInvalidKey for an empty
// key.
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
		return fmt.Errorf("hybrid: refresh: %d keys: %w", failures, failed)
	}
	return nil
}

// Reset makes key's bucket what a new one would be: full, or empty with Policy.StartEmpty. The
// limits stay. This process gives back what it holds first; for what others held at their last
// report, room is kept. This process sees the reset at once, the others within a TTL. A bucket that
// does not exist is not created. Errors are those of Peek.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "reset", key, lease.OpReset)
	return err
}

// ReplaceLimits is SetLimits and Reset in one operation: key's bucket becomes what a new one with these
// limits would be, and at no moment has the new limits and the old use. A bucket that does not
// exist is created. Errors are those of SetLimits.
func (l *Limiter) ReplaceLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "replace limits", key, lease.OpReplace, limits...)
	return err
}

// SetLimits stores limits for key in place of those that are in force, for the whole fleet. This process
// gives back what it holds first, and follows before SetLimits returns: a request that begins later is
// decided by the new limits, and one that waits goes on waiting, unless a grant of before has its tokens. The
// others follow within a TTL. Tokens that were used stay used (ReplaceLimits drops that), and equal limits go
// on wherever they stand now; docs/protocol.md sections 1 and 6 say what holds in between. A token bucket
// goes on with the level of the one that it replaces, as far as its burst goes, and a window with the count
// of one of its kind, length and offset. Another limit is new, and starts full. Unlimited and Blocked suspend
// the limits: the ones that come after them go on with those of before.
//
// They win over Config.Limits, LimitsFor and KeyWithLimits until a process comes with a higher
// Config.Version, and are remembered for 30 days after the last use: from then on a change of this key goes
// through SetLimits, until ClearLimits takes them back. Errors are those of Peek, or wrap ErrInvalidConfig.
func (l *Limiter) SetLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "set limits", key, lease.OpSet, limits...)
	return err
}

// ClearLimits takes back what SetLimits or ReplaceLimits set for key: what this process proposes, from
// Config.Limits or LimitsFor, is in force for the whole fleet again, as if it had been set. From then on a
// deploy or Refresh changes the limits as before SetLimits. It changes nothing where no limits are set.
// Errors are those of SetLimits, or that of LimitsFor.
func (l *Limiter) ClearLimits(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "clear limits", key, lease.OpClear)
	return err
}

// Level is one limit of a key and what is left of it.
type Level struct {
	Limit      Limit         // in force
	Remaining  int64         // tokens in the bucket and in this process, at most the burst
	ResetAfter time.Duration // until Remaining is the burst, if no tokens are drawn; see Result.ResetAfter
}

// Levels asks the store for the limits in force for key and the level of each. Where the key has no bucket,
// they are those of a new one. Errors are those of Peek.
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

// Ping opens a connection to every node of the store and prepares it for calls, which on a slow
// link takes longer than CallTimeout: a service that must not deny its first requests calls it
// before it takes traffic. Limiters on one client, or one Store, share the connections. It tries what
// lease calls need, such as a write, but takes no tokens and is no reply about a key (see ColdStart).
// Errors wrap ErrUnavailable (and lease.ErrPermanent where an operator must act), the context's error or
// ErrClosed.
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

// Stats sums up all keys, also those that have left, each once. Counters never decrease, except that tokens
// that are given back (by Reservation.Cancel, or where a Join is denied) leave Admitted. Stats looks at every
// key in use, so call it once a second and not once a request.
func (l *Limiter) Stats() Stats {
	c := &l.observer.counters
	c.one.Lock()
	defer c.one.Unlock()
	c.mu.Lock()
	c.sum = c.retired
	c.number++
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
