package admission

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// NoKey returns an error that wraps err, the error of a KeyFunc, and noKey, an ErrNoKey.
func NoKey(noKey, err error) error {
	if errors.Is(err, noKey) {
		return err
	}
	return fmt.Errorf("%w: %w", noKey, err)
}

// KeyOf returns the key of a request, or an error that wraps noKey, also for an empty key.
func KeyOf[R any](noKey error, key func(R) (string, error), request R) (string, error) {
	name, err := key(request)
	switch {
	case err != nil:
		return "", NoKey(noKey, err)
	case name == "":
		return "", fmt.Errorf("%w: the key is empty", noKey)
	}
	return name, nil
}

// FirstOf implements FirstOf of httplimit and rpclimit.
func FirstOf[R any, F ~func(R) (string, error)](noKey error, keys []F) F {
	if len(keys) == 0 {
		panic("FirstOf needs a KeyFunc")
	}
	return func(request R) (string, error) {
		for i, key := range keys {
			name, err := key(request)
			switch {
			case err != nil && !errors.Is(err, noKey):
				return "", err
			case err == nil && name != "":
				return strconv.Itoa(i) + ":" + name, nil
			}
		}
		return "", fmt.Errorf("%w: none of %d KeyFuncs found a key", noKey, len(keys))
	}
}

// Combine implements Combine of httplimit and rpclimit. The length before each part keeps the keys of
// different parts different.
func Combine[R any, F ~func(R) (string, error)](noKey error, keys []F) F {
	if len(keys) == 0 {
		panic("Combine needs a KeyFunc")
	}
	return func(request R) (string, error) {
		var b strings.Builder
		for _, key := range keys {
			part, err := key(request)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", fmt.Errorf("%w: a part of the key is empty", noKey)
			}
			b.WriteString(strconv.Itoa(len(part)))
			b.WriteByte(':')
			b.WriteString(part)
			b.WriteByte(',')
		}
		return b.String(), nil
	}
}
