// Package stamps lets processes record which tokens they admitted, and when, even if they are killed.
//
// A parent calls [Create] for each child, and the child calls [Open]. The child calls [File.Put] with two
// moments that certainly enclose an admission, from [Now] and [After]. The file is mapped into shared memory:
// a Put is two stores and no system call, and a kill loses nothing that is already in the system's page
// cache. The parent may read the file at any time, even while the child writes.
//
// Package stamps runs on Unix and on Windows.
package stamps

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// Now returns a moment not later than the call, in nanoseconds by a clock that all processes of one machine
// share.
func Now() int64 { return clock() - slack }

// After returns a moment not earlier than the call, by the clock of Now.
func After() int64 { return clock() + 1 + slack }

// A File is a fixed number of slots for admissions and two counters, in memory shared by every process that
// has the file open. Any number of goroutines and processes may call all methods except Close concurrently.
// The zero File is not usable.
type File struct {
	mem   []byte
	head  *header
	slots []record
}

// header is the start of the file. Each counter has two cache lines, which some processors fetch in pairs.
type header struct {
	offered    atomic.Int64
	_          [120]byte
	roundTrips atomic.Int64
	_          [120]byte
}

// record is one slot of a File. The field after is stored last; an empty slot has 0 in after.
type record struct {
	before int64
	after  atomic.Int64
}

const (
	recordSize = int(unsafe.Sizeof(record{}))
	// The slots start on a page boundary for the usual page sizes (4, 16 KiB).
	headerSize = 16 << 10
	// An int cannot address a file with more slots.
	capacityMost = (math.MaxInt - headerSize) / recordSize
)

// Create makes the file at path, which must not exist, with room for capacity admissions, and maps it. The
// file is sparse: it occupies 16 bytes per recorded admission. If the file system is full, a store into the
// mapping kills the process with SIGBUS. The caller removes the file; Windows requires that every process has
// closed it.
func Create(path string, capacity int) (*File, error) {
	if capacity < 1 || capacity > capacityMost {
		return nil, fmt.Errorf("stamps: capacity is %d, must be 1 to %d", capacity, capacityMost)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	defer f.Close() // the mapping outlives the descriptor
	if err = grow(f, int64(headerSize+capacity*recordSize)); err == nil {
		var file *File
		if file, err = mapped(f, capacity); err == nil {
			return file, nil
		}
	}
	return nil, fmt.Errorf("stamps: %w", errors.Join(err, f.Close(), os.Remove(path)))
}

// Open maps a file that Create made in this or another process. All processes share the file's contents.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	capacity := (info.Size() - headerSize) / int64(recordSize)
	if capacity < 1 || capacity > int64(capacityMost) { // access past the end kills the process with SIGBUS
		return nil, fmt.Errorf("stamps: %s has %d bytes, must have room for 1 to %d admissions",
			path, info.Size(), capacityMost)
	}
	file, err := mapped(f, int(capacity))
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	return file, nil
}

func mapped(f *os.File, capacity int) (*File, error) {
	mem, err := mapShared(f, headerSize+capacity*recordSize)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return &File{
		mem:   mem,
		head:  (*header)(unsafe.Pointer(&mem[0])),
		slots: unsafe.Slice((*record)(unsafe.Pointer(&mem[headerSize])), capacity),
	}, nil
}

// Close unmaps the file; the contents remain for other processes. No other call may be under way, and none
// may follow except another Close, which does nothing.
func (f *File) Close() error {
	if f.mem == nil {
		return nil
	}
	mem := f.mem
	*f = File{} // a later call must find nil, not an address that was reused
	if err := unmap(mem); err != nil {
		return fmt.Errorf("stamps: unmap: %w", err)
	}
	return nil
}

// Put records in a slot that a token was admitted at some moment in [before, after]; after must be positive.
// Each slot is for one Put. Put ignores a slot out of range. A process killed inside Put leaves the slot
// empty.
func (f *File) Put(slot int, before, after int64) {
	if slot < len(f.slots) {
		f.slots[slot].before = before
		f.slots[slot].after.Store(after)
	}
}

// At returns the span that Put wrote to a slot, or false for an empty slot.
func (f *File) At(slot int) (audit.Span, bool) {
	if slot >= len(f.slots) {
		return audit.Span{}, false
	}
	after := f.slots[slot].after.Load()
	return audit.Span{Before: f.slots[slot].before, After: after, N: 1}, after != 0
}

// Offered returns the counter of the requests of all processes, admitted or not.
func (f *File) Offered() *atomic.Int64 { return &f.head.offered }

// RoundTrips returns the counter of the round trips of all processes to the store.
func (f *File) RoundTrips() *atomic.Int64 { return &f.head.roundTrips }
