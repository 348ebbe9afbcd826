package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A window counts what is spent, for as long as it lasts: docs/protocol.md section 3.10. A token is charged when
// it is reported as spent, or when the lease that holds it ends, so never before it was spent; until then it is
// in the ledger. So the tokens that were admitted within a window, and those held, are never more than those
// charged and those leased together.

// window is the tally of a sliding window and of a calendar. Times are the bucket's running time.
type window struct {
	spec
	sum  int64 // what is charged and counts still, in tokens
	past past
}

// past is when the tokens of a window were charged.
type past interface {
	clone() past
	clear()
	// pass drops from w what it counts no more.
	pass(w *window, m *moment)
	// add charges n tokens at a time up to which time has passed, and remove takes n off, the oldest first.
	add(w *window, at, n int64)
	remove(n int64)
	// covers reports whether what was charged at a time, or later, still counts.
	covers(w *window, at int64) bool
	// next is the microseconds until missing tokens, or all if fewer, will have been dropped.
	next(w *window, m *moment, missing int64) int64
	dump(d *WindowDump)
	restore(d *WindowDump)
}

func (w *window) clone() tally {
	c := *w
	c.past = w.past.clone()
	return &c
}

func (w *window) begin(m *moment, full bool) {
	w.sum = 0
	w.past.clear()
	w.past.pass(w, m)
	if !full {
		w.useUp(m)
	}
}

func (w *window) continues(old tally) bool {
	o, ok := old.(*window)
	return ok && o.Kind == w.Kind && o.Tick == w.Tick && o.Offset == w.Offset
}

func (w *window) follow(old tally, _ bool) {
	o := old.(*window)
	w.sum, w.past = o.sum, o.past.clone()
}

// freeze leaves a window as it is, if it does not start empty: it gives nothing while a loss is waited out.
func (w *window) freeze(m *moment, startEmpty bool) {
	if startEmpty {
		w.useUp(m)
	}
}

// useUp has all of the window charged now, but for what is leased, or what was charged if that is more.
func (w *window) useUp(m *moment) {
	total := max(0, w.most-m.ledger, w.sum)
	w.uncharge(w.sum)
	w.charge(m.now, total)
}

func (w *window) pass(m *moment, _ int64) { w.past.pass(w, m) }

func (w *window) clip(*moment) {}

// free is negative where more was used than was reserved, or than a changed limit allows. While a loss is waited
// out it is at most 0, since what was used is not known.
func (w *window) free(m *moment) int64 {
	n := w.left(m)
	if m.now < m.frozen {
		n = min(n, 0)
	}
	return n
}

func (w *window) left(m *moment) int64 { return min(w.Capacity, w.most-m.ledger-w.sum) }

func (w *window) draw(int64) {}

func (w *window) spend(m *moment, n int64) { w.charge(m.now, n) }

// charge counts n tokens, and forgets what would be too many to count.
func (w *window) charge(at, n int64) {
	if n = min(n, exact.MaxUnits-1-w.sum); n > 0 {
		w.sum += n
		w.past.add(w, at, n)
	}
}

// uncharge takes up to n tokens from the oldest that count, and returns how many. From newer ones they would be
// missing for longer than the spending that stands there counts.
func (w *window) uncharge(n int64) int64 {
	n = min(n, w.sum)
	w.sum -= n
	w.past.remove(n)
	return n
}

func (w *window) back(*moment, int64) {}

// late counts only what the window still counts of that time.
func (w *window) late(m *moment, l *lease.Late, known bool) (refunded int64) {
	used := max(0, m.now-exact.Micros(l.Age))
	back := known && l.Drawn <= m.now && w.past.covers(w, l.Drawn)
	switch {
	case l.Kind == lease.LateUnused && back && l.Drawn > m.setAt:
		w.uncharge(l.Tokens)
	case l.Kind == lease.LateRefund && back:
		return w.uncharge(l.Tokens)
	case l.Kind == lease.LateDebt && w.past.covers(w, used):
		w.charge(used, min(l.Tokens, max(0, w.free(m))))
	case l.Kind == lease.LateCharge && w.past.covers(w, used):
		w.charge(used, l.Tokens)
	}
	return 0
}

func (w *window) wait(m *moment, n int64) int64 {
	wait := max(0, m.frozen-m.now)
	if missing := min(n, w.Capacity) - w.left(m); missing > 0 {
		return max(wait, w.past.next(w, m, missing))
	}
	return wait
}

func (w *window) life() int64 { return exact.Micros(w.TimeToFull()) }

func (w *window) dump(k int, d *BucketDump) {
	d.Windows[k].Sum = w.sum
	w.past.dump(&d.Windows[k])
}

func (w *window) restore(k int, d *BucketDump) {
	w.sum = d.Windows[k].Sum
	w.past.restore(&d.Windows[k])
}
