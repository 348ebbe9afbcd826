package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// A window counts spent tokens for as long as it lasts: docs/protocol.md section 3.10. A token is charged
// when it is reported as spent, or when the lease that holds it ends, so never before it is spent. Until then
// it is in the ledger. So the tokens admitted within a window plus those held never exceed those charged plus
// those leased.

// window is the tally of a sliding window and of a calendar. Times are the bucket's running time.
type window struct {
	spec
	sum  int64 // charged tokens that still count
	past past
}

// past records when the tokens of a window were charged.
type past interface {
	clone() past
	clear()
	// pass drops from w the tokens that no longer count.
	pass(w *window, m *moment)
	// add charges n tokens at a time that has passed, and remove drops n charged tokens, the oldest first.
	add(w *window, at, n int64)
	remove(n int64)
	// covers reports whether a charge at a given time or later still counts.
	covers(w *window, at int64) bool
	// next returns the microseconds until missing tokens, or all if fewer, will have been dropped.
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
	return ok && o.limit.Kind == w.limit.Kind && o.Tick == w.Tick && o.Offset == w.Offset
}

func (w *window) follow(old tally, _ bool) {
	o := old.(*window)
	w.sum, w.past = o.sum, o.past.clone()
}

// freeze changes a window only if it starts empty. During the freeze no window grants tokens; see free.
func (w *window) freeze(m *moment, startEmpty bool) {
	if startEmpty {
		w.useUp(m)
	}
}

// useUp charges the whole window now, less the leased tokens, or the tokens charged before if they are more.
func (w *window) useUp(m *moment) {
	total := max(0, w.most-m.ledger, w.sum)
	w.uncharge(w.sum)
	w.charge(m.now, total)
}

func (w *window) pass(m *moment, _ int64) { w.past.pass(w, m) }

func (w *window) clip(*moment) {}

// free returns a negative number if more was used than was reserved, or than a changed limit allows. During a
// freeze it returns at most 0, since the use is unknown.
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

// charge counts n tokens, up to the largest exact count.
func (w *window) charge(at, n int64) {
	if n = min(n, exact.MaxUnits-1-w.sum); n > 0 {
		w.sum += n
		w.past.add(w, at, n)
	}
}

// uncharge drops up to n of the oldest charged tokens and returns the number. Newer charges must stay as long
// as their spending counts.
func (w *window) uncharge(n int64) int64 {
	n = min(n, w.sum)
	w.sum -= n
	w.past.remove(n)
	return n
}

func (w *window) back(*moment, int64) {}

// late counts an entry only if the window still counts its time.
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
