// Package xtime gives a hybrid.Key the methods of Limiter in golang.org/x/time/rate. To make code for one
// process work for a fleet, replace *rate.Limiter by *xtime.Limiter and rate.NewLimiter by New.
//
//	shared, err := hybrid.Redis(client, "crawler", hybrid.Every(50*time.Millisecond).WithBurst(5))
//	err = shared.Ping(ctx) // opens the connection before the first Wait
//	limiter := xtime.New(shared.Key("site")) // replaces rate.NewLimiter(rate.Every(50*time.Millisecond), 5)
//	err = shared.Shutdown(ending) // gives back tokens; no interrupt may have ended the context
//
// A program with a limit for each host makes one shared limiter, and New(shared.Key(host)) for each host.
//
// The methods differ from those of package rate as follows:
//
//   - If the process has no token, Allow may wait for one lease call, at most hybrid.Config.CallTimeout.
//   - While Redis does not answer, even for a tenth of a second, each process admits its local share. All
//     processes together may then exceed the limit by about a burst. hybrid.New with hybrid.FallbackDeny
//     keeps the limit: Allow then denies, and Wait waits until Redis answers or its context ends.
//   - In one process, waiting requests get tokens before Allow. Allow of another process may take tokens that
//     a Wait needs. For optional work, give Config.Priorities to hybrid.New and use New(key.Class(1)).
//   - The error of a Wait that would exceed its deadline wraps context.DeadlineExceeded.
//   - A Limiter has no Reserve, because a process cannot promise tokens that the bucket has not leased to it.
//     Code that calls Reserve and sleeps for Delay should call Wait. hybrid.Key.Reserve has another purpose:
//     it is for a cost that is known afterwards.
//   - The methods ignore their argument t, because the bucket's clock decides.
//   - Limit, Burst, Tokens, SetLimit and SetBurst make calls to the store.
//   - A negative n is an error. In package rate, a negative n adds tokens.
package xtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/safetext"
)

// Limiter is a hybrid.Key with the methods of *rate.Limiter. Goroutines may share a Limiter. Use New; the
// zero Limiter does not work.
type Limiter struct {
	key *hybrid.Key

	mu    sync.Mutex
	limit hybrid.Limit // last known limit, guarded by mu
}

// New returns a Limiter for one key. New does no I/O. If the key has several limits, Limit and Burst return
// those of the first limit, and SetLimit and SetBurst remove the others.
func New(key *hybrid.Key) *Limiter { return &Limiter{key: key} }

// Allow reports whether an event may happen now; see hybrid.Limiter.Allow.
func (l *Limiter) Allow() bool { return l.key.Allow() }

// AllowN reports whether n events may happen now. AllowN ignores t.
func (l *Limiter) AllowN(t time.Time, n int) bool { return l.key.AllowN(int64(n)) }

// Wait waits for one token; see WaitN.
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN waits until n events may happen. WaitN returns an error at once if n exceeds the burst, or if the
// tokens would come after ctx's deadline. If ctx ends first, WaitN returns ctx.Err(). The other errors are
// those of hybrid.Key.WaitN.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	err := l.key.WaitN(ctx, int64(n))
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return ended
	}
	return err
}

// Limit returns the rate in force, in events per second: rate.Inf for hybrid.Unlimited, and 0 for
// hybrid.Blocked. If the store does not answer, Limit returns the last known rate, or 0.
func (l *Limiter) Limit() rate.Limit {
	switch limit := l.inForce(); limit {
	case hybrid.Unlimited:
		return rate.Inf
	case hybrid.Blocked, hybrid.Limit{}: // the zero Limit means that the store has never answered
		return 0
	default:
		return rate.Limit(limit.Rate())
	}
}

// Burst returns the burst in force, 0 for hybrid.Blocked, and 2^38 for hybrid.Unlimited. If the store does
// not answer, Burst returns the last known burst, or 0.
func (l *Limiter) Burst() int {
	limit := l.inForce()
	if limit == hybrid.Blocked {
		return 0
	}
	return int(limit.Capacity())
}

// Tokens returns the number of tokens in the bucket and in this process; 0 if the store does not answer.
func (l *Limiter) Tokens() float64 {
	r, err := l.key.Peek(context.Background())
	if err != nil {
		return 0
	}
	return float64(r.Remaining)
}

// TokensAt is Tokens. TokensAt ignores t.
func (l *Limiter) TokensAt(t time.Time) float64 { return l.Tokens() }

// SetLimit changes the rate for the whole fleet and keeps the burst; see hybrid.Limiter.SetLimits. A rate
// that no bucket can have exactly is rounded. rate.Inf means hybrid.Unlimited, and 0 means hybrid.Blocked.
// After rate.Inf or 0, the next SetLimit restores the burst of the program's own limits. For a sliding window
// or a calendar, SetLimit sets the tokens to the rate times the length, at least 1.
//
// The bucket keeps the new limit until the key is unused for 30 days, even if processes with other limits
// start. hybrid.Limiter.ClearLimits restores the program's own limits.
//
// SetLimit cannot return an error: SetLimit logs a failure, such as a negative rate, to slog.Default.
func (l *Limiter) SetLimit(limit rate.Limit) {
	var invalid error
	if limit != 0 && limit != rate.Inf && limitOf(limit) == (hybrid.Limit{}) {
		invalid = fmt.Errorf("no limit has the rate %v", float64(limit))
	}
	l.set(invalid, func(now hybrid.Limit) hybrid.Limit {
		switch {
		case limit == rate.Inf:
			return hybrid.Unlimited
		case limit == 0:
			return hybrid.Blocked
		case now.Windowed():
			now.Tokens, now.Burst = max(1, whole(float64(limit)*now.Per.Seconds())), 0
			return now
		}
		return limitOf(limit).WithBurst(now.Capacity())
	})
}

// SetLimitAt is SetLimit. SetLimitAt ignores t.
func (l *Limiter) SetLimitAt(t time.Time, limit rate.Limit) { l.SetLimit(limit) }

// SetBurst changes the burst for the whole fleet and keeps the rate; see SetLimit. A burst of 0 means
// hybrid.Blocked. After 0, the next SetBurst restores the rate of the program's own limits. SetBurst does not
// change hybrid.Unlimited. For a sliding window or a calendar, SetBurst sets the tokens.
func (l *Limiter) SetBurst(burst int) {
	var invalid error
	if burst < 0 {
		invalid = fmt.Errorf("the burst is %d, must be at least 0", burst)
	}
	l.set(invalid, func(now hybrid.Limit) hybrid.Limit {
		switch {
		case now == hybrid.Unlimited:
			return now
		case burst == 0:
			return hybrid.Blocked
		case now.Windowed():
			now.Tokens, now.Burst = int64(burst), 0
			return now
		}
		return now.WithBurst(int64(burst))
	})
}

// SetBurstAt is SetBurst. SetBurstAt ignores t.
func (l *Limiter) SetBurstAt(t time.Time, burst int) { l.SetBurst(burst) }

// inForce returns the key's first limit in the store, or the last known limit.
func (l *Limiter) inForce() hybrid.Limit {
	limit, err := l.first()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.limit = limit
	}
	return l.limit
}

// first returns the key's first limit in the store.
func (l *Limiter) first() (hybrid.Limit, error) {
	levels, err := l.key.Limiter().Levels(context.Background(), l.key.Name())
	if err != nil {
		return hybrid.Limit{}, err
	}
	return levels[0].Limit, nil
}

// isSwitch reports whether limit is Unlimited or Blocked, which have neither a rate nor a burst to keep.
func isSwitch(limit hybrid.Limit) bool { return limit == hybrid.Unlimited || limit == hybrid.Blocked }

// set replaces the key's limits by the limit that change returns for the first of them. If invalid is an
// error, set only logs invalid. If set replaces Unlimited or Blocked by a rate, the program's own limits are
// in force for a moment.
func (l *Limiter) set(invalid error, change func(hybrid.Limit) hybrid.Limit) {
	ctx, limiter, name := context.Background(), l.key.Limiter(), l.key.Name()
	var now hybrid.Limit
	err := invalid
	if err == nil {
		now, err = l.first()
	}
	if err == nil && isSwitch(now) && !isSwitch(change(now)) {
		if err = limiter.ClearLimits(ctx, name); err == nil {
			now, err = l.first()
		}
		if isSwitch(now) { // the program's own limit is Unlimited or Blocked
			now = hybrid.Limit{}
		}
	}
	if err == nil {
		err = limiter.SetLimits(ctx, name, change(now))
	}
	if err != nil {
		slog.Error("xtime: limit not changed",
			"key", safetext.Text(name, 64, ""), "error", safetext.Error(err))
	}
}

// whole returns x rounded, and at most 2^53, which exceeds all valid limits and may be multiplied by 1000.
func whole(x float64) int64 { return int64(math.Round(min(x, 1<<53))) }

// limitOf returns the limit with rate r: exact for whole tokens per second, minute or hour and for one token
// per whole number of microseconds, otherwise within a millionth. limitOf returns the zero Limit, which
// SetLimits refuses, if r is negative, NaN or out of range.
func limitOf(r rate.Limit) (nearest hybrid.Limit) {
	if !(r > 0) {
		return hybrid.Limit{}
	}
	least := math.Inf(1)
	try := func(tokens float64, per time.Duration) {
		l := hybrid.Limit{Tokens: whole(tokens), Per: per}
		const rounding = 1e-12 // a later candidate must be better by more than a rounding error
		if off := math.Abs(l.Rate()/float64(r) - 1); off < least-rounding && l.Validate() == nil {
			nearest, least = l, off
		}
	}
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour} {
		try(float64(r)*per.Seconds(), per)
	}
	try(1, time.Duration(whole(1e6/float64(r)))*time.Microsecond)
	for per := 10 * time.Second; per <= 1e6*time.Second; per *= 10 {
		try(float64(r)*per.Seconds(), per)
	}
	return nearest
}
