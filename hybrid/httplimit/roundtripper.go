package httplimit

import (
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

// RoundTripper has requests wait for a token of limiter before next sends them; nil is
// http.DefaultTransport. It honours the Retry-After of a 429 or 503 for all requests of the key.
func RoundTripper(limiter *hybrid.Limiter, key KeyFunc, next http.RoundTripper, options ...Option) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		name, err := key(r)
		if err == nil {
			err = limiter.Wait(r.Context(), name)
		}
		if err != nil {
			return nil, err
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
