package sweep

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestEachRunsAsManyAtOneTimeAsItIsToldAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given calls that wait for one another,
		var running atomic.Int64
		gate := make(chan struct{})
		seen := make([]bool, 100)
		ended := make(chan error)
		go func() {
			ended <- Each(t.Context(), 3, len(seen), func(i int) error {
				running.Add(1)
				<-gate
				seen[i] = true
				return nil
			})
		}()
		// when nothing goes on any more, then three have begun,
		synctest.Wait()
		if n := running.Load(); n != 3 {
			t.Errorf("%d run at one time", n)
		}
		// and in the end all have ended.
		close(gate)
		if err := <-ended; err != nil || slices.Contains(seen, false) {
			t.Errorf("%v, %v", err, seen)
		}
	})
}

func TestEachStartsNothingAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	err := Each(t.Context(), 1, 100, func(i int) error {
		if calls++; i == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || calls != 4 {
		t.Errorf("%v after %d calls", err, calls)
	}
	// Of several errors it is the lowest number's.
	first, both := errors.New("first"), make(chan struct{})
	err = Each(t.Context(), 2, 2, func(i int) error {
		if i == 0 {
			<-both
			return first
		}
		defer close(both)
		return broken
	})
	if !errors.Is(err, first) {
		t.Error(err)
	}
}

func TestEachStartsNothingOnceItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := Each(ctx, 1, 100, func(i int) error {
		if calls++; i == 3 {
			cancel()
		}
		return nil
	})
	if err != nil || calls != 4 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
