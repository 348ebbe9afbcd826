// Package stamps lets processes record which tokens they admitted, and when, even if they are killed.
//
// A parent calls [Create] for each child, and the child calls [Open]. The child calls [File.Append] with two
// moments that enclose an admission, from [Now] and [After]. The file is mapped into shared memory: an Append
// is a few stores and no system call, and a kill loses no store. The parent may read and audit the file at
// any time.
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
	reserved   atomic.Int64 // number of Appends; those above the file's capacity got no slot
	_          [120]byte
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

// Append records that one token was admitted at some moment in [before, after]; after must be positive.
// Append does not allocate. Without a free slot Append only counts; see Overflowed. A process killed inside
// Append leaves its slot empty, never half written.
func (f *File) Append(before, after int64) {
	if slot := f.reserve(); slot != nil {
		slot.before = before
		slot.after.Store(after)
	}
}

// Put writes an admission to the slot with this number, or does nothing for a slot out of range. Only one
// goroutine may call Put, and only in a file without Appends.
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

// reserve returns the next slot, or nil if none is left. The counter alone records an overflow, because a
// SIGKILL could come before a second store.
func (f *File) reserve() *record {
	i := f.head.reserved.Add(1) - 1
	if i >= int64(len(f.slots)) {
		return nil
	}
	return &f.slots[i]
}

// AppendSpans appends to dst every admission published so far, in the order of the slots.
func (f *File) AppendSpans(dst []audit.Span) []audit.Span {
	taken := f.slots[:min(f.head.reserved.Load(), int64(len(f.slots)))]
	for i := range taken {
		if after := taken[i].after.Load(); after != 0 {
			dst = append(dst, audit.Span{Before: taken[i].before, After: after, N: 1})
		}
	}
	return dst
}

// Overflowed returns the number of Appends that found no slot. If the number is not 0, the record has gaps,
// and an audit that finds no excess proves nothing.
func (f *File) Overflowed() int64 { return max(0, f.head.reserved.Load()-int64(len(f.slots))) }

// Offered returns the counter of the requests of all processes, admitted or not.
func (f *File) Offered() *atomic.Int64 { return &f.head.offered }

// RoundTrips returns the counter of the round trips of all processes to the store.
func (f *File) RoundTrips() *atomic.Int64 { return &f.head.roundTrips }
