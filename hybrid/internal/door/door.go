// Package door is what the packages httplimit and rpclimit have in common: how a request that came
// by the network is decided.
package door

import (
	"context"
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Decide takes n tokens of key or none. A request that would be denied waits for them, for at most
// patience and no longer than ctx allows, and does not begin to wait where that is in vain. The
// Result is that of KeyLimiter.Take: OK where the request is admitted, be it after a wait. The
// error is that of Take or WaitN. That the time to wait has run out is no error but a denial.
//
// Stats counts a request that waits as denied, because it was, and then as what comes of the wait.
func Decide(ctx context.Context, key hybrid.KeyLimiter, n int64, patience time.Duration) (hybrid.Result, error) {
	r, err := key.Take(ctx, n)
	if err != nil || r.OK || r.RetryAfter > patience {
		return r, err
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = key.WaitN(limited, n)
	if errors.Is(err, context.DeadlineExceeded) {
		return r, nil
	}
	r.OK = err == nil
	if r.OK {
		// What was left at the denial, and what came since, this request has taken.
		r.Taken, r.RetryAfter, r.Remaining, r.ResetAfter = n, 0, 0, r.Limit.TimeToFull()
	}
	return r, err
}

// Failed reports whether the denial r says more about the limiter than about the request: the store
// did not answer, and what decides without it has denied. The request may be within the limit.
func Failed(r hybrid.Result) bool { return !r.OK && r.Source == hybrid.SourceFallback }
