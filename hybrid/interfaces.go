package hybrid

import "context"

// RateLimiter is what a program asks of a Limiter while it serves, so that its tests can put
// something else in its place. Where a test wants real limits, a Limiter on a memory.Store
// needs no Redis; it also makes the Reservations that a substitute may want to return. What is
// asked once, and what an operator does, is not in it.
//
// Methods will not be added to it, since that would break whoever implements it.
type RateLimiter interface {
	Allow(key string) bool
	AllowN(key string, n int64) bool
	TryAllow(key string) bool
	Take(ctx context.Context, key string, n int64) (Result, error)
	TakeUpTo(ctx context.Context, key string, n int64) (Result, error)
	Wait(ctx context.Context, key string) error
	WaitN(ctx context.Context, key string, n int64) error
	Peek(ctx context.Context, key string) (Result, error)
	Reserve(ctx context.Context, key string, estimate int64) (*Reservation, error)
	Refund(key string, n int64)
}

// KeyLimiter is the same of one Key, or of several that are joined: for code that is given what
// limits it and need not know by which keys.
type KeyLimiter interface {
	Name() string
	Allow() bool
	AllowN(n int64) bool
	TryAllow() bool
	Take(ctx context.Context, n int64) (Result, error)
	TakeUpTo(ctx context.Context, n int64) (Result, error)
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int64) error
	Peek(ctx context.Context) (Result, error)
	Reserve(ctx context.Context, estimate int64) (*Reservation, error)
	Refund(n int64)
}

var (
	_ RateLimiter = (*Limiter)(nil)
	_ KeyLimiter  = (*Key)(nil)
	_ KeyLimiter  = (*Joined)(nil)
)
