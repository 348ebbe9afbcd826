package hybrid

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid/internal/outage"
	"github.com/yuzhi-go/yuzhi/internal/protocol"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Limiter limits the rates of many keys for one process. The processes of a fleet share the buckets of a
// Store. Goroutines may share a Limiter. New returns a Limiter; the zero value does not work.
type Limiter struct {
	*group
	identity identity
}

// New returns a Limiter that leases tokens from store. New does no I/O, so it succeeds while the store is
// down. Errors of New wrap ErrInvalidConfig and name every violation.
//
// The caller ends a Limiter by Shutdown or Close.
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

// Headroom returns Policy.Headroom, the part of every burst that l leaves to other processes. Classes after
// class 0 leave a larger part of the burst.
func (l *Limiter) Headroom() float64 { return l.cfg.Policy.Headroom }

// Close stops l at once, without I/O, and returns nil. After Close, requests are denied, and waiting requests
// fail with ErrClosed. Unspent tokens stay leased until they expire at the store. Close leaves the store and
// its client open. A second Close does nothing.
func (l *Limiter) Close() error {
	if l.state.Swap(stateClosed) == stateClosed {
		return nil
	}
	l.identity.unregister()
	l.outages.Leave(l.watcher)
	for _, m := range l.members() {
		m.close()
	}
	l.cancel() // cancel last, because Policy.Fallback must not decide requests of canceled calls
	return nil
}

// Shutdown gives back the unspent tokens of this process and closes the Limiter. Call Shutdown after the
// server has answered its last request and before the client is closed. ctx bounds the wait: pass a new
// context with a timeout, not a context that an interrupt has already ended.
//
// Shutdown returns nil once the store has all tokens back. After an error the Limiter is closed too, and the
// tokens that were not returned are lost. The error is the context's, or wraps ErrUnavailable if the store
// did not take the tokens. A second Shutdown waits for the first.
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
	go func() { // the goroutine ends with Close at the latest
		l.leaving.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
		if n := l.lost.Load(); n > 0 {
			err = fmt.Errorf("hybrid: shutdown: %w: the last calls of %d keys failed; their tokens expire at the store",
				ErrUnavailable, n)
		}
	case <-ctx.Done():
		err = endedBy(ctx, "shutdown")
	}
	return errors.Join(err, l.Close())
}

// Peek reads key's bucket in the store. Peek takes no tokens and creates no bucket. Result.OK reports whether
// the bucket and this process together have a token now, and Remaining counts these tokens. After a denial, a
// process may deny for a while (docs/protocol.md section 8.11) although Peek is OK. Errors of Peek wrap
// ErrUnavailable (also after ten CallTimeouts), the context's error, ErrClosed, ErrInvalidKey, the error of
// Config.LimitsFor, or ErrInvalidConfig if LimitsFor returns invalid limits.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.first.peek(ctx, key, nil)
}

// Refresh calls Config.LimitsFor with ctx again for keys, or for every key in use if keys is empty. For a key
// that this process does not use now, LimitsFor runs at the key's next use.
//
// When the plan of a customer changes, store the new plan, drop the old plan from any cache inside LimitsFor,
// and then call Refresh with the key in every process. Under an equal Config.Version the bucket adopts the
// new limits two TTLs, about a second, after the last proposal of the old limits. SetLimits in one process
// changes the limits of all processes at once.
//
// Limits continue by the rules of SetLimits, except that a limit without a predecessor starts empty: a daily
// quota that the old plan lacks denies until its next period. To avoid such denials, give all plans a quota
// of the same length and offset, for example Calendar(1e9, 24*time.Hour, 0), or change the plan by SetLimits:
// a limit that SetLimits adds starts full.
//
// If LimitsFor fails or returns invalid limits, the old limits stay, and Refresh returns the error of one key
// and the number of failed keys. Refresh returns ErrClosed for a closed Limiter, and an error that wraps
// ErrInvalidKey for an empty key. A handle of KeyWithLimits keeps its limits. Refresh without keys skips keys
// longer than lease.KeyMax, because this process keeps only their hashes.
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

// Reset makes key's bucket as full as a new bucket, or empty with Policy.StartEmpty, and keeps the limits.
// Before the reset this process gives back its tokens of key; tokens that other processes hold stay counted
// as leased. The process of the caller follows the reset at once, other processes within a TTL. Reset creates
// no bucket. Errors of Reset are those of Peek; after ErrUnavailable the store may have executed the reset.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "reset", key, lease.OpReset)
	return err
}

// ReplaceLimits is SetLimits and Reset in one operation: the new limits never count earlier use.
// ReplaceLimits creates a missing bucket. Errors of ReplaceLimits are those of SetLimits.
func (l *Limiter) ReplaceLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "replace limits", key, lease.OpReplace, limits...)
	return err
}

// SetLimits stores limits for key in its bucket, for all processes. The stored limits replace Config.Limits
// and those of LimitsFor and KeyWithLimits, until ClearLimits or a process with a higher Config.Version
// removes the stored limits. The store keeps stored limits for 30 days after the last use of key.
//
// Before SetLimits stores the limits, this process gives back its tokens of key. The new limits decide
// requests that begin after SetLimits, and waiting requests continue to wait. Other processes adopt the
// limits within a TTL. Errors of SetLimits wrap ErrInvalidConfig, or are those of Peek. After ErrUnavailable
// the store may have stored the limits: read Levels, or repeat SetLimits.
//
// SetLimits keeps the count of used tokens; ReplaceLimits forgets the count. A new token bucket continues
// with the level of the token bucket that it replaces, up to its own burst. A new window continues with the
// count of a window of the same kind, length and offset. Any other new limit starts full. docs/protocol.md
// section 1 gives the bound during a change of limits.
func (l *Limiter) SetLimits(ctx context.Context, key string, limits ...Limit) error {
	_, err := l.configure(ctx, "set limits", key, lease.OpSet, limits...)
	return err
}

// ClearLimits ends SetLimits and ReplaceLimits for key. The bucket then has the limits that this Limiter
// proposes: those of Config.LimitsFor, or Config.Limits without LimitsFor. Call ClearLimits in a process with
// the configuration of the service. A quota that is missing there leaves, and starts used up when the service
// proposes it again (see Refresh). ClearLimits changes nothing if no limits are set. Errors of ClearLimits
// are those of SetLimits, or wrap the error of LimitsFor.
func (l *Limiter) ClearLimits(ctx context.Context, key string) error {
	_, err := l.configure(ctx, "clear limits", key, lease.OpClear)
	return err
}

// Level is one limit in force for a key, with its remaining tokens.
type Level struct {
	Limit      Limit         // the limit in force
	Remaining  int64         // tokens in the bucket and in this process, not in others; 0 to the burst
	ResetAfter time.Duration // time until the limit is full if nothing is drawn; a debt adds to the time
}

// Levels reads the limits in force for key and the remaining tokens of each limit from the store. A key
// without a bucket has the levels of a new bucket. Errors of Levels are those of Peek.
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

// Ping opens a connection to every node of the store and prepares the node for calls. Opening a connection
// can take longer than CallTimeout: call Ping before the first request. Ping tries operations of lease calls,
// such as a write, but takes no tokens. For Policy.ColdStart, a Ping does not count as a reply about a key.
// Errors of Ping wrap the context's error, ErrClosed or ErrUnavailable. An error that needs an operator also
// wraps lease.ErrPermanent.
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

// Stats returns sums over all keys, including forgotten keys. Counters never decrease, except that
// Reservation.Cancel and a denied Join lower Admitted. Stats reads every key in use: call Stats once a second
// at most.
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

// watch makes g report outages, together with the other Limiters of the store.
func (g *group) watch() {
	g.watcher = &outage.Watcher{
		Clock: g.cfg.Clock, Logger: g.cfg.Logger, Away: g.observer.nodeAway, Back: g.observer.nodeBack,
	}
	name := func(number int) string { return nodeName(g.store, number) }
	g.outages = outage.Watch(storeIdentity(g.store), identityOf(g.cfg.Clock), name, g.watcher)
}

// identity identifies the buckets of a Limiter and the version of its configuration.
type identity struct {
	store   any
	name    string
	version int64
}

// storeIdentity returns equal values for Stores that share their buckets; see lease.Identifier.
func storeIdentity(store Store) any {
	id := any(store)
	if s, ok := store.(lease.Identifier); ok {
		id = s.Identity()
	}
	return identityOf(id)
}

// identityOf returns id, or a unique value if the type of id is not comparable.
func identityOf(id any) any {
	if !reflect.ValueOf(id).Comparable() {
		return new(byte)
	}
	return id
}

var openLimiters = struct {
	sync.Mutex
	byIdentity map[identity]*proposers
}{byIdentity: make(map[identity]*proposers)}

type proposers struct {
	proposed lease.Config
	limiters int
}

// register records an open Limiter, or refuses a Limiter whose settings differ from those of an open Limiter
// of the same buckets: chance would decide which settings are in force.
func (id identity) register(proposed lease.Config) error {
	openLimiters.Lock()
	defer openLimiters.Unlock()
	p := openLimiters.byIdentity[id]
	if p == nil {
		p = &proposers{proposed: proposed}
		openLimiters.byIdentity[id] = p
	}
	have := p.proposed
	if !sameBucket(have, proposed) {
		return fmt.Errorf("%w: another open Limiter of this Store has Name %q and Version %d, but other "+
			"settings: limits %v, Overcommit %d, Target %v, StartEmpty %t; this one has %v, %d, %v, %t; "+
			"use another Name, close the other Limiter, or raise Version",
			ErrInvalidConfig, id.name, id.version, have.Limits, have.Overcommit, have.Target, have.StartEmpty,
			proposed.Limits, proposed.Overcommit, proposed.Target, proposed.StartEmpty)
	}
	p.limiters++
	return nil
}

func (id identity) unregister() {
	openLimiters.Lock()
	defer openLimiters.Unlock()
	p := openLimiters.byIdentity[id]
	if p.limiters--; p.limiters == 0 {
		delete(openLimiters.byIdentity, id)
	}
}
