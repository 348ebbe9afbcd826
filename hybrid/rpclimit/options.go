package rpclimit

import (
	"context"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Option is a setting of New.
type Option func(*Limiter)

// Also limits each call by one more key, such as a tenant's or everybody's. A call is admitted
// where all limits have room, and otherwise takes from none; see hybrid.Limiter.Join. Their keys
// may be 16 at most.
func Also(limiter *hybrid.Limiter, key KeyFunc) Option {
	if limiter == nil || key == nil {
		panic("rpclimit: a limiter and a key must be given")
	}
	return func(l *Limiter) { l.rules = append(l.rules, rule{limiter, key}) }
}

// Cost says how many tokens a call takes; without it, 1. With 0 the call is free.
func Cost(cost func(ctx context.Context) int64) Option { return func(l *Limiter) { l.cost = cost } }

// Class says in which class of hybrid.Config.Priorities a call is; without it, in class 0.
func Class(class func(ctx context.Context) int) Option { return func(l *Limiter) { l.class = class } }

// Skip says which calls are not limited, such as a health check's.
func Skip(skip func(ctx context.Context) bool) Option { return func(l *Limiter) { l.skip = skip } }

// Wait has a call that would be denied wait for its tokens, for at most d. Who waits is served in
// turn. A call whose deadline, or d, comes before its tokens can is denied at once. Stats counts a
// call that waits as denied, which it was, and as admitted when its wait was not in vain.
func Wait(d time.Duration) Option { return func(l *Limiter) { l.patience = d } }

// Status makes the answer to a call that is not admitted, such as a gRPC status: it is given the
// error, and Limit returns what it returns. nil admits the call, for who would rather serve while
// the store is away, unless the context has ended. It runs on the goroutine of the call.
func Status(status func(err error) error) Option { return func(l *Limiter) { l.status = status } }
