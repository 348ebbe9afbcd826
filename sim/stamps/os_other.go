//go:build !(linux || darwin || freebsd || openbsd || dragonfly || solaris)

package stamps

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

const goReadsMonotonic = false

func unsupported(what string) error {
	return fmt.Errorf("%s has no %s that this package can use, it needs Linux, macOS, BSD or Solaris: %w", runtime.GOOS, what, errors.ErrUnsupported)
}

func mmap(*os.File, int) ([]byte, error) { return nil, unsupported("shared mapping") }

func munmap([]byte) error { return unsupported("shared mapping") }

func monotonic() (int64, error) { return 0, unsupported("CLOCK_MONOTONIC") }
