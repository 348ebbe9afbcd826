package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// attemptsMax bounds the attempts for one request, and discardMax the bytes that are read of a discarded
// answer's body so that its connection can be reused.
const attemptsMax, discardMax = 4, 64 << 10

// RoundTripper returns a Transport for an http.Client. Each request waits until limiter has its tokens;
// then next sends it. A nil next means http.DefaultTransport. Goroutines may share the result.
// RoundTripper panics if limiter or key is nil.
//
// An answer 429 or 503 with a Retry-After of at most ten minutes makes all requests of the key wait that
// long. The request is sent again then, up to three times, if it can be repeated: its method is idempotent or
// it has an Idempotency-Key, and it has no body or a GetBody. Otherwise, or if the request's deadline comes
// first, the answer is returned unchanged. With a longer Retry-After the other requests wait for ten minutes.
//
// Only the options Also, Cost, Skip, Class and Wait have an effect. A request that is not sent returns an
// error of the KeyFunc, which wraps ErrNoKey, or of hybrid.Limiter.WaitN, such as ErrWouldExceedDeadline.
func RoundTripper(
	limiter *hybrid.Limiter, key KeyFunc, next http.RoundTripper, options ...Option,
) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	s := newSettings(options)
	return &transport{settings: s, rules: s.rulesOf(limiter, key), next: next}
}

// transport sends requests at the rate of its rules.
type transport struct {
	*settings
	rules  []Rule
	next   http.RoundTripper
	pauses pauses
}

// RoundTrip sends r once it is admitted.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.skip != nil && t.skip(r) {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if t.wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.wait) // bounds the wait alone: sending may take longer
	}
	defer cancel()
	for attempt := 1; ; attempt++ {
		name, err := t.admit(ctx, r)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		answer, err := t.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		wait := retryAfter(answer)
		if wait <= 0 {
			return answer, nil
		}
		t.pauses.note(name, wait)
		if attempt == attemptsMax || wait > pauseMax || endsBefore(ctx, wait) {
			return answer, nil
		}
		again := repeat(r)
		if again == nil {
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, discardMax) // otherwise the connection is closed
		_ = answer.Body.Close()
		r = again
	}
}

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// admit waits until r may be sent, and returns its key.
func (t *transport) admit(ctx context.Context, r *http.Request) (name string, err error) {
	joined, keys, err := join(r, t.inClass(t.rules, r))
	if err != nil {
		return "", err
	}
	name = keys[0].Name()
	var limiter interface {
		WaitN(ctx context.Context, n int64) error
		Refund(n int64)
	} = joined
	if len(keys) == 1 {
		limiter = keys[0]
	}
	if err := t.pauses.wait(ctx, name); err != nil {
		return "", err
	}
	cost := t.costOf(r)
	if err := limiter.WaitN(ctx, cost); err != nil {
		return "", err
	}
	// An answer may have asked for a pause meanwhile.
	if err := t.pauses.wait(ctx, name); err != nil {
		limiter.Refund(cost)
		return "", err
	}
	return name, nil
}

// repeat returns r for one more attempt; nil if that might act twice, or the body is gone.
func repeat(r *http.Request) *http.Request {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut,
		http.MethodDelete:
	default:
		if r.Header.Get("Idempotency-Key") == "" {
			return nil
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := *r // a RoundTripper must not change the caller's request
	again.Body = body
	return &again
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// endsBefore reports whether ctx ends within d.
func endsBefore(ctx context.Context, d time.Duration) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(at) <= d
}

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
