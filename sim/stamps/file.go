// Package stamps lets processes leave behind what they admitted, and when, even if they are killed.
//
// A parent Creates a [File], children Open it, and each admission is a [File.Append] of two moments that
// certainly enclose it, taken from a [Stamper]. The file is mapped into memory and shared, so an Append is
// a few stores and no system call, and what was stored is in the kernel's page cache: SIGKILL takes
// nothing back. The parent reads [File.Spans] at any time, even while children write, and audits them.
//
// It needs mmap and CLOCK_MONOTONIC, hence a Unix; elsewhere (and on AIX and NetBSD, whose calls x/sys does
// not cover) Create, Open and NewStamper return an error that wraps errors.ErrUnsupported.
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

var (
	// ErrFull is returned by Append when the file has no room left. The record is then incomplete and an
	// audit of it proves no compliance; see Overflowed.
	ErrFull = errors.New("stamps: the file is full")
	// ErrRecord is wrapped by the refusals of Append.
	ErrRecord = errors.New("stamps: invalid record")
	// ErrFormat is wrapped when Open meets a file that Create did not make, or not this version of it.
	ErrFormat = errors.New("stamps: not a stamp file")
)

// A File is a fixed number of slots for admissions, some counters and a histogram, in memory shared by
// every process that has it open. All methods but Close may be called by any number of goroutines and
// processes at once. The zero File is of no use.
type File struct {
	mem   []byte
	head  *header
	slots []record
}

// header lies at the start of the file. Counters that different goroutines bump stand on cache lines of
// their own; 128 bytes serve the processors that fetch lines in pairs.
type header struct {
	magic    atomic.Uint64 // stored last by Create: a half-made file is not a stamp file
	capacity int64
	_        [112]byte
	reserved atomic.Int64 // slots asked for; beyond capacity, the number refused
	_        [120]byte
	offered  atomic.Int64
	_        [120]byte
	trips    atomic.Int64
	_        [120]byte
	latency  [buckets]atomic.Int64
}

// record is one slot. A slot is published by a store of after, which is never 0 in a record; until then it
// reads as empty. The two plain fields are written once, before that store, and read only after it.
type record struct {
	before, n int64
	after     atomic.Int64
}

const (
	magic      = 0x79757a6869_0001_01 // "yuzhi", version, and a byte that tells the byte order
	recordSize = int(unsafe.Sizeof(record{}))
	// The slots start on a page of any of the usual sizes (4, 16 KiB).
	headerSize = 16 << 10
)

var _ [headerSize - unsafe.Sizeof(header{})]byte // does not compile if the header outgrows its place

// Create makes the file at path with room for capacity admissions, which must be positive, and maps it.
// The path must not exist yet. The file is sparse: it occupies what has been written, at most 24 bytes per
// admission. It must stay on a file system with room for that, because a store that finds none kills the
// process with SIGBUS; /dev/shm and the temporary directory are good places. Removing it is the caller's
// task, and is allowed while it is mapped.
func Create(path string, capacity int) (*File, error) {
	if most := (math.MaxInt - headerSize) / recordSize; capacity < 1 || capacity > most {
		return nil, fmt.Errorf("stamps: capacity is %d, must be 1 to %d", capacity, most)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	defer f.Close() // the mapping outlives the descriptor
	size := headerSize + capacity*recordSize
	if err = f.Truncate(int64(size)); err == nil {
		var file *File
		if file, err = mapped(f, size, capacity); err == nil {
			file.head.capacity = int64(capacity)
			file.head.magic.Store(magic)
			return file, nil
		}
	}
	return nil, fmt.Errorf("stamps: %w", errors.Join(err, os.Remove(path)))
}

// Open maps a file that Create made, in this or another process. It shares everything with the others.
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
	// The size says the capacity, and the header must agree: a file cut short would kill with SIGBUS.
	capacity := (info.Size() - headerSize) / int64(recordSize)
	if capacity < 1 || info.Size() > math.MaxInt {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrFormat, path, info.Size())
	}
	file, err := mapped(f, int(info.Size()), int(capacity))
	if err != nil {
		return nil, fmt.Errorf("stamps: %w", err)
	}
	if m := file.head.magic.Load(); m != magic || file.head.capacity != capacity {
		err = fmt.Errorf("%w: %s begins with %#x, %d; want %#x, %d", ErrFormat, path, m, file.head.capacity, uint64(magic), capacity)
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func mapped(f *os.File, size, capacity int) (*File, error) {
	mem, err := mmap(f, size)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return &File{
		mem:   mem,
		head:  (*header)(unsafe.Pointer(&mem[0])),
		slots: unsafe.Slice((*record)(unsafe.Pointer(&mem[headerSize])), capacity),
	}, nil
}

// Close unmaps the file; what was written stays in it for others. No other call may be under way, and none
// may follow except Close, which then does nothing. A process that ends need not call it.
func (f *File) Close() error {
	if f.mem == nil {
		return nil
	}
	mem := f.mem
	*f = File{} // a call after Close meets nil rather than an address that may hold something else by now
	if err := munmap(mem); err != nil {
		return fmt.Errorf("stamps: unmap: %w", err)
	}
	return nil
}

// Append records that n tokens were admitted at some moment in [before, after], in nanoseconds. It
// allocates nothing and blocks only where a first touch of a page makes the kernel fetch it.
//
// It returns ErrFull when no slot is left, and an error that wraps ErrRecord, leaving no trace, unless
// 0 < after, before <= after and 0 <= n.
//
// A process killed inside Append leaves its slot empty, never half written. A process killed between an
// admission and the end of its Append thus leaves one admission per goroutine untold, at most.
func (f *File) Append(before, after, n int64) error {
	if after <= 0 || before > after || n < 0 {
		return fmt.Errorf("%w: before %d, after %d, n %d; want before <= after, 0 < after, 0 <= n", ErrRecord, before, after, n)
	}
	slot := f.reserve()
	if slot == nil {
		return ErrFull
	}
	slot.before, slot.n = before, n
	slot.after.Store(after)
	return nil
}

// reserve takes the next slot, or nil if there is none. Going past the end is itself the lasting mark of
// an overflow: a flag set in a second step could be lost to a SIGKILL between the two.
func (f *File) reserve() *record {
	i := f.head.reserved.Add(1) - 1
	if i >= int64(len(f.slots)) {
		return nil
	}
	return &f.slots[i]
}

// Spans returns every admission published so far, in the order in which slots were taken.
func (f *File) Spans() []audit.Span {
	return f.AppendSpans(make([]audit.Span, 0, f.taken()))
}

// AppendSpans appends to dst what Spans returns, to gather several files in one slice.
func (f *File) AppendSpans(dst []audit.Span) []audit.Span {
	taken := f.slots[:f.taken()]
	for i := range taken {
		s := &taken[i]
		if after := s.after.Load(); after != 0 {
			dst = append(dst, audit.Span{Before: s.before, After: after, N: s.n})
		}
	}
	return dst
}

func (f *File) taken() int { return int(min(f.head.reserved.Load(), int64(len(f.slots)))) }

// Unpublished returns how many slots are taken but empty: Appends under way, or cut off by a kill. Their
// admissions are missing from Spans.
func (f *File) Unpublished() int {
	missing := 0
	for i := range f.slots[:f.taken()] {
		if f.slots[i].after.Load() == 0 {
			missing++
		}
	}
	return missing
}

// Capacity returns the number of slots.
func (f *File) Capacity() int { return len(f.slots) }

// Overflowed returns how many Appends were refused with ErrFull, by any process. Unless it is 0 the record
// has holes, and an audit that finds no excess has proved nothing.
func (f *File) Overflowed() int64 { return max(0, f.head.reserved.Load()-int64(len(f.slots))) }
