// Package rpclimit limits the calls of an RPC server. Limiter.Limit decides one call by its context. Package
// rpclimit imports no RPC library; hybrid/rpclimit/grpclimit, a module of its own, is for gRPC.
package rpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// KeyFunc returns the key of a call from its context: from metadata, the method, or the peer's address (see
// AddressKey). A call with an error or an empty key gets ErrNoKey. A KeyFunc runs once for each call, on the
// goroutine of the call.
type KeyFunc func(ctx context.Context) (string, error)

// AddressKey returns the key of a client with this IP address, with or without a port. An IPv6 /64 counts as
// one address. Equal addresses have equal keys in any spelling. A text that is no address is its own key.
func AddressKey(address string) string { return admission.AddressKey(address) }

// FirstOf returns the key of the first KeyFunc in keys that has one, such as a customer's key or else the
// peer's address. The key begins with the index of that KeyFunc and a colon, such as "0:acme", so that
// different kinds of keys are never equal. Config.LimitsFor, Limiter.SetLimits and logs of package hybrid use
// this whole key. After an empty key or an error that wraps ErrNoKey the next KeyFunc runs; any other error
// ends the search.
//
// A KeyFunc before the last must return authenticated keys, and for an unknown key an error other than
// ErrNoKey: otherwise a client could invent a key with a new bucket for each call. FirstOf panics without
// keys.
func FirstOf(keys ...KeyFunc) KeyFunc { return admission.FirstOf(ErrNoKey, keys) }

// Combine makes one key of several, such as "this user of this method". Different parts make different keys,
// whatever bytes they have. Combine's key fails if a part is empty or has an error. The option Also is for
// several limits, each with its own key, that must all admit a call. Combine panics without keys.
func Combine(keys ...KeyFunc) KeyFunc { return admission.Combine(ErrNoKey, keys) }

// Limiter limits calls. Goroutines may share a Limiter. Use New; the zero Limiter does not work.
type Limiter struct {
	rules    []rule
	cost     func(context.Context) int64
	class    func(context.Context) int
	skip     func(context.Context) bool
	patience time.Duration
	status   func(error) error
}

// rule is one limit of a call.
type rule struct {
	limiter *hybrid.Limiter
	key     KeyFunc
}

// New returns a Limiter that takes one token for each call, of the key that key returns. The caller
// closes limiter. New panics if limiter or key is nil.
func New(limiter *hybrid.Limiter, key KeyFunc, options ...Option) *Limiter {
	l := &Limiter{}
	Also(limiter, key)(l)
	for _, o := range options {
		o(l)
	}
	return l
}

// Limit returns nil if the call of ctx is admitted, and otherwise an error, which the option Status may
// convert. Limit waits for at most one lease call, and as long as Wait allows. Without Status the error
//
//   - wraps ErrDenied if a limit denies the call (the error is a Denial),
//   - wraps hybrid.ErrUnavailable if the store did not answer and a fallback denies the call (also a
//     Denial), or hybrid.ErrTableFull,
//   - wraps ErrNoKey, and the KeyFunc's error, if the call has no key,
//   - wraps hybrid.ErrExceedsBurst if the cost is above the burst, or hybrid.ErrInvalidN if the cost is
//     negative: the call is never admitted,
//   - wraps the context's error if the context ended first, or is another error of hybrid.Limiter.Take.
func (l *Limiter) Limit(ctx context.Context) error {
	err := l.decide(ctx)
	if err == nil || l.status == nil {
		return err
	}
	if answer := l.status(err); answer != nil || ctx.Err() == nil && !admission.NeverServed(err) {
		return answer
	}
	return err // Status cannot admit a cancelled call, or a call that asks for too much
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
	r, err := admission.Decide(ctx, key, n, l.patience)
	if err == nil && !r.OK {
		err = Denial{r}
	}
	return err
}

// keyOf returns the key of the call, or all its keys joined.
func (l *Limiter) keyOf(ctx context.Context) (admission.Key, error) {
	class := 0
	if l.class != nil {
		class = l.class(ctx)
	}
	keys := make([]*hybrid.Key, len(l.rules))
	for i, rule := range l.rules {
		name, err := admission.KeyOf(ErrNoKey, rule.key, ctx)
		if err != nil {
			return nil, err
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

// The errors that Limit's error wraps, in addition to the errors of package hybrid.
var (
	ErrDenied = errors.New("rpclimit: denied")
	ErrNoKey  = errors.New("rpclimit: no key")
)

// Denial is the error of a denied call. The text names the limit and never the key, which may be a secret.
type Denial struct {
	Result hybrid.Result // decision by the limit that binds, with its key
}

// Error returns a text for logs, which the caller may see too.
func (d Denial) Error() string {
	text := fmt.Sprintf("%v by %v", d.Unwrap(), d.Result.Limit)
	if after := d.RetryAfter(); after > 0 {
		text += fmt.Sprintf(", retry after %v", after)
	}
	return text
}

// RetryAfter returns the time after which the call may be admitted; 0 if the limit is hybrid.Blocked.
func (d Denial) RetryAfter() time.Duration {
	if d.Result.Limit.Equal(hybrid.Blocked) {
		return 0
	}
	return d.Result.RetryAfter
}

// Unwrap returns ErrDenied, or hybrid.ErrUnavailable if the store did not answer: the call may be within a
// limit.
func (d Denial) Unwrap() error {
	if admission.Failed(d.Result) {
		return hybrid.ErrUnavailable
	}
	return ErrDenied
}

// Option is a setting of New.
type Option func(*Limiter)

// Also limits each call by one more key, such as a tenant's key or one key for all calls, to at most 16 keys.
// A call takes its tokens from all limits or from none; see hybrid.Limiter.Join. Also panics if limiter or
// key is nil.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	if limiter == nil || key == nil {
		panic("rpclimit: limiter or key is nil")
	}
	return func(l *Limiter) { l.rules = append(l.rules, rule{limiter, key}) }
}

// Cost sets the number of tokens, 0 or more, that a call takes; 1 without Cost.
func Cost(cost func(ctx context.Context) int64) Option { return func(l *Limiter) { l.cost = cost } }

// Class sets the class of a call in hybrid.Config.Priorities; 0 without Class.
func Class(class func(ctx context.Context) int) Option { return func(l *Limiter) { l.class = class } }

// Skip exempts the calls for which skip returns true, such as health checks, from all limits.
func Skip(skip func(ctx context.Context) bool) Option { return func(l *Limiter) { l.skip = skip } }

// Wait makes a call that would be denied wait for its tokens, for at most d. Waiting calls are served in
// turn. A call is denied at once if its tokens cannot come before its deadline or within d. Stats counts a
// waiting call as denied, and also as admitted once it gets its tokens.
func Wait(d time.Duration) Option { return func(l *Limiter) { l.patience = d } }

// Status converts the error of a call that is not admitted, such as to a gRPC status; Limit returns the
// result. A nil result admits the call, for example while the store is away, unless its context has
// ended or its cost is above the burst or negative. status runs on the goroutine of the call.
func Status(status func(err error) error) Option { return func(l *Limiter) { l.status = status } }
