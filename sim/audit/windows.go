package audit

import (
	"math"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

func (b Bound) windowed() bool { return b.Kind != lease.KindBucket }

// period returns the number of the calendar period that contains a time.
func (b Bound) period(at int64) int64 {
	k := exact.FloorDiv(at, int64(b.Per))
	if at-k*int64(b.Per) < int64(b.Offset) { // right in two's complement, even if the product overflows
		k--
	}
	return k
}

// window does the work of a Meter for a windowed limit.
//
// A refund is a new permit at its own time: only windows that contain the refund have more room. A window
// does not count the charged tokens in it, because they are owed for as long as the window contains them.
type window struct {
	bound Bound
	used  run
	peak  int64
}

// newWindow returns a window for b, or nil for a token bucket. Calendar periods count as windows of length 1.
func newWindow(b Bound) *window {
	if !b.windowed() {
		return nil
	}
	w := &window{bound: b, used: run{length: uint64(b.Per)}}
	if b.Kind == lease.KindCalendar {
		w.used.length = 1
	}
	return w
}

// net counts n tokens admitted less those refunded: the bound limits the largest use in windows that end now.
func (w *window) net(at, n int64) {
	if w.bound.Kind == lease.KindCalendar {
		at = w.bound.period(at)
	}
	w.used.add(at, n)
	w.peak = max(w.peak, w.used.most())
}

// run finds the largest sum of the counts in (s, now] over all s since now-length. Without negative counts,
// the longest such interval has the largest sum.
//
// sum(s, now] is the total now less the total until s. A run keeps the totals in a rising queue, because an
// earlier, larger total can never again be the best start. Totals may overflow, but differences of totals do
// not.
type run struct {
	length uint64
	sum    int64
	line   []point
	head   int
}

// point is the total of all counts up to a time.
type point struct{ until, sum int64 }

// add counts n, which may be negative, at a time. The times of successive calls must not decrease.
func (r *run) add(at, n int64) {
	for r.head < len(r.line) && uint64(at)-uint64(r.line[r.head].until) >= r.length {
		r.head++
	}
	for len(r.line) > r.head && r.line[len(r.line)-1].sum-r.sum >= 0 {
		r.line = r.line[:len(r.line)-1]
	}
	// A point with the same time that is left in line has a smaller sum, and so is the better start.
	if last := len(r.line) - 1; last < r.head || r.line[last].until != at {
		if r.head > 64 && r.head > len(r.line)/2 {
			r.line = r.line[:copy(r.line, r.line[r.head:])]
			r.head = 0
		}
		r.line = append(r.line, point{at, r.sum})
	}
	r.sum += n
}

// most returns the largest sum of the counts in an interval that ends at the last add, or 0 if all sums are
// negative.
func (r *run) most() int64 { return max(0, r.sum-r.line[r.head].sum) }

// worstWindow implements Worst for a windowed limit. starts has the spans in order of Before, and ends has
// their positions in order of After. A window that ends at e counts the spans that begin at or after a first
// time, which rises with e.
func (b Bound) worstWindow(starts []Span, ends []int) Window {
	counted := make([]bool, len(starts))
	first, sum, worst := 0, int64(0), Window{}
	for k, i := range ends {
		e := starts[i].After
		for from := b.begin(e); first < len(starts) && starts[first].Before < from; first++ {
			if counted[first] {
				sum -= starts[first].N
			}
		}
		if i >= first { // spans before first are longer than a window
			counted[i], sum = true, sum+starts[i].N
		}
		if k+1 < len(ends) && starts[ends[k+1]].After == e {
			continue
		}
		if sum > worst.Admitted {
			worst = Window{From: starts[first].Before, To: e, Admitted: sum}
		}
	}
	if worst.Admitted == 0 {
		return Window{} // every span is longer than a window
	}
	return b.judge(worst.From, worst.To, worst.Admitted)
}

// begin returns the first time of the longest window that ends at e. No sliding window contains admissions at
// both e-Per and e.
func (b Bound) begin(e int64) int64 {
	from := e - int64(b.Per) + 1
	if b.Kind == lease.KindCalendar {
		from = b.period(e)*int64(b.Per) + int64(b.Offset)
	}
	if from > e {
		return math.MinInt64 // the time overflowed
	}
	return from
}
