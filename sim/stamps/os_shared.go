//go:build linux || darwin || freebsd || openbsd || dragonfly || solaris

package stamps

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// goReadsMonotonic says whether time.Since counts on CLOCK_MONOTONIC, from a constant origin: runtime
// sys_linux_*.s.
const goReadsMonotonic = runtime.GOOS == "linux" || runtime.GOOS == "android"

func mmap(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func munmap(mem []byte) error { return unix.Munmap(mem) }

// monotonic reads CLOCK_MONOTONIC in nanoseconds.
func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return ts.Nano(), nil
}
