package stamps

import (
	"math/bits"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// The clock is the performance counter. The counter's readings are consistent across all processors and
// processes, but readings of different threads that are one tick apart may have either order:
// https://learn.microsoft.com/windows/win32/sysinfo/acquiring-high-resolution-time-stamps
var (
	kernel32  = windows.NewLazySystemDLL("kernel32.dll")
	counter   = kernel32.NewProc("QueryPerformanceCounter")
	frequency = query(kernel32.NewProc("QueryPerformanceFrequency"))

	// slack is the largest error of a clock reading in ns, without rounding: one tick between threads, and
	// one tick that has begun.
	slack = int64(2*second/frequency) + 1
)

const second = 1_000_000_000 // ns

func query(proc *windows.LazyProc) (n uint64) {
	if ok, _, err := syscall.SyscallN(proc.Addr(), uintptr(unsafe.Pointer(&n))); ok == 0 {
		panic("stamps: " + proc.Name + ": " + err.Error())
	}
	return n
}

// clock reads the counter in nanoseconds rounded down.
func clock() int64 {
	high, low := bits.Mul64(query(counter), second)
	ns, _ := bits.Div64(high, low, frequency)
	return int64(ns)
}

// grow extends the empty file f to size bytes. On a file system with sparse files, the new bytes take no disk
// space until they are written.
func grow(f *os.File, size int64) error {
	var n uint32
	_ = windows.DeviceIoControl(windows.Handle(f.Fd()), windows.FSCTL_SET_SPARSE, nil, 0, nil, 0, &n, nil)
	return f.Truncate(size)
}

// mapShared maps the first size bytes of f, which the caller may then close. Views of one file are coherent
// across processes, unless the file is on another machine:
// https://learn.microsoft.com/windows/win32/api/memoryapi/nf-memoryapi-createfilemappingw
func mapShared(f *os.File, size int) ([]byte, error) {
	mapping, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READWRITE,
		uint32(uint64(size)>>32), uint32(size), nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer windows.CloseHandle(mapping) // the view keeps the mapping alive
	view, err := windows.MapViewOfFile(mapping, windows.FILE_MAP_READ|windows.FILE_MAP_WRITE,
		0, 0, uintptr(size))
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// The indirection is for vet, which reports a conversion of a uintptr to a pointer.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&view)), size), nil
}

// unmap ends a mapping of mapShared.
func unmap(mem []byte) error {
	return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(uintptr(unsafe.Pointer(&mem[0]))))
}
