package faults

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
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
		first, _ := slices.BinarySearchFunc(r.all, from, func(d decision, from time.Duration) int {
			return cmp.Compare(d.before, from)
		})
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

func (s Seen) String() string {
	return fmt.Sprintf("%d admitted, %d denied, slowest %v", s.Admitted, s.Denied,
		s.Slowest.Round(time.Microsecond))
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

// Next is what became of the next n requests for key, or some more.
func (f *Fleet) Next(key string, n int64) (s Seen) {
	f.t.Helper()
	from := f.Now()
	testkit.Eventually(f.t, fmt.Sprintf("%d requests for %s", n, key), func() bool {
		s = f.Seen(key, from, f.Now())
		return s.Admitted+s.Denied >= n
	})
	return s
}

// Audit is the window, over all of them, in which most was admitted of key beyond limit and
// overcommit.
func (f *Fleet) Audit(key string, limit hybrid.Limit, overcommit int64) audit.Window {
	f.t.Helper()
	var spans []audit.Span
	f.each(key, 0, func(d decision) {
		if d.ok {
			spans = append(spans, audit.Span{Before: int64(d.before), After: int64(d.after), N: 1})
		}
	})
	return worstOf(f.t, spans, limit, limit.Capacity()+overcommit)
}

// CheckBound is oracle W: in no window more was admitted of key than the limit and the overcommit
// allow.
func (f *Fleet) CheckBound(key string, limit hybrid.Limit, overcommit int64) {
	f.t.Helper()
	w := f.Audit(key, limit, overcommit)
	switch {
	case w.Admitted == 0:
		f.t.Errorf("nothing was admitted of %q: the audit says nothing", key)
	case w.ExceededBy > 0:
		f.t.Errorf("%d admitted of %q in the %v from %v on, %d more than %v + %d allow",
			w.Admitted, key, time.Duration(w.To-w.From), time.Duration(w.From), w.ExceededBy, limit,
			overcommit)
	}
}
