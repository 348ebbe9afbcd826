package httplimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// pauseMax bounds the pause that one answer can cause, and pausesMax the keys with a pause.
const pauseMax, pausesMax = 10 * time.Minute, 100_000

// pauses holds the keys whose requests must wait for a while.
type pauses struct {
	mu      sync.Mutex
	until   map[string]time.Time
	sweptAt time.Time
}

// note makes requests of key wait for d.
func (p *pauses) note(key string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.sweptAt) >= time.Second {
		p.sweptAt = now
		maps.DeleteFunc(p.until, func(_ string, at time.Time) bool { return !at.After(now) })
	}
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	at := now.Add(min(d, pauseMax))
	if at.After(p.until[key]) && len(p.until) < pausesMax {
		p.until[key] = at
	}
}

// wait waits until the pause of key is over.
func (p *pauses) wait(ctx context.Context, key string) error {
	for {
		p.mu.Lock()
		d := time.Until(p.until[key])
		p.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
			return fmt.Errorf("httplimit: %w: server asked to retry after %v", hybrid.ErrWouldExceedDeadline, d)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("httplimit: wait: %w", ctx.Err())
		}
	}
}

// retryAfter returns the wait that an answer asks for, in seconds or until a date (RFC 9110); 0 if none.
// A date is compared with the Date of the answer, if it has one.
func retryAfter(answer *http.Response) time.Duration {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	value := answer.Header.Get(fieldRetryAfter)
	n, err := strconv.ParseUint(value, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, math.MaxInt64/uint64(time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
