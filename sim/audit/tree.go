package audit

import "math/bits"

// tree answers, for a moving end of the window, which start gathers the most tokens net of what
// flowed in.
//
// It is a segment tree over the spans in order of Before. Where the textbook node holds the best
// value of sum(N at positions >= p) + R*Before[p], this one holds the two parts of that value, so
// that nothing is ever scaled: two candidates are compared by the difference of their counts
// against the difference of their starts, one exact 128-bit comparison (rate.covers), and the
// winning start is known for free.
//
// Only counted spans are candidates. A start at a span that is not counted gathers what the next
// counted start gathers and begins earlier, so it is never better.
//
// Spans with equal Before stand in arbitrary order, and a start at that moment must gather all of
// them. It does: the first counted one of the group gathers the whole group, and the others gather
// less from the same start, so they lose to it.
//
// A leaf covers a block of spans rather than one. That makes the tree a sixteenth of the size, and
// a span in a block needs no mark of its own: it is counted exactly if its After lies in the past.
type tree struct {
	rate   rate
	starts []Span // by Before
	nodes  []node // nodes[1] is the root, the children of i are 2i and 2i+1
	leaves int    // a power of two: the order of combination matters
}

// block balances the scan of a leaf against the height of the tree; 8 to 32 cost about the same.
const block = 16

// node describes the counted spans below it. Its zero value says that there are none.
type node struct {
	sum  int64 // of their N
	tail int64 // of their N from the best start on
	from int64 // the best start, ns
}

func newTree(starts []Span, r rate) *tree {
	blocks := (len(starts) + block - 1) / block
	leaves := 1 << bits.Len(uint(blocks-1))
	return &tree{rate: r, starts: starts, nodes: make([]node, 2*leaves), leaves: leaves}
}

// count takes in the span at position i, whose After is now.
func (t *tree) count(i int, now int64) {
	b := i / block
	at := t.leaves + b
	t.nodes[at] = t.scan(t.starts[b*block:min((b+1)*block, len(t.starts))], now)
	for at /= 2; at >= 1; at /= 2 {
		t.nodes[at] = t.join(t.nodes[2*at], t.nodes[2*at+1])
	}
}

// best returns the best start for a window that ends where the last counted span does.
func (t *tree) best() node { return t.nodes[1] }

// scan builds the node of one block from those of its spans that have ended by now.
func (t *tree) scan(spans []Span, now int64) node {
	var n node
	for i := len(spans) - 1; i >= 0; i-- {
		if s := spans[i]; s.After <= now {
			n = t.join(node{s.N, s.N, s.Before}, n)
		}
	}
	return n
}

// join puts l in front of r. Of two equally good starts it keeps the earlier, longer window.
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
