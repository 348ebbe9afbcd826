package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/keyhash"
)

var (
	// ErrUnavailable is wrapped by the error of a call that could not reach its bucket or got no valid grant.
	// A call with ErrUnavailable may have been executed, unless its error wraps ErrRefused too.
	ErrUnavailable = errors.New("lease: store unavailable")
	// ErrRefused is wrapped by errors of calls that were certainly not executed.
	ErrRefused = errors.New("lease: call refused")
	// ErrPermanent is wrapped by errors that persist until an operator acts: a missing permission, a damaged
	// bucket, a key of the wrong type.
	ErrPermanent = errors.New("lease: permanent error")
	// ErrKey is wrapped by errors that concern only the call's key: the key's node serves other keys.
	ErrKey = errors.New("lease: only this key is affected")
)

// Store keeps buckets: redisbucket.Store for a fleet, memory.Store for one process and for tests. Goroutines
// may share a Store. hybrid/hybridtest.CheckStore checks the contract of a Store:
//
//   - The answer to a call is the one that docs/protocol.md specifies for one moment of the store's clock,
//     Grant.ServerTime. A Store executes calls for one key one after the other, in any order.
//   - A Store executes a call at most once and never repeats it: only the holder repeats a call.
//   - An error says whether the call was executed: ErrRefused if not, ErrUnavailable alone if unknown.
//     ErrInvalidRequest, ErrInvalidConfig and ErrStale are answers of the bucket, and wrap neither ErrRefused
//     nor ErrUnavailable.
//   - A key may have any bytes, and different keys have different buckets. A key longer than KeyMax has the bucket
//     of its ShortKey.
//   - A Store remembers a bucket for at least Grant.Expiry after a call.
//
// Pinger, Router and Identifier are optional interfaces of a Store. A Store that wraps another Store
// implements the optional interfaces too, and passes the calls on.
type Store interface {
	// Exchange executes calls and fills Grant or Err of each. Exchange calls done, on any goroutine, once for
	// each group of calls, such as the calls to one Redis node, as soon as the group is answered or ctx has
	// ended. Each call is in one group only. Exchange returns after the last done, maybe much later if ctx
	// ends.
	Exchange(ctx context.Context, calls []*Call, done func([]*Call))
	// Configure executes op on the bucket of key. If op stores c and c is invalid, Configure changes nothing
	// and returns an error that wraps ErrInvalidConfig.
	Configure(ctx context.Context, key string, op Op, c Config) (State, error)
}

// Pinger is an optional interface of a Store whose first call takes longer than later calls.
type Pinger interface {
	// Ping opens connections and prepares the servers for calls, or returns an error. Ping creates no bucket.
	Ping(ctx context.Context) error
}

// Router is an optional interface of a Store that knows a key's node before the call.
type Router interface {
	// NodeOf returns the Call.Node that a call for key would get now, or -1 if unknown, without I/O.
	// Goroutines may call NodeOf at the same time.
	NodeOf(key string) int
	// NodeName returns the name by which an operator knows the node with this number, such as an address, or
	// "" for an unknown node. Goroutines may call NodeName at the same time.
	NodeName(node int) string
}

// Identifier is an optional interface of a Store that may have the same buckets as another Store.
type Identifier interface {
	// Identity returns a comparable value, which is equal for Stores with the same buckets. hybrid.New
	// refuses two Limiters of one Identity and Name whose settings contradict each other. A Store without
	// Identity is its own identity.
	Identity() any
}

// Call is one lease call on its way through a Store. The caller owns and reuses a Call, and must not touch it
// from the start of Exchange until done gets it.
type Call struct {
	Key     string
	Request Request
	Grant   Grant
	Err     error
	// Node is set by the Store: the number, from 0, of the node that served the call.
	Node int
	// Before is set by the Store: the part of the time from Exchange to done that was no round trip, such as
	// opening a connection or sending a script. Before does not count as latency.
	Before time.Duration
	// Owner is set by the caller, to find the purpose of the call; a Store only reads Owner. See Awaited.
	Owner any

	unsent atomic.Pointer[error]
	sent   atomic.Int64 // a time.Duration
}

// Awaited is an optional interface of a Call's Owner, by which a Store finds the waiting requests.
type Awaited interface {
	// Waiting returns the contexts of the requests that wait for the call's key now, in order of arrival, at
	// most `most` of them.
	Waiting(most int) []context.Context
}

// SetUnsent is called by the Store, and records why the call has not been sent yet.
func (c *Call) SetUnsent(why error) { c.unsent.Store(&why) }

// SetSent is called by the Store, and records the time from the start of Exchange to the sending of the call.
// A Store that does not call SetSent sends all calls at once.
func (c *Call) SetSent(after time.Duration) {
	c.sent.Store(int64(after))
	c.unsent.Store(nil) // stored last: a reader that sees the call as sent sees its time too
}

// SentAfter returns the time from the start of Exchange to the sending of the call, when the time limit for
// the answer begins.
func (c *Call) SentAfter() time.Duration { return time.Duration(c.sent.Load()) }

// Unsent returns the reason why a call under way has not been sent yet: its connection is being opened, or
// could not be opened. Unsent returns nil for a sent call, and if the Store gave no reason. Any goroutine may
// call Unsent at any time.
func (c *Call) Unsent() error {
	if why := c.unsent.Load(); why != nil {
		return *why
	}
	return nil
}

// KeyMax is the length, in bytes, of the longest key that is kept unchanged; see ShortKey.
const KeyMax = 1024

// ShortKey returns the name under which a limiter stores a key: the key itself, or its hash if the key is
// longer than KeyMax, which bounds the memory for long keys. A key that looks like a hash is hashed too;
// otherwise a client could choose it to share a long key's bucket.
func ShortKey(key string) string {
	if len(key) > KeyMax || keyhash.Is(key) {
		return keyhash.Of(key)
	}
	return key
}
