package hybrid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yuzhi-go/yuzhi/lease"
)

// Limit is lease.Limit: Tokens per Per, with Burst.
type Limit = lease.Limit

// Policy is lease.Policy; the zero value is a good default.
type Policy = lease.Policy

// ColdStart is lease.ColdStart.
type ColdStart = lease.ColdStart

// Fallback is lease.Fallback.
type Fallback = lease.Fallback

// Source is lease.Source: what a decision rests on.
type Source = lease.Source

// The constants of Source.
const (
	// SourceLocal: tokens that this process held, or what it last heard of the bucket.
	SourceLocal = lease.SourceLocal
	// SourceStore: the answer of a lease call made for this request.
	SourceStore = lease.SourceStore
	// SourceFallback: Policy.Fallback or Policy.ColdStart, because the store did not answer.
	SourceFallback = lease.SourceFallback
)

// The constants of Policy, so that most programs import this package alone.
const (
	ColdStartDeny      = lease.ColdStartDeny
	ColdStartAllow     = lease.ColdStartAllow
	FallbackLocalShare = lease.FallbackLocalShare
	FallbackDeny       = lease.FallbackDeny
	FallbackAllowAll   = lease.FallbackAllowAll
)

// PerSecond is n tokens per second with a burst of n.
func PerSecond(n int64) Limit { return lease.PerSecond(n) }

// PerMinute is n tokens per minute with a burst of n.
func PerMinute(n int64) Limit { return lease.PerMinute(n) }

// PerHour is n tokens per hour with a burst of n.
func PerHour(n int64) Limit { return lease.PerHour(n) }

// Every is one token per d with a burst of 1.
func Every(d time.Duration) Limit { return lease.Every(d) }

// ParseLimit reads "100/s", "5000/m burst 200", "1/250ms"; see lease.ParseLimit.
func ParseLimit(s string) (Limit, error) { return lease.ParseLimit(s) }

var (
	// ErrClosed: the Limiter was closed.
	ErrClosed = errors.New("hybrid: limiter closed")
	// ErrExceedsBurst: n is above the burst, so no wait would ever help.
	ErrExceedsBurst = errors.New("hybrid: n exceeds burst")
	// ErrWouldExceedDeadline: the tokens cannot be there before the context's deadline. It wraps
	// context.DeadlineExceeded, which is what waiting would have come to.
	ErrWouldExceedDeadline error = wouldExceedDeadline{}
	// ErrUnavailable: the store did not answer, or the table of keys is full of keys in use.
	ErrUnavailable = errors.New("hybrid: store unavailable")
	// ErrInvalidKey: the key is empty.
	ErrInvalidKey = errors.New("hybrid: invalid key")
	// ErrInvalidN: n is negative.
	ErrInvalidN = errors.New("hybrid: invalid n")
	// ErrInvalidConfig: New was given something that it cannot use; each violation is in the text.
	ErrInvalidConfig = errors.New("hybrid: invalid configuration")
)

type wouldExceedDeadline struct{}

func (wouldExceedDeadline) Error() string { return "hybrid: would exceed context deadline" }
func (wouldExceedDeadline) Unwrap() error { return context.DeadlineExceeded }

var errEmptyKey = fmt.Errorf("%w: the key is empty", ErrInvalidKey)
