//go:build linux || darwin || freebsd || openbsd || dragonfly || solaris

package stamps

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yuzhi-go/yuzhi/sim/audit"
)

func created(t *testing.T, capacity int) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stamps")
	f, err := Create(path, capacity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, path
}

func opened(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestWhatOneSideWritesTheOtherReads(t *testing.T) {
	parent, path := created(t, 10)
	child := opened(t, path)

	for i := range int64(3) {
		if err := child.Append(10*i, 10*i+5, i); err != nil {
			t.Fatal(err)
		}
	}
	child.AddOffered(7)
	parent.AddOffered(1)
	child.AddRoundTrips(2)
	child.Observe(40 * time.Nanosecond)
	child.Observe(-1)

	want := []audit.Span{{Before: 0, After: 5, N: 0}, {Before: 10, After: 15, N: 1}, {Before: 20, After: 25, N: 2}}
	if got := parent.Spans(); !slices.Equal(got, want) {
		t.Errorf("spans %v, want %v", got, want)
	}
	if got := parent.AppendSpans(want[:1:1]); len(got) != 4 || got[0] != want[0] || got[3] != want[2] {
		t.Errorf("appended to one span: %v", got)
	}
	if parent.Offered() != 8 || parent.RoundTrips() != 2 || parent.Capacity() != 10 {
		t.Errorf("offered %d, round trips %d, capacity %d", parent.Offered(), parent.RoundTrips(), parent.Capacity())
	}
	if h := parent.Latency(); h.Count() != 2 || h.Quantile(0) != 0 || h.Quantile(1) != 40 {
		t.Errorf("latency: %d from %v to %v", h.Count(), h.Quantile(0), h.Quantile(1))
	}
	if parent.Unpublished() != 0 || parent.Overflowed() != 0 {
		t.Errorf("unpublished %d, overflowed %d", parent.Unpublished(), parent.Overflowed())
	}
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
				if err := f.Append(id, id+1, sealOf(id, id+1)); err != nil {
					t.Error(err)
				}
				f.AddOffered(1)
			}
		})
	}

	// A reader at their heels sees every slot the moment it is published, and never half of it.
	for i := range parent.slots {
		s := &parent.slots[i]
		for s.after.Load() == 0 {
			runtime.Gosched()
		}
		if got := (audit.Span{Before: s.before, After: s.after.Load(), N: s.n}); got.N != sealOf(got.Before, got.After) {
			t.Errorf("half a record: %+v", got)
			break
		}
	}
	wg.Wait()
	// Afterwards everything is there, once.
	seen := map[int64]bool{}
	for _, s := range parent.Spans() {
		seen[s.Before] = true
	}
	if len(seen) != writers*each || parent.Offered() != writers*each || parent.Unpublished() != 0 {
		t.Errorf("%d distinct records, %d offered, %d unpublished; want %d, %d, 0",
			len(seen), parent.Offered(), parent.Unpublished(), writers*each, writers*each)
	}
}

// sealOf ties the three fields of a record together, so that a mixture of two records shows.
func sealOf(before, after int64) int64 {
	h := uint64(before)*0x9e3779b97f4a7c15 ^ uint64(after)*0xc2b2ae3d27d4eb4f
	return int64((h ^ h>>29) >> 1)
}

func TestAFullFileSaysSoForGood(t *testing.T) {
	parent, path := created(t, 2)
	child := opened(t, path)
	var refused int
	for i := range int64(5) {
		if err := child.Append(i, i+1, 1); errors.Is(err, ErrFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 3 || parent.Overflowed() != 3 || len(parent.Spans()) != 2 {
		t.Errorf("refused %d, overflowed %d, kept %d; want 3, 3, 2", refused, parent.Overflowed(), len(parent.Spans()))
	}
	if late := opened(t, path); late.Overflowed() != 3 {
		t.Errorf("reopened: overflowed %d, want 3", late.Overflowed())
	}
}

func TestASlotThatWasTakenButNeverPublishedIsSkipped(t *testing.T) {
	f, _ := created(t, 10)
	if err := f.Append(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	// Given one writer that died after taking a slot, and one that died halfway through writing it
	f.reserve()
	half := f.reserve()
	half.before, half.n = 5, 5
	if err := f.Append(7, 8, 9); err != nil {
		t.Fatal(err)
	}

	want := []audit.Span{{Before: 1, After: 2, N: 3}, {Before: 7, After: 8, N: 9}}
	if got := f.Spans(); !slices.Equal(got, want) {
		t.Errorf("spans %v, want %v", got, want)
	}
	if f.Unpublished() != 2 {
		t.Errorf("unpublished %d, want 2", f.Unpublished())
	}
}

func TestAppendRefusesWhatAnAuditCouldNotRead(t *testing.T) {
	f, _ := created(t, 10)
	for _, r := range [][3]int64{{1, 0, 1}, {-5, 0, 1}, {-5, -4, 1}, {4, 3, 1}, {1, 2, -1}} {
		if err := f.Append(r[0], r[1], r[2]); !errors.Is(err, ErrRecord) {
			t.Errorf("Append(%d, %d, %d): error %v, want ErrRecord", r[0], r[1], r[2], err)
		}
	}
	if f.taken() != 0 || len(f.Spans()) != 0 {
		t.Errorf("the refused left %d slots, %v", f.taken(), f.Spans())
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	f, _ := created(t, 1000)
	if n := testing.AllocsPerRun(100, func() { _ = f.Append(1, 2, 3); f.Observe(5) }); n != 0 {
		t.Errorf("Append and Observe allocate %v times", n)
	}
}

func TestCreateNeverTouchesAFileThatExists(t *testing.T) {
	f, path := created(t, 2)
	if err := f.Append(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, 2); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want ErrExist", err)
	}
	if len(f.Spans()) != 1 {
		t.Error("the file was emptied under its owner")
	}
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

func TestOpenTakesOnlyWhatCreateMade(t *testing.T) {
	_, good := created(t, 100)
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(whole)
	other[0] ^= 1
	for name, content := range map[string][]byte{
		"empty":                nil,
		"a header only":        whole[:headerSize],
		"cut short":            whole[:len(whole)-recordSize],
		"grown":                append(slices.Clone(whole), make([]byte, recordSize)...),
		"of another version":   other,
		"unfinished by Create": make([]byte, len(whole)),
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrFormat) {
			t.Errorf("a file %s: error %v, want ErrFormat", name, err)
		}
	}
	if _, err := Open(good + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: error %v, want ErrNotExist", err)
	}
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	f, path := created(t, 2)
	if err := f.Append(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if again := opened(t, path); len(again.Spans()) != 1 {
		t.Error("what was written is gone")
	}
}

func BenchmarkAppend(b *testing.B) {
	f, err := Create(filepath.Join(b.TempDir(), "stamps"), 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if f.Append(1, 2, 3) == ErrFull {
			f.head.reserved.Store(0)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	f, err := Create(filepath.Join(b.TempDir(), "stamps"), 1)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		f.Observe(12345)
	}
}
