package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// A request is sent at most attemptsMax times, and of the body of an answer that is thrown away at
// most discardMax bytes are read, so that its connection can be used again.
const attemptsMax, discardMax = 4, 64 << 10

// RoundTripper has each request wait until limiter has its tokens, and then has next send it; nil
// means http.DefaultTransport. An http.Client uses it as its Transport. Goroutines share it. It
// panics where limiter or key is nil.
//
// An answer 429 or 503 with a Retry-After of at most ten minutes makes all requests of the key wait
// for that long. The request is sent again then, up to three times, if it can be repeated: its
// method is idempotent or it has an Idempotency-Key, and it has no body or a GetBody. Otherwise, or
// where the request's deadline comes before, the answer is returned as it is. With a longer
// Retry-After the others wait for ten minutes.
//
// The options Also, Cost, Skip, Class and Wait are those that count. A request that is not sent has
// an error of the KeyFunc, which wraps ErrNoKey, or of hybrid.Limiter.WaitN, such as
// ErrWouldExceedDeadline.
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

// RoundTrip sends r when its time has come.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.skip != nil && t.skip(r) {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if t.wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.wait) // of waiting alone: sending may take longer
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
		_, _ = io.CopyN(io.Discard, answer.Body, discardMax) // or else the connection is closed
		_ = answer.Body.Close()
		r = again
	}
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// admit waits until r may be sent. Its key is name.
func (t *transport) admit(ctx context.Context, r *http.Request) (name string, err error) {
	joined, keys, err := join(r, t.inClass(t.rules, r))
	if err != nil {
		return "", err
	}
	name = keys[0].Name()
	var limiter hybrid.KeyLimiter = joined
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
	// Another request may have been told to wait meanwhile.
	if err := t.pauses.wait(ctx, name); err != nil {
		limiter.Refund(cost)
		return "", err
	}
	return name, nil
}

// repeat is r to be sent once more; nil where that might do something twice, or the body is gone.
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
	again := *r // shallow: a RoundTripper must not change the caller's
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
