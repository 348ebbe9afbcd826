package hybrid_test

import (
	"errors"
	"testing"
)

// check fails the test, which goes on, unless ok.
func check(t *testing.T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// must ends the test unless ok.
func must(t *testing.T, ok bool, format string, args ...any) {
	if !ok {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// noErr fails the test if err is not nil.
func noErr(t *testing.T, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}

// isErr fails the test unless err wraps want, or is nil where want is.
func isErr(t *testing.T, err, want error) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Errorf("the error is %v, want %v", err, want)
	}
}
