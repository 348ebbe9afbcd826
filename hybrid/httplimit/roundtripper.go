package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// attemptsMax is the most attempts of one request. discardMax is the most bytes that RoundTrip reads from the
// body of an answer before the next attempt.
const attemptsMax, discardMax = 4, 64 << 10

// RoundTripper returns a Transport for an http.Client. Each request waits for its tokens of limiter before
// next sends the request. A nil next means http.DefaultTransport. Goroutines may share the result.
// RoundTripper panics if limiter or key is nil.
//
// An answer 429 or 503 (PauseOn adds statuses) with Retry-After or Retry-After-Ms pauses all requests with
// the same key in this process for the given time, at most ten minutes. Paused requests take no tokens. Other
// processes do not learn of the pause. The keys of Also have no pauses, so key must stand for one upstream,
// or for one account at an upstream.
//
// After the pause, the refused request is sent again, up to three times, if it can be repeated: its method is
// idempotent or it has an Idempotency-Key, and it has no body or a GetBody. The caller gets the server's
// answer if the request cannot be repeated, or if the pause exceeds ten minutes or the request's deadline.
//
// Only the options Also, Cost, Skip, Class, Wait and PauseOn have an effect. A request that is not sent
// returns an error that wraps ErrNoKey, or an error of hybrid.Key.WaitN, such as ErrWouldExceedDeadline.
func RoundTripper(
	limiter *hybrid.Limiter, key KeyFunc, next http.RoundTripper, options ...Option,
) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	s := newSettings(options)
	return &transport{settings: s, rules: s.rulesOf(limiter, key), next: next}
}

type transport struct {
	*settings
	rules  []Rule
	next   http.RoundTripper
	pauses pauses
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.skip != nil && t.skip(r) {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if t.wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.wait) // bounds the wait for tokens, not the round trip
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
		wait := t.pauseOf(answer)
		if wait <= 0 {
			return answer, nil
		}
		noted := t.pauses.note(name, wait)
		if !noted || attempt == attemptsMax || wait > pauseMax || endsBefore(ctx, wait) {
			return answer, nil
		}
		again := repeat(r)
		if again == nil {
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, discardMax) // a connection with an unread body is not reused
		_ = answer.Body.Close()
		r = again
	}
}

// CloseIdleConnections implements http.Client.CloseIdleConnections.
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
	cost := t.costOf(r)
	for {
		drawing, leave, err := t.pauses.enter(ctx, name)
		if err != nil {
			return "", err
		}
		err = limiter.WaitN(drawing, cost)
		if !leave() {
			return name, err
		}
		if err == nil { // a pause has begun, during which the request must not keep tokens
			limiter.Refund(cost)
		}
	}
}

// repeat returns r for another attempt, or nil if r might act twice or its body cannot be read again.
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

// closeBody closes the body of a request that is not sent, as http.RoundTripper demands.
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
