package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
)

var (
	// ErrUnavailable is wrapped by a Store's errors when the bucket could not be reached or sent something
	// that is not a grant. Whether the call was executed is then unknown, unless the error wraps ErrRefused
	// too.
	ErrUnavailable = errors.New("lease: store unavailable")
	// ErrRefused is wrapped by errors of calls that were certainly not executed.
	ErrRefused = errors.New("lease: call refused")
	// ErrPermanent is wrapped by errors that no retry cures before an operator acts: a missing permission, a
	// damaged bucket, a key of the wrong type.
	ErrPermanent = errors.New("lease: permanent error")
	// ErrKey is wrapped by errors that concern only the call's key: the node that serves it is well.
	ErrKey = errors.New("lease: only this key is affected")
)

// Store keeps buckets: redisbucket.Store for a fleet, memory.Store for one process and for tests. Goroutines
// may share it. hybrid/hybridtest.CheckStore checks this contract:
//
//   - The answer to a call is the one that docs/protocol.md specifies, at one moment of the store's clock, which
//     Grant.ServerTime tells. Calls for one key are made one after the other, in any order.
//   - A Store makes a call at most once, and never repeats it: only the holder sends a call again.
//   - An error says whether the call was made: ErrRefused if not, ErrUnavailable alone if that is unknown.
//     ErrInvalidRequest, ErrInvalidConfig and ErrStale are answers of the bucket, and wrap neither.
//   - A key may have any bytes, and different keys have different buckets. A key longer than KeyMax has the bucket
//     of its ShortKey.
//   - A bucket is remembered for at least Grant.Expiry after a call.
//
// Pinger, Router and Identifier are optional interfaces of a Store. A Store that wraps another one implements
// them too, and passes them on.
type Store interface {
	// Exchange makes calls and fills Grant or Err of each. It calls done once for each group of calls, such
	// as those for one Redis node, as soon as they are answered or ctx has ended, on any goroutine. Each call
	// is in one group. Exchange returns after the last done, maybe much later if ctx has ended.
	Exchange(ctx context.Context, calls []*Call, done func([]*Call))
	// Configure executes op on the bucket of key. A c that is to be stored and is invalid changes nothing,
	// and the error wraps ErrInvalidConfig.
	Configure(ctx context.Context, key string, op Op, c Config) (State, error)
}

// Pinger is an optional interface of a Store whose first call takes longer than later calls.
type Pinger interface {
	// Ping opens connections and prepares the server for calls, or returns why it cannot. It creates no
	// bucket.
	Ping(ctx context.Context) error
}

// Router is an optional interface of a Store that knows a key's node before the call, and the nodes' names.
type Router interface {
	// NodeOf returns the node that Call.Node of a call for key would name now, or -1 if unknown. It does no
	// I/O, and goroutines may share it.
	NodeOf(key string) int
	// NodeName returns the name by which an operator knows the node of this number, such as its address, or
	// "" if the Store has no such node. Goroutines may share it.
	NodeName(node int) string
}

// Identifier is an optional interface of a Store that may have the same buckets as another Store.
type Identifier interface {
	// Identity returns a comparable value, which is equal for Stores with the same buckets. hybrid.New
	// refuses two Limiters of one Identity and Name whose settings contradict each other. A Store without it
	// is its own Identity.
	Identity() any
}

// Call is one lease call on its way through a Store. The caller owns and reuses it, and must not touch it
// from Exchange until done has been called with it.
type Call struct {
	Key     string
	Request Request
	Grant   Grant
	Err     error
	// Node is set by the Store: the number of the node that served the call, from 0. Each node has its own
	// latency.
	Node int
	// Before is set by the Store: the part of the time from Exchange to done that was no round trip, such as
	// opening a connection or sending a script. It does not count as latency; otherwise one slow handshake
	// would make a network look slow for long.
	Before time.Duration
	// Owner is for the caller, to find the purpose of the call; a Store leaves it alone. See Awaited.
	Owner any

	unsent atomic.Pointer[error]
	sent   atomic.Int64 // a time.Duration
}

// Awaited is an optional interface of a Call's Owner. With it a Store can name the requests that it works
// for.
type Awaited interface {
	// Waiting returns the contexts of the requests that wait for the call's key now, in order of arrival, at
	// most most of them.
	Waiting(most int) []context.Context
}

// SetUnsent is for the Store: it records why the call has not been sent yet.
func (c *Call) SetUnsent(why error) { c.unsent.Store(&why) }

// SetSent is for the Store: it records that the call was sent this long after Exchange began. A Store that
// does not call it sends all calls at once.
func (c *Call) SetSent(after time.Duration) {
	c.sent.Store(int64(after))
	c.unsent.Store(nil) // last: a reader that sees the call as sent also sees when
}

// SentAfter returns how long after Exchange began a sent call was sent. The time limit for its answer begins
// then.
func (c *Call) SentAfter() time.Duration { return time.Duration(c.sent.Load()) }

// Unsent returns why a call under way has not been sent yet: a connection is being opened, or could not be.
// It returns nil for a sent call, and if the Store does not know. Unlike the fields it may be read at any
// time.
func (c *Call) Unsent() error {
	if why := c.unsent.Load(); why != nil {
		return *why
	}
	return nil
}

// KeyMax is the length, in bytes, of the longest key that is kept unchanged; see ShortKey.
const KeyMax = 1024

// ShortKey returns the name under which a limiter stores a key and calls for it: the key itself, or its hash
// if it is longer than KeyMax, so that a flood of long keys takes no more room than another flood. A key that
// looks like a hash is hashed too; otherwise a client could choose it to share the bucket of a long key.
func ShortKey(key string) string {
	if len(key) > KeyMax || keyhash.Is(key) {
		return keyhash.Of(key)
	}
	return key
}
