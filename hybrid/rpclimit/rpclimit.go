package rpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/door"
)

// KeyFunc names who makes a call, by what its context knows: metadata, the peer's address, the
// method. The name becomes the key of the limit. An error, or an empty name, is answered as
// ErrNoKey. It runs once for each call, on the goroutine of the call.
type KeyFunc func(ctx context.Context) (string, error)

// Limiter decides about calls. Goroutines share it. Use New; the zero value does not work.
type Limiter struct {
	rules    []rule
	cost     func(context.Context) int64
	class    func(context.Context) int
	skip     func(context.Context) bool
	patience time.Duration
	status   func(error) error
}

// rule is one of the limits that a call must be within.
type rule struct {
	limiter *hybrid.Limiter
	key     KeyFunc
}

// New returns a Limiter that takes one token of limiter for each call, of the key that key names.
// The limiter stays the caller's, who closes it. A nil limiter or key panics.
func New(limiter *hybrid.Limiter, key KeyFunc, options ...Option) *Limiter {
	l := &Limiter{}
	Also(limiter, key)(l)
	for _, o := range options {
		o(l)
	}
	return l
}

// Limit returns nil where the call of ctx is admitted, or says why it is not; see Denial, and
// Status, which has the last word. It waits for one lease call at most, and for what Wait allows.
// Without Status the error
//
//   - wraps ErrDenied where a limit denies the call (it is a Denial),
//   - wraps hybrid.ErrUnavailable where the store did not answer and a fallback denies it (also a
//     Denial), or the table of keys is full,
//   - wraps ErrNoKey where there is no key, and the KeyFunc's error,
//   - wraps hybrid.ErrExceedsBurst where the cost is above the burst, so that no wait would help,
//   - wraps the context's error where that ended first, or is another one of hybrid.Limiter.Take.
func (l *Limiter) Limit(ctx context.Context) error {
	err := l.decide(ctx)
	if err == nil || l.status == nil {
		return err
	}
	if answer := l.status(err); answer != nil || ctx.Err() == nil {
		return answer
	}
	return err // who goes away is not admitted for that
}

func (l *Limiter) decide(ctx context.Context) error {
	if l.skip != nil && l.skip(ctx) {
		return nil
	}
	key, err := l.keyOf(ctx)
	if err != nil {
		return err
	}
	n := int64(1)
	if l.cost != nil {
		n = l.cost(ctx)
	}
	r, err := door.Decide(ctx, key, n, l.patience)
	if err == nil && !r.OK {
		err = Denial{r}
	}
	return err
}

// keyOf is the key of the call, or all its keys as one.
func (l *Limiter) keyOf(ctx context.Context) (hybrid.KeyLimiter, error) {
	class := 0
	if l.class != nil {
		class = l.class(ctx)
	}
	keys := make([]*hybrid.Key, len(l.rules))
	for i, rule := range l.rules {
		name, err := rule.key(ctx)
		switch {
		case errors.Is(err, ErrNoKey):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
		case name == "":
			return nil, fmt.Errorf("%w: the name is empty", ErrNoKey)
		}
		keys[i] = rule.limiter.Key(name)
		if class > 0 {
			keys[i] = keys[i].Class(class)
		}
	}
	if len(keys) == 1 {
		return keys[0], nil
	}
	return keys[0].Limiter().Join(keys...), nil
}

// What the errors of Limit wrap, beside those of package hybrid.
var (
	ErrDenied = errors.New("rpclimit: denied")
	ErrNoKey  = errors.New("rpclimit: no key")
)

// Denial is the error of a call that was denied. Its text names the limit and never the key, which
// may be a secret.
type Denial struct {
	Result hybrid.Result // of several limits, that of the one that binds. Result.Key is the key
}

// Error is for logs, and may go to the caller.
func (d Denial) Error() string {
	return fmt.Sprintf("%v by %v, retry after %v", d.Unwrap(), d.Result.Limit, d.Result.RetryAfter)
}

// Unwrap is ErrDenied, or hybrid.ErrUnavailable where the store did not answer: then the call may
// well be within the limit.
func (d Denial) Unwrap() error {
	if door.Failed(d.Result) {
		return hybrid.ErrUnavailable
	}
	return ErrDenied
}
