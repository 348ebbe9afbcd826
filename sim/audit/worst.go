package audit

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// A Span is one admission of N tokens at an unknown time in [Before, After]. Times are nanoseconds on any
// single clock, and may be negative.
type Span struct {
	Before, After int64
	N             int64
}

// A Window is a closed interval of time with the tokens admitted in the interval.
type Window struct {
	From, To   int64   // ns, on the clock of the spans
	Admitted   int64   // tokens certainly admitted in [From, To]
	Bound      float64 // Burst + Overcommit + R*(To-From) in tokens, rounded: for display only
	ExceededBy int64   // tokens beyond the bound, rounded up; 0 if the bound holds
}

// Worst returns the window that maximises
//
//	count(s, e) - R*(e-s) - (Burst + Overcommit)
//	count(s, e) = sum of N with Before >= s and After <= e
//
// over all s <= e. For a sliding window, Worst considers only windows of the limit's length, and for a
// calendar only its periods. Worst counts only spans that certainly lie inside a window, so an excess is
// proof: no choice of times within the spans keeps the promise. Wide spans can hide an excess.
//
// A closed window is as strict as the half-open one of (1): an admission at s lies in (s-d, e] for all d > 0.
//
// If several windows are equally bad, Worst returns the first to end, and among these the longest. Worst
// returns the zero Window if no token was admitted. The error wraps ErrBound for an invalid bound, and
// ErrSpan for a span with After < Before or N < 0, and if the sum of N or the covered time overflows an
// int64. Worst needs O(n log n) time and about 100 bytes per span.
func Worst(spans []Span, l Bound) (Window, error) {
	if err := l.Validate(); err != nil {
		return Window{}, err
	}
	starts, err := admissions(spans)
	if err != nil || len(starts) == 0 {
		return Window{}, err
	}
	slices.SortFunc(starts, func(a, b Span) int { return cmp.Compare(a.Before, b.Before) })
	ends := make([]int, len(starts)) // positions in starts, ordered by After
	for i := range ends {
		ends[i] = i
	}
	slices.SortFunc(ends, func(a, b int) int { return cmp.Compare(starts[a].After, starts[b].After) })
	if l.windowed() {
		return l.worstWindow(starts, ends), nil
	}

	// Some worst window starts at the Before of a span inside it and ends at the After of a span: moving the
	// ends of any window to such times keeps its count and shortens it. The loop therefore moves the end
	// through the Afters, and the tree chooses the start among the spans counted so far.
	r := l.rate()
	t := newTree(len(starts), r)
	var worst Window
	for k, i := range ends {
		now := starts[i].After
		t.count(i, starts[i])
		if k+1 < len(ends) && starts[ends[k+1]].After == now {
			continue // the window must include all spans that end at the time now
		}
		best := t.best()
		length := now - best.from
		if worst.Admitted == 0 || !r.covers(worst.Admitted-best.tail, worst.To-worst.From-length) {
			worst = Window{From: best.from, To: now, Admitted: best.tail}
		}
	}
	return l.judge(worst.From, worst.To, worst.Admitted), nil
}

// admissions copies the spans with admissions, and checks the conditions for exact results.
func admissions(spans []Span) ([]Span, error) {
	kept := make([]Span, 0, len(spans))
	first, last, sum := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
	for i, s := range spans {
		if s.After < s.Before || s.N < 0 || s.N > math.MaxInt64-sum {
			return nil, fmt.Errorf("%w: number %d is %+v: After must be Before or later, N 0 or more, and the sum of "+
				"N at most %d", ErrSpan, i, s, int64(math.MaxInt64))
		}
		if s.N == 0 {
			continue
		}
		kept = append(kept, s)
		sum += s.N
		first, last = min(first, s.Before), max(last, s.After)
	}
	// A negative last-first means overflow, because last >= first.
	if len(kept) > 0 && last-first < 0 {
		return nil, fmt.Errorf("%w: the spans cover [%d, %d], more than %d ns",
			ErrSpan, first, last, int64(math.MaxInt64))
	}
	return kept, nil
}

// tree finds, for a moving end of the window, the start with the most tokens net of the refill.
//
// tree is a segment tree over the spans in order of Before. A node has the start p with the largest sum(N at
// positions >= p) + R*Before[p]. The node keeps the two terms apart, so that rate.covers compares two starts
// exactly. Only counted spans are starts: another start would get the same tokens as the next counted start,
// in a longer window.
type tree struct {
	rate   rate
	nodes  []node // nodes[1] is the root, the children of i are 2i and 2i+1
	leaves int    // a power of two, because the order of combination matters
}

// node describes the counted spans below the node. The zero node has no counted span.
type node struct {
	sum  int64 // total N
	tail int64 // total N at and after the best start
	from int64 // the best start, ns
}

func newTree(spans int, r rate) *tree {
	leaves := 1 << bits.Len(uint(spans-1))
	return &tree{rate: r, nodes: make([]node, 2*leaves), leaves: leaves}
}

// count adds s, which is at position i.
func (t *tree) count(i int, s Span) {
	at := t.leaves + i
	t.nodes[at] = node{s.N, s.N, s.Before}
	for at /= 2; at >= 1; at /= 2 {
		t.nodes[at] = t.join(t.nodes[2*at], t.nodes[2*at+1])
	}
}

// best returns the best start of a window that ends where the last counted span ends.
func (t *tree) best() node { return t.nodes[1] }

// join combines two adjacent nodes, l before r. If two starts are equally good, join keeps the earlier start,
// which has the longer window.
func (t *tree) join(l, r node) node {
	if l.sum == 0 {
		return r
	}
	if r.sum == 0 {
		return l
	}
	n := node{l.sum + r.sum, l.tail + r.sum, l.from}
	if !t.rate.covers(n.tail-r.tail, r.from-n.from) {
		n.tail, n.from = r.tail, r.from
	}
	return n
}
