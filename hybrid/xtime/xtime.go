// Package xtime gives a hybrid.Key the method set of golang.org/x/time/rate's Limiter, so that code
// which was written for one process goes on unchanged when its limit is shared by a fleet: replace
// the type *rate.Limiter by *xtime.Limiter and the constructor by New.
//
// Most callers need only Allow and Wait, which behave alike. The differences are:
//
//   - There is no Reserve. A process cannot promise a token that the bucket has not leased to it, so it
//     has no Delay to return. Code that reserves, sleeps for Delay and continues calls Wait.
//   - The bucket's clock decides, so the methods ignore a given time.
//   - Limit, Burst, Tokens, SetLimit and SetBurst ask the store, and take a round trip.
//   - A negative n is refused, where rate adds tokens.
//
// hybrid.Limiter.Reserve is no substitute: it is for a cost that is known afterwards.
package xtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Limiter is a hybrid.Key with the methods of *rate.Limiter. Goroutines may share it. Use New; the
// zero value does not work.
type Limiter struct {
	key *hybrid.Key

	mu    sync.Mutex
	limit hybrid.Limit // the last one heard, guarded by mu
}

// New returns a Limiter for one key. It does no I/O. Limit and Burst return those of the key's first
// limit; SetLimit and SetBurst remove its other limits.
func New(key *hybrid.Key) *Limiter { return &Limiter{key: key} }

// Allow reports whether an event may happen now; see hybrid.Limiter.Allow.
func (l *Limiter) Allow() bool { return l.key.Allow() }

// AllowN reports whether n events may happen now. It ignores t.
func (l *Limiter) AllowN(t time.Time, n int) bool { return l.key.AllowN(int64(n)) }

// Wait waits for one token; see WaitN.
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN waits until n events may happen. Like rate's, it fails at once if n exceeds the burst or if the
// context's deadline comes before the tokens can, and returns the context's own error if the context ends
// first. It also fails where hybrid.Limiter.WaitN does: after Close, and while the store is away and
// Policy.Fallback admits nothing.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	err := l.key.WaitN(ctx, int64(n))
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return ended
	}
	return err
}
