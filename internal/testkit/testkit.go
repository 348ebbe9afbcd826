// Package testkit has helpers for the tests of several packages: waiting for a condition, seeds that a
// failure prints, the switch between a short and a long run, an index of fairness. Only tests and packages
// for tests import testkit.
package testkit

import (
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// Jain returns Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all shares are equal, and 1/n if one of
// n shares has everything.
func Jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	return sum * sum / (float64(len(shares)) * squares)
}

const (
	// patience is how long Eventually polls: far longer than any wait on a busy machine.
	patience = time.Minute
	// pace is the time between two polls. No test result depends on pace.
	pace = 2 * time.Millisecond
)

// Eventually polls until holds returns true. After a minute, Eventually ends the test with every goroutine's
// stack and what, the missing event. Inside a synctest bubble, the minute is virtual time.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	notYet := errors.New("not within a minute: " + what)
	EventuallyNil(t, func() error {
		if holds() {
			return nil
		}
		return notYet
	})
}

// EventuallyNil polls until check returns nil. After a minute, EventuallyNil ends the test with the last
// error.
func EventuallyNil(t testing.TB, check func() error) {
	t.Helper()
	for from := time.Now(); ; time.Sleep(pace) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(from) > patience {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%v\n%s", err, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// PlainOrRace returns race if the race detector is on, and plain otherwise.
func PlainOrRace[T any](plain, race T) T {
	if RaceEnabled {
		return race
	}
	return plain
}

// OneGoroutine skips t, which computes on one goroutine, if the race detector is on: the detector would find
// nothing and slow t tenfold.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if RaceEnabled {
		t.Skip("computes on one goroutine, without the race detector")
	}
}

// Check fails the test with a formatted text unless ok. The test continues.
func Check(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// Must ends the test with a formatted text unless ok.
func Must(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// NoErr ends the test unless err is nil.
func NoErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// RequireSignals skips t on Windows, which has no signals that stop and continue a process.
func RequireSignals(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signal that stops a process and lets it go on")
	}
}

// RequireMiniredis skips t in a 32-bit build, where miniredis converts the numbers of scripts to int.
func RequireMiniredis(t testing.TB) {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("miniredis returns no number of a script above 2^31 in a 32-bit build")
	}
}
