package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// KeyFunc returns the key that a request counts for, as hybrid.Config.LimitsFor and Events get it. Equal keys
// of one limiter share a bucket, so use one kind of keys for a limiter, or FirstOf. An error or an empty key
// is answered with 400. OnError gets an error of your own wrapped together with ErrNoKey, so it asks
// errors.Is for your own one first. Goroutines share a KeyFunc.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is wrapped by the error of a request without a key.
var ErrNoKey = errors.New("httplimit: request has no key")

// OneKey returns the same key, "all", for all requests.
func OneKey(*http.Request) (string, error) { return "all", nil }

// Header returns the value of a field of the request. Use it for fields that a gateway has checked, as a
// client can write any value. A missing or empty field is an error that wraps ErrNoKey. Several fields are an
// error that does not, so FirstOf does not go on: their origin is unknown.
//
// A value that is an IP address, with or without a port, as of CF-Connecting-IP or X-Real-IP, has the key
// that ClientIP gives it: an IPv6 /64 counts as one address.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		values := r.Header[canonical]
		switch {
		case len(values) > 1:
			return "", fmt.Errorf("httplimit: field %s occurs %d times, must be 1", canonical, len(values))
		case len(values) == 0 || values[0] == "":
			return "", fmt.Errorf("%w: field %s is missing or empty", ErrNoKey, canonical)
		}
		return admission.AddressKey(values[0]), nil
	}
}

// Pattern returns the pattern of http.ServeMux that the request matched. It limits the handlers of the mux,
// as in mux.Handle("GET /orders", limit(orders)). Around the mux itself it is an error, as no pattern has
// matched yet. The mux's own answers, 404 and 405, have no limit then.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", fmt.Errorf("%w: no http.ServeMux pattern has matched it", ErrNoKey)
	}
	return r.Pattern, nil
}

// Path returns the value of a wildcard of the pattern that the request matched, such as "bucket" of
// "/upload/{bucket}". An empty value is an error.
func Path(wildcard string) KeyFunc {
	return func(r *http.Request) (string, error) {
		value := r.PathValue(wildcard)
		if value == "" {
			return "", fmt.Errorf("%w: path wildcard %s is empty", ErrNoKey, wildcard)
		}
		return value, nil
	}
}

// FirstOf returns the key of the first of keys that has one, such as a customer's, or else the address. It
// begins with the place of that KeyFunc and a colon, as "0:" or "1:", so that one kind of keys never meets
// another. An empty key and an error that wraps ErrNoKey go on to the next; any other error ends the search.
//
// A KeyFunc before the last one must return authenticated keys, and another error than ErrNoKey for a key
// that it does not know: a client that may invent a key has a new bucket for each request. FirstOf panics
// without keys.
func FirstOf(keys ...KeyFunc) KeyFunc { return admission.FirstOf(ErrNoKey, keys) }

// Combine makes one key of several, such as "this user on this route". Different parts make different keys,
// for any bytes, in a form that is not to be read: where routes have different limits, give each route a
// limiter. An empty part, or an error, is an error. For several limits that must all admit a request, each
// with its own key, see Also. Combine panics without keys.
func Combine(keys ...KeyFunc) KeyFunc { return admission.Combine(ErrNoKey, keys) }
