//go:build unix

package stamps

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// slack is the most by which a reading may differ from the true time, besides its rounding.
const slack = 0

// clock reads CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds rounded down.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("stamps: CLOCK_MONOTONIC: %w", err))
	}
	return ts.Nano()
}

// grow extends the empty file f to size bytes. They take no room until they are written.
func grow(f *os.File, size int64) error { return f.Truncate(size) }

// mapShared maps the first size bytes of f, which may be closed afterwards.
func mapShared(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// unmap ends a mapping that mapShared made.
func unmap(mem []byte) error { return unix.Munmap(mem) }
