// Package admission admits, delays or denies a request from the network for httplimit and rpclimit.
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

// Decide takes n tokens of key or none. A denied request waits for the tokens, at most for patience and until
// ctx ends, but not if its RetryAfter is longer than patience. Decide returns the Result of Take, with OK set
// after a successful wait, and the error of Take or WaitN. The end of patience is a denial without an error.
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
		// The request has taken the tokens left at the denial and those refilled since then.
		r.Taken, r.RetryAfter, r.Remaining, r.ResetAfter = n, 0, 0, r.Limit.TimeToFull()
	}
	return r, err
}

// Failed reports whether the fallback has denied, because the store did not answer.
func Failed(r hybrid.Result) bool { return !r.OK && r.Source == hybrid.SourceFallback }

// NeverServed reports whether err means that the limiter never admits the request: the cost is above the
// burst, or negative (a ContentLength of -1, for instance), or the key is invalid.
func NeverServed(err error) bool {
	return errors.Is(err, hybrid.ErrExceedsBurst) || errors.Is(err, hybrid.ErrInvalidN) ||
		errors.Is(err, hybrid.ErrInvalidKey)
}
