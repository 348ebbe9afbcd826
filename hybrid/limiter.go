package hybrid

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Limiter limits the rates of many keys for one process; the processes of a fleet share buckets
// through the Store. It has one goroutine, plus one for each batch of calls under way. It may be
// shared between goroutines. Use New; the zero value does not work.
type Limiter struct {
	store lease.Store
	cfg   Config

	instance string                 // the label and random bits
	id       atomic.Pointer[string] // of new entries: instance, or another after a clone was met
	defaults lease.Config           // what this process proposes for a key of which LimitsFor says nothing
	stripes  int
	keys     table
	seq      atomic.Int64
	seed     atomic.Uint64
	nodes    nodes
	counters counters

	scheduler scheduler
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc

	warned, warnedSlow sync.Once
	voids, others      notice // leases that a bucket did not know; other limits under the same version

	mu     sync.Mutex // guards closing
	state  atomic.Int32
	leaver *leaver // Shutdown's, while it runs
}

// The states of a Limiter, in their order.
const (
	stateOpen int32 = iota
	stateLeaving
	stateClosed
)

// New returns a Limiter that leases from store. It does no I/O, so it works while the store is
// down. Errors wrap ErrInvalidConfig and name every violation. Close it when done.
func New(store lease.Store, cfg Config) (*Limiter, error) {
	err := cfg.Validate()
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		err = errors.Join(fmt.Errorf("%w: store is nil", ErrInvalidConfig), err)
	}
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Limits = slices.Clone(cfg.Limits)
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("hybrid: no randomness for the instance id: %w", err)
	}
	l := &Limiter{
		store:    store,
		cfg:      cfg,
		instance: hex.EncodeToString(random[:8]),
		defaults: cfg.Policy.ConfigFor(cfg.Limits, cfg.Version, cfg.CallTimeout),
		stripes:  runtime.GOMAXPROCS(0),
		nodes:    nodes{unknown: newNode()},
	}
	l.keys.init()
	if cfg.InstanceID != "" {
		l.instance = cfg.InstanceID + "-" + l.instance
	}
	l.id.Store(&l.instance)
	l.seed.Store(binary.LittleEndian.Uint64(random[8:]))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.warn(cfg.Limits)
	l.scheduler.init(l)
	go l.scheduler.run()
	return l, nil
}

// Key returns a handle for one key, which saves the look-up by name on every call. It lives as long
// as the Limiter, may be kept and shared, and costs nothing at the store. An empty name is denied
// by every method.
func (l *Limiter) Key(name string) *Key {
	return &Key{l: l, name: name, strict: l.cfg.Policy.StrictExpiry}
}

// Allow takes one token of key and reports whether there was one. On a warm key it costs about one
// atomic instruction; it waits for one lease call, at most CallTimeout, where this process holds
// nothing and the bucket is not known to be empty. False for a closed Limiter and for an empty key.
func (l *Limiter) Allow(key string) bool {
	e := l.keys.glance(key)
	if e == nil || l.cfg.Policy.StrictExpiry {
		return l.AllowN(key, 1)
	}
	switch e.client.Pool.Take() {
	case lease.Took:
		return true
	case lease.TookLow:
		e.low()
		return true
	case lease.Denied:
		return false
	}
	return l.decide(request{name: key, n: 1, tried: e, patience: lease.OneCall}).ok
}

// AllowN takes n tokens of key or none. AllowN(key, 0) is true and costs nothing; a negative n, or
// one above the burst, is false. See Allow.
func (l *Limiter) AllowN(key string, n int64) bool {
	e := l.keys.glance(key)
	if e != nil && n > 0 && e.take(n, l.cfg.Policy.StrictExpiry) {
		return true
	}
	return l.decide(request{name: key, n: n, tried: e, patience: lease.OneCall}).ok
}

// TryAllow is Allow that never waits. Where this process holds nothing it is false (before the
// first reply: what Policy.ColdStart says) and starts a lease call, so that one a little later
// finds tokens. What nobody takes within a Target goes back, so a key that is asked less often than
// that wants Allow.
func (l *Limiter) TryAllow(key string) bool {
	e := l.keys.glance(key)
	if e != nil && e.take(1, l.cfg.Policy.StrictExpiry) {
		return true
	}
	return l.decide(request{name: key, n: 1, tried: e}).ok
}

// Take is AllowN with a context and a Result. A denial is a Result with OK false and no error. An n
// of 0 is OK, costs nothing and creates nothing; of a key that is in use here the Result says what
// is known. Errors wrap ErrClosed, ErrInvalidKey, ErrInvalidN, ErrExceedsBurst, ErrInvalidConfig
// where Config.LimitsFor gives limits that cannot be used, or the context's error when it ends
// first.
func (l *Limiter) Take(ctx context.Context, key string, n int64) (Result, error) {
	return l.Key(key).Take(ctx, n)
}

// Wait waits for one token of key; see WaitN.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n tokens of key are this request's and returns nil, or returns an error and has
// taken none. Of one process's waiting requests the first that came is the first that is served,
// whatever its n, and each of them goes before Allow. n may be up to the burst. It costs no
// polling: one call asks for all who wait, when the bucket has said that there will be tokens, and
// again within a TTL, in case the limits were changed.
//
// Errors wrap ErrWouldExceedDeadline, at once, where the context's deadline comes before the tokens
// can; the context's error when it ends first; ErrExceedsBurst, also where the limit is lowered
// meanwhile; ErrUnavailable where the store is away and Policy.Fallback gives nothing; ErrClosed,
// ErrInvalidKey, ErrInvalidN. WaitN of 0 costs nothing and returns nil.
//
// Where other processes draw too, a large n is gathered over several grants; each token counts
// against the limit when the bucket grants it, not when WaitN returns.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if ctx.Err() != nil {
		return ended("wait", ctx)
	}
	e := l.keys.glance(key)
	if e != nil && n > 0 && e.take(n, l.cfg.Policy.StrictExpiry) {
		return nil
	}
	return l.decide(request{name: key, n: n, tried: e, patience: lease.InLine, ctx: ctx}).err
}

// seqStepMax bounds the step between two calls' numbers: 2^52 of them last for 8 * 10^12 calls.
const seqStepMax = 1 << 10

// nextSeq is the number of the next call. The steps are random, by the kernel's randomness of this
// moment. A clone of this machine has the same instance id and the same number; with random steps
// the two soon differ, and the one that is behind is told so and takes another id. With steps of 1
// both might be answered the same grants for ever.
func (l *Limiter) nextSeq() int64 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return l.seq.Add(1 + int64(binary.LittleEndian.Uint16(b[:])%seqStepMax))
}

// nextSeed is the seed of one entry's jitter.
func (l *Limiter) nextSeed() uint64 { return l.seed.Add(0x9e3779b97f4a7c15) }

// Close stops serving at once, without I/O: every later request is denied, waiting ones fail with
// ErrClosed, and what is held is left to expire at the store. The store and its client stay the
// caller's. Close may be called more than once and returns nil.
func (l *Limiter) Close() error {
	l.mu.Lock()
	if l.state.Swap(stateClosed) == stateClosed {
		l.mu.Unlock()
		return nil
	}
	leaver := l.leaver
	l.mu.Unlock()
	// Entries close before calls are cancelled, whose failures would otherwise be answered by
	// Policy.Fallback.
	l.keys.each(func(e *entry) { e.close() })
	l.cancel()
	l.scheduler.wake()
	if leaver != nil {
		leaver.finish()
	}
	return nil
}

// Shutdown gives back what this process holds and then closes. It returns when everything is back,
// with the context's error, or with one that wraps ErrUnavailable where the store did not take it;
// the Limiter is closed in any case. A second Shutdown waits for the first.
func (l *Limiter) Shutdown(ctx context.Context) error {
	l.mu.Lock()
	lv, first := l.leaver, false
	switch l.state.Load() {
	case stateClosed:
		l.mu.Unlock()
		return nil
	case stateOpen:
		lv, first = newLeaver(), true
		l.leaver = lv
		l.state.Store(stateLeaving)
	}
	l.mu.Unlock()
	if first {
		l.keys.each(func(e *entry) {
			lv.add()
			e.leave(lv)
		})
		lv.done()
	}
	var err error
	select {
	case <-lv.empty:
		if n := lv.failed.Load(); n > 0 {
			err = fmt.Errorf("hybrid: shutdown: %w: %d keys could not give back, their tokens expire",
				ErrUnavailable, n)
		}
	case <-ctx.Done():
		err = ended("shutdown", ctx)
	}
	return errors.Join(err, l.Close())
}

// leaver counts the entries that Shutdown waits for, which have not yet given everything back.
type leaver struct {
	left   atomic.Int64
	failed atomic.Int64
	once   sync.Once
	empty  chan struct{}
}

func newLeaver() *leaver {
	lv := &leaver{empty: make(chan struct{})}
	lv.left.Store(1) // for Shutdown itself, until it has counted every entry
	return lv
}

func (lv *leaver) add() { lv.left.Add(1) }

func (lv *leaver) done() {
	if lv.left.Add(-1) == 0 {
		lv.finish()
	}
}

func (lv *leaver) finish() { lv.once.Do(func() { close(lv.empty) }) }
