// Package admission makes the decision that httplimit and rpclimit share: it admits, delays or denies a
// request from the network.
package admission

import (
	"context"
	"errors"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// Key is a *hybrid.Key or a *hybrid.Joined.
type Key interface {
	Take(ctx context.Context, n int64) (hybrid.Result, error)
	WaitN(ctx context.Context, n int64) error
}

// Decide takes n tokens of key or none. A request that Take denies waits for the tokens, at most for patience
// and until ctx ends. A request does not wait if its RetryAfter is longer than patience. Decide returns the
// Result of Take, with OK set after a successful wait, and the error of Take or WaitN. A wait that runs out
// of time is a denial without an error.
//
// Stats counts a waiting request as denied, and also as admitted after a successful wait.
func Decide(ctx context.Context, key Key, n int64, patience time.Duration) (hybrid.Result, error) {
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
		// This request has taken the tokens left at the denial and those refilled since.
		r.Taken, r.RetryAfter, r.Remaining, r.ResetAfter = n, 0, 0, r.Limit.TimeToFull()
	}
	return r, err
}

// Failed reports whether the denial r is due to the limiter, not to the request: the store did not answer,
// and the fallback has denied. A request with a Failed denial may be within the limit.
func Failed(r hybrid.Result) bool { return !r.OK && r.Source == hybrid.SourceFallback }

// NeverServed reports whether err means that the limiter refuses the request at any time: it costs more than
// the burst, its cost is negative (such as that of an unknown length), or it has no valid key.
func NeverServed(err error) bool {
	return errors.Is(err, hybrid.ErrExceedsBurst) || errors.Is(err, hybrid.ErrInvalidN) ||
		errors.Is(err, hybrid.ErrInvalidKey)
}
