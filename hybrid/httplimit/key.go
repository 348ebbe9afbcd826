package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/yuzhi-go/yuzhi/hybrid/internal/admission"
)

// KeyFunc returns the key that a request counts for. hybrid.Config.LimitsFor, SetLimits and Events get the
// same key. Equal keys of one limiter share a bucket, so a limiter needs one kind of keys, or FirstOf. If a
// KeyFunc returns an error or an empty key, the request gets status 400, and OnError gets an error that wraps
// ErrNoKey and the error of the KeyFunc. Goroutines share a KeyFunc.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is wrapped by the error of a request without a key.
var ErrNoKey = errors.New("httplimit: request has no key")

// OneKey returns the same key, "all", for all requests.
func OneKey(*http.Request) (string, error) { return "all", nil }

// Header returns a KeyFunc for the value of a request's header field. A client can write any value, so use
// Header only for fields that a gateway has checked. A missing or empty field is an error that wraps
// ErrNoKey. A repeated field is an error that does not wrap ErrNoKey, so FirstOf tries no other KeyFunc.
//
// An IP address in the field, such as in CF-Connecting-IP or X-Real-IP, has the key of ClientIP.
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
// mux, as in mux.Handle("GET /orders", limit(orders)); the mux's own answers, 404 and 405, are not limited.
// In a Middleware around the mux, Pattern returns an error, because no pattern has matched yet.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", fmt.Errorf("%w: no http.ServeMux pattern has matched the request", ErrNoKey)
	}
	return r.Pattern, nil
}

// Path returns a KeyFunc for the value of a wildcard, such as "bucket" in the pattern "/upload/{bucket}". An
// empty value is an error.
func Path(wildcard string) KeyFunc {
	return func(r *http.Request) (string, error) {
		value := r.PathValue(wildcard)
		if value == "" {
			return "", fmt.Errorf("%w: path wildcard %s is empty", ErrNoKey, wildcard)
		}
		return value, nil
	}
}

// FirstOf returns a KeyFunc that runs keys in order until one of them returns a key, for example the
// customer's key or else the address. The index of that KeyFunc and a colon come before the key, as in
// "0:acme", so keys of different kinds are never equal. After an empty key or an error that wraps ErrNoKey,
// the next KeyFunc runs. FirstOf's KeyFunc returns any other error at once.
//
// All but the last KeyFunc must authenticate their keys, and reject an unknown key by an error other than
// ErrNoKey. Otherwise a client could invent a new key for each request. FirstOf panics without keys.
func FirstOf(keys ...KeyFunc) KeyFunc { return admission.FirstOf(ErrNoKey, keys) }

// Combine returns a KeyFunc that makes one key of several, such as "this user on this route". Two requests
// have the same combined key only if each KeyFunc in keys returns the same key for both. The format of the
// combined key may change. The KeyFunc returns an error if one of keys returns an error or an empty key. To
// limit a request by several keys, each with its own limit, use Also. Combine panics without keys.
func Combine(keys ...KeyFunc) KeyFunc { return admission.Combine(ErrNoKey, keys) }
