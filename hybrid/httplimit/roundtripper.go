package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// attemptsMax bounds the attempts of one request. discardMax bounds the bytes that are read of a discarded
// answer's body so that the connection can be reused.
const attemptsMax, discardMax = 4, 64 << 10

// RoundTripper returns a Transport for an http.Client. Each request waits for its tokens of limiter before
// next sends it. A nil next means http.DefaultTransport. Goroutines may share the result. RoundTripper panics
// if limiter or key is nil.
//
// An answer 429 or 503 (PauseOn adds statuses) with Retry-After or Retry-After-Ms pauses all requests with
// the same key in this process for the given time, at most ten minutes. Another process pauses only after a
// 429 or 503 to its own request. During a pause no request is sent or takes tokens; later each request takes
// its tokens before it is sent. The keys of Also have no pauses, so choose key to stand for one upstream, or
// for one account at an upstream.
//
// After the pause the refused request is sent again, up to three times, if it can be repeated: its method is
// idempotent or it has an Idempotency-Key, and it has no body or a GetBody. The answer is returned unchanged
// if the request cannot be repeated, if the pause exceeds ten minutes or if the request's deadline comes
// first.
//
// Only the options Also, Cost, Skip, Class, Wait and PauseOn have an effect. A request that is not sent
// returns an error of the KeyFunc, which wraps ErrNoKey, or of hybrid.Key.WaitN, such as
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

// RoundTrip sends r once it is admitted.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.skip != nil && t.skip(r) {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if t.wait > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.wait) // bounds the wait for tokens, not the sending
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
		_, _ = io.CopyN(io.Discard, answer.Body, discardMax) // an unread body would close the connection
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
		if err == nil { // the tokens came as the pause began, and must not be held during it
			limiter.Refund(cost)
		}
	}
}

// repeat returns r for another attempt, or nil if a repetition might act twice or the body is gone.
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
