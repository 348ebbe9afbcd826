//go:build unix

package stamps

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// slack is the largest error of a clock reading in ns, without rounding.
const slack = 0

// clock reads CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds rounded down.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("stamps: CLOCK_MONOTONIC: %w", err))
	}
	return ts.Nano()
}

// grow extends the empty file f to size bytes, which take no disk space until they are written.
func grow(f *os.File, size int64) error { return f.Truncate(size) }

// mapShared maps the first size bytes of f, which the caller may then close.
func mapShared(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// unmap ends a mapping of mapShared.
func unmap(mem []byte) error { return unix.Munmap(mem) }
