package httplimit

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// pauseMax is the longest pause after one answer. pausesMax is the most keys with a pause at a time.
const pauseMax, pausesMax = 10 * time.Minute, 100_000

// pauses delays the requests of keys for which a server has asked for a pause.
type pauses struct {
	mu      sync.Mutex
	until   map[string]time.Time
	drawing map[string]map[context.Context]context.CancelFunc // requests that wait for tokens, by key
	sweptAt time.Time
}

// note begins or extends a pause of key to d from now. note returns false if pausesMax keys have a pause.
//
// note ends the waits for tokens of key. Otherwise requests would keep their tokens during the pause and be
// sent all at once afterwards.
func (p *pauses) note(key string, d time.Duration) bool {
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
	at, paused := p.until[key]
	if !paused && len(p.until) >= pausesMax {
		return false
	}
	if until := now.Add(min(d, pauseMax)); until.After(at) {
		p.until[key] = until
	}
	for _, end := range p.drawing[key] {
		end()
	}
	return true
}

// enter waits until key has no pause. drawing is the context for taking tokens, and ends when a pause begins.
// The caller then calls leave, which reports whether a pause has begun.
func (p *pauses) enter(ctx context.Context, key string) (
	drawing context.Context, leave func() (paused bool), err error,
) {
	for {
		p.mu.Lock()
		d := time.Until(p.until[key])
		if d <= 0 {
			break
		}
		p.mu.Unlock()
		if at, ok := ctx.Deadline(); ok && time.Until(at) < d {
			return nil, nil, &pausedError{d}
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("httplimit: wait: %w", ctx.Err())
		}
	}
	defer p.mu.Unlock()
	drawing, end := context.WithCancel(ctx)
	if p.drawing == nil {
		p.drawing = make(map[string]map[context.Context]context.CancelFunc)
	}
	if p.drawing[key] == nil {
		p.drawing[key] = make(map[context.Context]context.CancelFunc)
	}
	p.drawing[key][drawing] = end
	return drawing, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.drawing[key], drawing)
		if len(p.drawing[key]) == 0 {
			delete(p.drawing, key)
		}
		defer end()
		return drawing.Err() != nil && ctx.Err() == nil
	}, nil
}

// pausedError is the error of a request whose deadline comes before the end of a pause.
type pausedError struct{ left time.Duration }

func (e *pausedError) Error() string {
	return fmt.Sprintf("httplimit: %v: server asked to retry after %v", hybrid.ErrWouldExceedDeadline, e.left)
}

func (e *pausedError) Unwrap() error { return hybrid.ErrWouldExceedDeadline }

// RetryAfter lets hybrid.RetryAfter return the time left.
func (e *pausedError) RetryAfter() time.Duration { return e.left }

// pauseOf returns the pause that an answer asks for; 0 if none. A pause until a date counts from the answer's
// Date field or, without that field, from now.
func (s *settings) pauseOf(answer *http.Response) time.Duration {
	if !slices.Contains(s.pauseOn, answer.StatusCode) {
		return 0
	}
	if d := roundUp(answer.Header.Get(fieldRetryAfterMs), time.Millisecond); d > 0 {
		return d
	}
	value := answer.Header.Get(fieldRetryAfter)
	if d := roundUp(value, time.Second); d > 0 {
		return d
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

// roundUp returns the decimal number value in whole units, rounded up; 0 if value is no number.
func roundUp(value string, unit time.Duration) time.Duration {
	if strings.Trim(value, ".0123456789") != "" {
		return 0 // ParseFloat also reads signs, exponents, Inf and NaN
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil && !math.IsInf(n, 1) { // n is Inf for a number out of range
		return 0
	}
	return time.Duration(min(math.Ceil(n), float64(math.MaxInt64/unit))) * unit
}
