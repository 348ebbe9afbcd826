package faults

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

// decision is one request: it was decided at some moment in [before, after].
type decision struct {
	before, after time.Duration // Fleet.Now
	ok            bool
}

// record is the decisions of one goroutine, in their order.
type record struct {
	mu  sync.Mutex
	all []decision
}

func (r *record) add(d decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
}

// record is a new one for key.
func (f *Fleet) record(key string) *record {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &record{}
	f.records[key] = append(f.records[key], r)
	return r
}

// each calls see with every decision on key so far that began at from or later.
func (f *Fleet) each(key string, from time.Duration, see func(decision)) {
	f.mu.Lock()
	records := f.records[key]
	f.mu.Unlock()
	for _, r := range records {
		r.mu.Lock()
		first, _ := slices.BinarySearchFunc(r.all, from, func(d decision, from time.Duration) int { return cmp.Compare(d.before, from) })
		for _, d := range r.all[first:] {
			see(d)
		}
		r.mu.Unlock()
	}
}

// Seen is what the callers of a fleet saw in a while.
type Seen struct {
	Admitted, Denied int64
	Slowest          time.Duration // the longest that a decision took
	Slow             int64         // decisions that took a millisecond or more
}

// Seen sums up the decisions on key that began in [from, to), by Fleet.Now.
func (f *Fleet) Seen(key string, from, to time.Duration) Seen {
	var s Seen
	f.each(key, from, func(d decision) {
		if d.before >= to {
			return
		}
		if d.ok {
			s.Admitted++
		} else {
			s.Denied++
		}
		s.Slowest = max(s.Slowest, d.after-d.before)
		if d.after-d.before >= time.Millisecond {
			s.Slow++
		}
	})
	return s
}

// Audit is the window in which most was admitted of key beyond what limit and overcommit allow, over all windows.
func (f *Fleet) Audit(key string, limit hybrid.Limit, overcommit int64) audit.Window {
	f.t.Helper()
	var spans []audit.Span
	f.each(key, 0, func(d decision) {
		if d.ok {
			spans = append(spans, audit.Span{Before: int64(d.before), After: int64(d.after), N: 1})
		}
	})
	w, err := audit.Worst(spans, audit.Bound{Tokens: limit.Tokens, Per: limit.Per, Burst: limit.Capacity(), Overcommit: overcommit})
	if err != nil {
		f.t.Fatal(err)
	}
	return w
}
