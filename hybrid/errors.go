package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// The errors of this package wrap these.
var (
	ErrClosed        = errors.New("hybrid: limiter closed")
	ErrExceedsBurst  = errors.New("hybrid: n exceeds burst")             // no wait would ever help
	ErrOvershoot     = errors.New("hybrid: overshoot exceeds its bound") // and is charged up to that
	ErrInvalidKey    = errors.New("hybrid: invalid key")                 // it is empty
	ErrInvalidN      = errors.New("hybrid: invalid n")                   // it is negative
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")       // each violation is in the text
	// ErrUnavailable: the store did not answer, or the table of keys is full of keys in use.
	ErrUnavailable = errors.New("hybrid: store unavailable")
	// ErrWouldExceedDeadline: the tokens cannot be there before the context's deadline. It wraps
	// context.DeadlineExceeded, the error that waiting would have ended with. See RetryAfter.
	ErrWouldExceedDeadline = fmt.Errorf("hybrid: a wait would end with: %w", context.DeadlineExceeded)
)

// The causes of failed calls, which Events.NodeAway, Events.KeyFailed and the log tell.
var (
	errOverdue = fmt.Errorf("%w: no answer in time", lease.ErrUnavailable)
	errForeign = fmt.Errorf("%w: the reply belongs to another call", lease.ErrUnavailable)
)

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)

// RetryAfter returns how long a caller should wait before it repeats a request that got err: until the tokens
// can exist after ErrWouldExceedDeadline, or until a key can have left a table that is full. It is 0 if no
// time helps, as after ErrExceedsBurst, and if err is the context's own. It understands the errors of this
// package, and others that have a method RetryAfter() time.Duration.
func RetryAfter(err error) time.Duration {
	var timed interface{ RetryAfter() time.Duration }
	if errors.As(err, &timed) {
		return timed.RetryAfter()
	}
	return 0
}

// timedError is an error that a repeated request may not get after some time.
type timedError struct {
	error
	after time.Duration
}

func (e *timedError) Unwrap() error             { return e.error }
func (e *timedError) RetryAfter() time.Duration { return e.after }

// endedBy is the error of a verb that ctx ended, with its cause where that says more.
func endedBy(ctx context.Context, verb string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return fmt.Errorf("hybrid: %s: %w", verb, err)
	}
	return fmt.Errorf("hybrid: %s: %w: %w", verb, err, cause)
}
