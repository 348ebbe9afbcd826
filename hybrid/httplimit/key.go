package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// KeyFunc says which key a request counts for. Equal keys of one limiter share a bucket, so one
// limiter should have keys of one kind only. With an error, which should wrap ErrNoKey, or an empty
// key the request is refused as a bad one; see OnError. Goroutines share it.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is wrapped by the error of a request that has no key.
var ErrNoKey = errors.New("httplimit: the request has no key")

var errEmptyKey = fmt.Errorf("%w: it is empty", ErrNoKey)

// All is one key for everybody.
func All(*http.Request) (string, error) { return "all", nil }

// Header is the value of a field of the request. Use it for what has been checked on the way here,
// as a client can write what it likes. It is an error if the field is missing, empty, or there
// more than once, since then nobody knows who wrote which.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		values := r.Header[canonical]
		if len(values) != 1 || values[0] == "" {
			return "", fmt.Errorf("%w: it has %d fields %s, must be 1 that is not empty",
				ErrNoKey, len(values), canonical)
		}
		return values[0], nil
	}
}

// Route is the pattern of http.ServeMux that the request matched. It is an error if none has, as
// in a handler around the mux instead of below it.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", fmt.Errorf("%w: no pattern of http.ServeMux matched it before", ErrNoKey)
	}
	return r.Pattern, nil
}

// Path is the value of a wildcard of the pattern that the request matched, such as "bucket" of
// "/upload/{bucket}". It is an error if that is empty.
func Path(wildcard string) KeyFunc {
	return func(r *http.Request) (string, error) {
		value := r.PathValue(wildcard)
		if value == "" {
			return "", fmt.Errorf("%w: its path has no %s", ErrNoKey, wildcard)
		}
		return value, nil
	}
}

// JoinOf is one key made of several, such as "this user on this route". Different parts make
// different keys, for any bytes. For several limits that must all admit a request, each with a key
// of its own, see Also. It is an error if a part is empty or has an error.
func JoinOf(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("httplimit: JoinOf needs a KeyFunc")
	}
	return func(r *http.Request) (string, error) {
		var b strings.Builder
		for _, key := range keys {
			part, err := key(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", errEmptyKey
			}
			b.WriteString(strconv.Itoa(len(part)))
			b.WriteByte(':')
			b.WriteString(part)
			b.WriteByte(',')
		}
		return b.String(), nil
	}
}
