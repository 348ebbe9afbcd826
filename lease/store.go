package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

var (
	// ErrUnavailable is wrapped by a Store's errors that say that the bucket could not be reached,
	// or answered with something that is not a grant. Whether the call was executed is then
	// unknown, unless the error wraps ErrRefused too.
	ErrUnavailable = errors.New("lease: store unavailable")
	// ErrRefused is wrapped by errors after which the call certainly was not executed.
	ErrRefused = errors.New("lease: call refused")
	// ErrPermanent is wrapped by errors that no retry will cure before somebody acts: a missing
	// permission, a damaged bucket, a key of the wrong type.
	ErrPermanent = errors.New("lease: permanent error")
)

// Store is where buckets live: redisbucket.Store for a fleet, MemoryStore for one process and for
// tests. It may be shared between goroutines.
type Store interface {
	// Exchange fills Grant or Err of every call; done runs once per group of calls (a Redis node)
	// as it finishes, on any goroutine, and every call is in exactly one group. Exchange returns
	// after the last done. It never executes a call twice on its own: sending it again is the
	// holder's business.
	Exchange(ctx context.Context, calls []*Call, done func([]*Call))
	// Configure inspects, sets, sets if absent, or resets one bucket.
	Configure(ctx context.Context, key string, op Op, c Config) (State, error)
}

// Pinger is what a Store is too where the first call takes longer than later ones.
type Pinger interface {
	// Ping opens the connections that calls need and brings the server what they need, or says why
	// it cannot.
	Ping(ctx context.Context) error
}

// Call is one lease call on its way through a Store. It is owned and reused by the caller, who may
// not touch it from Exchange until done has been called with it.
type Call struct {
	Key     string
	Request Request
	Grant   Grant
	Err     error
	// Node is set by the Store: which of its nodes served the call, numbered from 0. Latency is
	// kept per node.
	Node int
	// Before is set by the Store: how much of the time from Exchange to done was no round trip,
	// such as opening a connection. It does not count as latency, or one slow handshake would make
	// a network look slow for ever.
	Before time.Duration
	// Owner is the caller's, to find what the call belongs to; a Store leaves it alone.
	Owner any

	unsent atomic.Pointer[error]
}

// SetUnsent is the Store's: the call has not been sent yet, and why; nil once it has.
func (c *Call) SetUnsent(why error) {
	if why == nil {
		c.unsent.Store(nil)
		return
	}
	c.unsent.Store(&why)
}

// Unsent says why a call that is under way has not been sent yet: a connection is being opened, or
// could not be. It is nil where the call was sent, and where the Store does not know. Unlike the
// fields it may be asked at any time.
func (c *Call) Unsent() error {
	if why := c.unsent.Load(); why != nil {
		return *why
	}
	return nil
}

var _ Store = (*MemoryStore)(nil)

// Exchange implements Store; it never fails, and answers all calls as one group.
func (m *MemoryStore) Exchange(_ context.Context, calls []*Call, done func([]*Call)) {
	for _, c := range calls {
		m.exchange(c)
	}
	done(calls)
}

// Configure implements Store.
func (m *MemoryStore) Configure(_ context.Context, key string, op Op, c Config) (State, error) {
	return m.configure(key, op, c)
}
