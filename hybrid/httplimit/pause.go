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

// pauseMax is the longest that one answer can have others wait, and pausesMax how many keys can.
const pauseMax, pausesMax = 10 * time.Minute, 100_000

// pauses are the keys whose requests are not to be sent for a while.
type pauses struct {
	mu      sync.Mutex
	until   map[string]time.Time
	sweptAt time.Time
}

// note has requests of key wait for d.
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

// wait waits for as long as requests of key are to wait.
func (p *pauses) wait(ctx context.Context, key string) error {
	for {
		p.mu.Lock()
		d := time.Until(p.until[key])
		p.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
			return fmt.Errorf("httplimit: %w: the server wants no request for %v", hybrid.ErrWouldExceedDeadline, d)
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

// retryAfter is how long an answer asks to wait, in seconds or until a date (RFC 9110). It is 0
// where it does not. A date is judged by the server's own clock where the answer tells that.
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
