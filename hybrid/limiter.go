package hybrid

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Limiter limits the rates of many keys for one process; the processes of a fleet share buckets
// through the Store. It has one goroutine, plus one for each batch of calls under way. It may be
// shared between goroutines. Use New; the zero value does not work.
type Limiter struct {
	store    lease.Store
	cfg      Config
	identity identity

	instance string                 // the label and random bits
	id       atomic.Pointer[string] // of new entries: instance, or another after a clone was met
	defaults lease.Config           // what this process proposes for a key of which LimitsFor says nothing
	keys     table
	seq      atomic.Int64

	refreshes     atomic.Int64 // how often Refresh and RefreshAll were called
	misconfigured misconfigured
	shared        sharedConfigs

	nodes    nodes
	counters *counters // of all classes
	herald   *herald
	watched  bool // a denial has consequences: see denied

	base    *Limiter // of which this is a class, or itself
	classes siblings // of base

	scheduler scheduler
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc

	warned, warnedSlow sync.Once
	voids, others      notice // leases that a bucket did not know; other limits under the same version
	crowds             notice // fleets that are too large for a burst to keep their budget of calls

	state        atomic.Int32
	leaving      sync.WaitGroup // the entries that Shutdown waits for, and itself until it knows them all
	notGivenBack atomic.Int64   // how many of them could not give back what they held
}

// The states of a Limiter, in their order.
const (
	stateOpen int32 = iota
	stateLeaving
	stateClosed
)

// New returns a Limiter that leases from store. It does no I/O, so it works while the store is
// down. Errors wrap ErrInvalidConfig and name every violation; a nil store is one, also where it is
// a nil of some type, which would crash later. Close it when done: until then no other with its
// Name may contradict it (see Config.Name).
func New(store lease.Store, cfg Config) (*Limiter, error) {
	err := cfg.Validate()
	if isNil(store) {
		err = errors.Join(fmt.Errorf("%w: store is nil", ErrInvalidConfig), err)
	}
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Limits, cfg.Priorities = slices.Clone(cfg.Limits), slices.Clone(cfg.Priorities)
	l := &Limiter{
		store:    store,
		cfg:      cfg,
		identity: identity{storeIdentity(store), cfg.Name, cfg.Version},
		defaults: cfg.Policy.ConfigFor(cfg.Limits, cfg.Version, cfg.CallTimeout),
		counters: new(counters),
		herald:   new(herald),
		watched:  cfg.Events.Denied != nil || cfg.Policy.Shadow,
	}
	if err := l.register(); err != nil {
		return nil, err
	}
	if cfg.Scope == ScopeProcess {
		l.store = newProcessStore(l, store)
	}
	l.base, l.classes.made = l, make([]atomic.Pointer[Limiter], len(cfg.Priorities))
	for _, limit := range cfg.Limits {
		l.counters.limits.of(limit) // it comes first
	}
	l.warn(cfg.Limits)
	l.start()
	return l, nil
}

// Name is Config.Name.
func (l *Limiter) Name() string { return l.cfg.Name }

// Headroom is the part of every burst that l leaves in the bucket: Policy.Headroom. A class of l
// leaves more.
func (l *Limiter) Headroom() float64 { return l.cfg.Policy.Headroom }

// start makes l, whose settings are there, go.
func (l *Limiter) start() {
	l.instance = randomText()
	if l.cfg.InstanceID != "" {
		l.instance = l.cfg.InstanceID + "-" + l.instance
	}
	l.id.Store(&l.instance)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.keys.init()
	l.nodes.l = l
	l.scheduler.init(l)
	l.leaving.Add(1)
	go l.scheduler.run()
}

// randomText is 64 random bits. They are the kernel's, which differ between copies of a machine.
func randomText() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// seqStepMax bounds the step between two calls' numbers: 2^52 of them last for 8 * 10^12 calls.
const seqStepMax = 1 << 10

// nextSeq is the number of the next call. The steps are random, by the kernel's randomness, so that
// two clones of a process soon differ (docs/protocol.md section 5.12).
func (l *Limiter) nextSeq() int64 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return l.seq.Add(1 + int64(binary.LittleEndian.Uint16(b[:])%seqStepMax))
}

// Close stops serving at once, without I/O: every later request is denied, waiting ones fail with
// ErrClosed, and what is held is left to expire at the store. The store and its client stay the
// caller's. Close may be called more than once and returns nil.
func (l *Limiter) Close() error {
	if l.state.Swap(stateClosed) == stateClosed {
		return nil
	}
	l.unregister()
	for _, c := range l.classes.all() {
		c.Close()
	}
	// Before calls are cancelled, whose failures would be answered by Policy.Fallback.
	l.endDraws()
	l.keys.each((*entry).close)
	l.cancel()
	l.scheduler.wake()
	return nil
}

// Shutdown gives back what this process holds and then closes. It returns when everything is back,
// with the context's error, or with one that wraps ErrUnavailable where the store did not take it;
// the Limiter is closed in any case. A second Shutdown waits for the first.
func (l *Limiter) Shutdown(ctx context.Context) error {
	if l.state.CompareAndSwap(stateOpen, stateLeaving) {
		l.endDraws()
		l.keys.each((*entry).leave)
		l.leaving.Done()
	} else if l.state.Load() == stateClosed {
		return nil
	}
	behind := l.classes.all()
	errs := make([]error, len(behind)+1)
	var classes sync.WaitGroup
	for i, c := range behind {
		classes.Go(func() { errs[i] = c.Shutdown(ctx) })
	}
	ended := make(chan struct{})
	go func() { // ends with Close at the latest
		l.leaving.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if n := l.notGivenBack.Load(); n > 0 {
			errs[len(behind)] = fmt.Errorf("hybrid: shutdown: %w: %d keys could not give back, their tokens expire",
				ErrUnavailable, n)
		}
	case <-ctx.Done():
		errs[len(behind)] = endedBy(ctx, "shutdown")
	}
	classes.Wait()
	return errors.Join(append(errs, l.Close())...)
}
