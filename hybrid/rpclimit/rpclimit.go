// Package rpclimit limits the calls to an RPC server. Limiter.Limit decides a call by its context. Package
// rpclimit imports no RPC library; the module hybrid/rpclimit/grpclimit is for gRPC.
package rpclimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// KeyFunc returns the key of a call, for example from the metadata, the method or the peer's address (see
// AddressKey) in ctx. If a KeyFunc returns an error or an empty key, the call gets ErrNoKey. A KeyFunc runs
// once for each call, on the goroutine of the call.
type KeyFunc func(ctx context.Context) (string, error)

// AddressKey returns the key of an IP address, with or without a port. An IPv6 /64 counts as one address.
// Different spellings of an address have the same key. AddressKey returns any other text unchanged.
func AddressKey(address string) string { return admission.AddressKey(address) }

// FirstOf returns a KeyFunc that runs keys in order until one of them returns a key, for example the
// customer's key or else the peer's address. The index of that KeyFunc and a colon come before the key, as in
// "0:acme", so keys of different kinds are never equal; Config.LimitsFor and SetLimits of package hybrid get
// "0:acme" too. After an empty key or an error that wraps ErrNoKey, the next KeyFunc runs. FirstOf's KeyFunc
// returns any other error at once.
//
// All but the last KeyFunc must authenticate their keys, and reject an unknown key by an error other than
// ErrNoKey. Otherwise a client could invent a new key for each call. FirstOf panics without keys.
func FirstOf(keys ...KeyFunc) KeyFunc { return admission.FirstOf(ErrNoKey, keys) }

// Combine returns a KeyFunc that makes one key of several, such as "this user of this method". Two calls have
// the same combined key only if each KeyFunc in keys returns the same key for both. The KeyFunc returns an
// error if one of keys returns an error or an empty key. To limit a call by several keys, each with its own
// limit, use Also. Combine panics without keys.
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

type rule struct {
	limiter *hybrid.Limiter
	key     KeyFunc
}

// New returns a Limiter that takes one token of limiter for each call. The caller closes limiter. New panics
// if limiter or key is nil.
func New(limiter *hybrid.Limiter, key KeyFunc, options ...Option) *Limiter {
	l := &Limiter{}
	Also(limiter, key)(l)
	for _, o := range options {
		o(l)
	}
	return l
}

// Limit returns nil if the call with context ctx is admitted, and otherwise an error. Limit waits at most for
// one lease call and the time of the option Wait. Unless the option Status converts the error, the error
//
//   - wraps ErrDenied if a limit denies the call (the error is a Denial),
//   - wraps hybrid.ErrUnavailable if the store did not answer and Policy.Fallback denies the call (also a
//     Denial),
//   - wraps ErrNoKey, and the KeyFunc's error, if the call has no key,
//   - wraps hybrid.ErrExceedsBurst or hybrid.ErrInvalidN if the cost is above the burst or negative,
//   - wraps the context's error if the context ended first, or is another error of hybrid.Limiter.Take.
func (l *Limiter) Limit(ctx context.Context) error {
	err := l.decide(ctx)
	if err == nil || l.status == nil {
		return err
	}
	if answer := l.status(err); answer != nil || ctx.Err() == nil && !admission.NeverServed(err) {
		return answer
	}
	return err // Status cannot admit a cancelled call, or a call that the limiter never admits
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

// The errors of Limit, in addition to the errors of package hybrid.
var (
	ErrDenied = errors.New("rpclimit: denied")
	ErrNoKey  = errors.New("rpclimit: no key")
)

// Denial is the error of a denied call.
type Denial struct {
	Result hybrid.Result // decision by the limit with the longest wait
}

// Error returns a text with the limit but not the key, which may be a secret.
func (d Denial) Error() string {
	text := fmt.Sprintf("%v by %v", d.Unwrap(), d.Result.Limit)
	if after := d.RetryAfter(); after > 0 {
		text += fmt.Sprintf(", retry after %v", after)
	}
	return text
}

// RetryAfter returns the time until the call may be admitted; 0 if the limit is hybrid.Blocked.
func (d Denial) RetryAfter() time.Duration {
	if d.Result.Limit.Equal(hybrid.Blocked) {
		return 0
	}
	return d.Result.RetryAfter
}

// Unwrap returns ErrDenied, or hybrid.ErrUnavailable if the store did not answer and Policy.Fallback denies
// the call.
func (d Denial) Unwrap() error {
	if admission.Failed(d.Result) {
		return hybrid.ErrUnavailable
	}
	return ErrDenied
}

// Option is a setting of New.
type Option func(*Limiter)

// Also adds a limit, to at most 16 in total, such as a limit for all calls. A call takes its tokens from all
// limits or from none; see hybrid.Limiter.Join. Also panics if limiter or key is nil.
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

// Wait makes a call wait for its tokens, at most for d. Waiting calls get their tokens in order. A call whose
// tokens would come after its deadline or after d is denied at once. Stats counts a waiting call as denied,
// and later also as admitted if the call gets its tokens.
func Wait(d time.Duration) Option { return func(l *Limiter) { l.patience = d } }

// Status converts the error of Limit, such as to a gRPC status. If status returns nil, the call is admitted,
// for example while the store does not answer; but not if the call's context has ended or its cost is above
// the burst or negative. status runs on the goroutine of the call.
func Status(status func(err error) error) Option { return func(l *Limiter) { l.status = status } }
