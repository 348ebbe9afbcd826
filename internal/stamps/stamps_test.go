package stamps

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/sim/audit"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

func created(t *testing.T, capacity int) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stamps")
	f, err := Create(path, capacity)
	testkit.NoErr(t, err)
	t.Cleanup(func() { testkit.NoErr(t, f.Close()) })
	return f, path
}

func opened(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	testkit.NoErr(t, err)
	t.Cleanup(func() { testkit.NoErr(t, f.Close()) })
	return f
}

// spans are the admissions of all slots.
func spans(f *File) (all []audit.Span) {
	for slot := range f.slots {
		if s, ok := f.At(slot); ok {
			all = append(all, s)
		}
	}
	return all
}

func TestOneSideReadsTheOthersStamps(t *testing.T) {
	parent, path := created(t, 10)
	child := opened(t, path)
	for i := range 3 {
		child.Put(i, int64(10*i), int64(10*i+5))
	}
	child.Offered().Add(7)
	parent.Offered().Add(1)
	child.RoundTrips().Add(2)
	want := []audit.Span{{Before: 0, After: 5, N: 1}, {Before: 10, After: 15, N: 1},
		{Before: 20, After: 25, N: 1}}
	if got := spans(parent); !slices.Equal(got, want) {
		t.Errorf("spans %v, want %v", got, want)
	}
	offered, trips := parent.Offered().Load(), parent.RoundTrips().Load()
	testkit.Check(t, offered == 8 && trips == 2, "offered %d, round trips %d", offered, trips)
}

func TestManyGoroutinesShareAFileWithoutLosingOne(t *testing.T) {
	const each = 50_000
	parent, path := created(t, writers*each)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			f := opened(t, path) // a mapping of its own, as a process would have
			for i := range each {
				id := int64(w*each + i)
				f.Put(w*each+i, id, sealOf(id))
				f.Offered().Add(1)
			}
		})
	}
	// A reader at their heels sees every slot the moment it is published, and never half of it.
	for i := range parent.slots {
		s := &parent.slots[i]
		for s.after.Load() == 0 {
			runtime.Gosched()
		}
		if s.after.Load() != sealOf(s.before) {
			t.Errorf("half a record: %d, %d", s.before, s.after.Load())
			break
		}
	}
	wg.Wait()
	// Afterwards everything is there, once.
	seen := map[int64]bool{}
	for _, s := range spans(parent) {
		seen[s.Before] = true
	}
	testkit.Check(t, len(seen) == writers*each && parent.Offered().Load() == writers*each,
		"%d distinct records, %d offered; want %d", len(seen), parent.Offered().Load(), writers*each)
}

// sealOf ties the fields of a record together, so that a mixture of two records shows.
func sealOf(before int64) int64 {
	h := uint64(before) * 0x9e3779b97f4a7c15
	return int64((h^h>>29)>>1) | 1
}

func TestPutAllocatesNothing(t *testing.T) {
	f, _ := created(t, 1000)
	n := testing.AllocsPerRun(100, func() { f.Put(0, Now(), After()) })
	testkit.Check(t, n == 0, "Put allocates %v times", n)
}

func TestCreateNeverTouchesAFileThatExists(t *testing.T) {
	f, path := created(t, 2)
	f.Put(0, 1, 2)
	if _, err := Create(path, 2); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want ErrExist", err)
	}
	testkit.Check(t, len(spans(f)) == 1, "the file was emptied under its owner")
	for _, capacity := range []int{0, -1, int(^uint(0) >> 1)} {
		fresh := path + ".fresh"
		if _, err := Create(fresh, capacity); err == nil {
			t.Errorf("a capacity of %d is accepted", capacity)
		}
		if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a refused capacity of %d leaves a file: %v", capacity, err)
		}
	}
}

func TestOpenRefusesAFileWithoutSlots(t *testing.T) {
	for _, size := range []int{0, headerSize, headerSize + recordSize - 1} {
		path := filepath.Join(t.TempDir(), "file")
		testkit.NoErr(t, os.WriteFile(path, make([]byte, size), 0o600))
		_, err := Open(path)
		testkit.Check(t, err != nil, "a file of %d bytes is opened", size)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: error %v, want ErrNotExist", err)
	}
}

func TestASlotOfItsOwnSaysWhichRequestWasAdmitted(t *testing.T) {
	parent, path := created(t, 3)
	child := opened(t, path)
	// given requests of which the third was admitted, and one for which there is no slot
	child.Put(2, 5, 7)
	child.Put(3, 8, 9)
	// then another process sees which
	for slot, want := range []bool{false, false, true, false} {
		s, ok := parent.At(slot)
		testkit.Check(t, ok == want && (!ok || s == audit.Span{Before: 5, After: 7, N: 1}),
			"%d: %v %v", slot, s, ok)
	}
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	f, path := created(t, 2)
	f.Put(0, 1, 2)
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	again := opened(t, path)
	testkit.Check(t, len(spans(again)) == 1, "what was written is gone")
}

func BenchmarkPut(b *testing.B) {
	f, err := Create(filepath.Join(b.TempDir(), "stamps"), 1)
	testkit.NoErr(b, err)
	defer f.Close()
	for b.Loop() {
		f.Put(0, 1, 2)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
