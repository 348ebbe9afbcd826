package rpclimit

import (
	"context"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Option is a setting of New.
type Option func(*Limiter)

// Also limits each call by one more key, such as a tenant's or one for all calls, to at most 16 keys. A
// call takes its tokens from all limits or from none; see hybrid.Limiter.Join. Also panics if limiter or
// key is nil.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	if limiter == nil || key == nil {
		panic("rpclimit: a limiter and a key must be given")
	}
	return func(l *Limiter) { l.rules = append(l.rules, rule{limiter, key}) }
}

// Cost sets the number of tokens that a call takes; 1 without it. 0 takes none.
func Cost(cost func(ctx context.Context) int64) Option { return func(l *Limiter) { l.cost = cost } }

// Class returns the class of a call in hybrid.Config.Priorities; 0 without it.
func Class(class func(ctx context.Context) int) Option { return func(l *Limiter) { l.class = class } }

// Skip reports which calls are not limited, such as health checks.
func Skip(skip func(ctx context.Context) bool) Option { return func(l *Limiter) { l.skip = skip } }

// Wait makes a call that would be denied wait for its tokens, for at most d. Waiting calls are served in
// turn. A call is denied at once if its deadline, or d, comes before its tokens can. Stats counts a
// waiting call as denied, and as admitted too once it gets its tokens.
func Wait(d time.Duration) Option { return func(l *Limiter) { l.patience = d } }

// Status converts the error of a call that is not admitted, such as to a gRPC status; Limit returns the
// result. A nil result admits the call, for example while the store is away, unless its context has
// ended. status runs on the goroutine of the call.
func Status(status func(err error) error) Option { return func(l *Limiter) { l.status = status } }
