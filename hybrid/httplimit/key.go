package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// KeyFunc returns the key that a request counts for. hybrid.Config.LimitsFor, SetLimits and Events use the
// same key. Equal keys of one limiter share a bucket, so use one kind of keys for a limiter, or FirstOf. If a
// KeyFunc returns an error or an empty key, the request is answered with 400. OnError gets an error that
// wraps both ErrNoKey and the error of the KeyFunc. Goroutines share a KeyFunc.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is wrapped by the error of a request without a key.
var ErrNoKey = errors.New("httplimit: request has no key")

// OneKey returns the same key, "all", for all requests.
func OneKey(*http.Request) (string, error) { return "all", nil }

// Header returns the value of a field of the request. A client can write any value, so use Header for fields
// that a gateway has checked. A missing or empty field is an error that wraps ErrNoKey. A repeated field,
// whose origin is unknown, is an error that does not wrap ErrNoKey, so FirstOf ends the search.
//
// An IP address as value, with or without a port, such as in CF-Connecting-IP or X-Real-IP, has the key of
// ClientIP: an IPv6 /64 counts as one address.
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

// Pattern returns the pattern of http.ServeMux that the request matched. Pattern is for the handlers of a
// mux, as in mux.Handle("GET /orders", limit(orders)). Around the mux itself Pattern returns an error,
// because no pattern has matched yet. The mux's own answers, 404 and 405, have no limit.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", fmt.Errorf("%w: no http.ServeMux pattern has matched the request", ErrNoKey)
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

// FirstOf returns the key of the first KeyFunc in keys that has one, such as a customer's key or else the
// address. The key begins with the index of that KeyFunc and a colon, such as "0:acme", so that different
// kinds of keys are never equal. After an empty key or an error that wraps ErrNoKey the next KeyFunc runs;
// any other error ends the search.
//
// A KeyFunc before the last must return authenticated keys, and for an unknown key an error other than
// ErrNoKey: otherwise a client could invent a key with a new bucket for each request. FirstOf panics without
// keys.
func FirstOf(keys ...KeyFunc) KeyFunc { return admission.FirstOf(ErrNoKey, keys) }

// Combine makes one key of several, such as "this user on this route". Different parts make different keys,
// whatever bytes they have. No program should read the parts back: if routes have different limits, give each
// route a limiter. Combine's key fails if a part is empty or has an error. The option Also is for several
// limits, each with its own key, that must all admit a request. Combine panics without keys.
func Combine(keys ...KeyFunc) KeyFunc { return admission.Combine(ErrNoKey, keys) }
