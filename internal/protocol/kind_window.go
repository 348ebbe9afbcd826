package protocol

import (
	"slices"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// windowSlots is the largest number of live cells: a window covers one of them in part.
const windowSlots = exact.WindowCells + 1

// window is the tally of a sliding window or a calendar: docs/protocol.md section 3.10. A leased token stays
// in the ledger until it is charged: with the report of its spending, or when its lease ends.
type window struct {
	spec
	sum int64 // charged tokens that still count

	// Cell j of a sliding window covers [j*Cell, (j+1)*Cell) and is in slot j mod windowSlots.
	cells []int64 // nil for a calendar
	first int64   // the oldest live cell

	// the number of a calendar's period by the server's clock, and the running time of its beginning
	period, begun int64
}

func newWindow(sp spec) *window {
	w := &window{spec: sp}
	if sp.Cell > 0 {
		w.cells = make([]int64, windowSlots)
	}
	w.clear()
	return w
}

func (w *window) clear() {
	w.sum = 0
	if clear(w.cells); w.cells == nil {
		w.period = -2
	}
}

func (w *window) slot(j int64) *int64 { return &w.cells[j%windowSlots] }

func (w *window) clone() tally {
	c := *w
	c.cells = slices.Clone(w.cells)
	return &c
}

func (w *window) begin(m *moment, full bool) {
	w.clear()
	w.pass(m, 0)
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
	w.sum, w.first, w.cells, w.period, w.begun = o.sum, o.first, slices.Clone(o.cells), o.period, o.begun
}

// freeze uses the window up if StartEmpty is set. In any case free stops grants during a freeze.
func (w *window) freeze(m *moment, startEmpty bool) {
	if startEmpty {
		w.useUp(m)
	}
}

// useUp charges all tokens that are not leased, but no fewer than were charged before.
func (w *window) useUp(m *moment) {
	total := max(0, w.most-m.ledger, w.sum)
	w.uncharge(w.sum)
	w.charge(m.now, total)
}

// pass drops each cell that is older than the window, or starts a calendar's next period at the boundary.
// After a clock that was a year ahead, a calendar must not stay in one period for a year.
func (w *window) pass(m *moment, _ int64) {
	if w.cells == nil {
		since := m.clock - w.Offset
		n := exact.FloorDiv(since, w.Tick)
		if n <= w.period {
			w.period = min(w.period, n+1)
			return
		}
		w.sum, w.period, w.begun = 0, n, m.now-(since-n*w.Tick)
		return
	}
	first := max(0, exact.FloorDiv(m.now-w.Tick, w.Cell))
	for j := max(w.first, first-windowSlots); j < first; j++ {
		w.sum -= *w.slot(j)
		*w.slot(j) = 0
	}
	w.first = max(w.first, first)
}

func (w *window) clip(*moment) {}

// free returns a negative number after an overshoot or a cut of the limit. The spending before a loss is
// unknown, so that free returns at most 0 during a freeze.
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

// charge counts n tokens as spent at the time at, up to the largest exact sum.
func (w *window) charge(at, n int64) {
	if n = min(n, exact.MaxUnits-1-w.sum); n > 0 {
		w.sum += n
		if w.cells != nil {
			*w.slot(at / w.Cell) += n
		}
	}
}

// uncharge drops up to n charged tokens, the oldest first (3.10), and returns their number.
func (w *window) uncharge(n int64) int64 {
	n = min(n, w.sum)
	w.sum -= n
	for j, left := w.first, n; left > 0 && w.cells != nil; j++ {
		took := min(left, *w.slot(j))
		*w.slot(j) -= took
		left -= took
	}
	return n
}

func (w *window) covers(at int64) bool {
	if w.cells == nil {
		return at >= w.begun
	}
	return at/w.Cell >= w.first
}

func (w *window) back(*moment, int64) {}

// late applies the late entry l only if the window still counts charges of the entry's time.
func (w *window) late(m *moment, l *lease.Late, known bool) (refunded int64) {
	used := max(0, m.now-exact.Micros(l.Age))
	back := known && l.Drawn <= m.now && w.covers(l.Drawn)
	switch {
	case l.Kind == lease.LateUnused && back && l.Drawn > m.setAt:
		w.uncharge(l.Tokens)
	case l.Kind == lease.LateRefund && back:
		return w.uncharge(l.Tokens)
	case l.Kind == lease.LateDebt && w.covers(used):
		w.charge(used, min(l.Tokens, max(0, w.free(m))))
	case l.Kind == lease.LateCharge && w.covers(used):
		w.charge(used, l.Tokens)
	}
	return 0
}

func (w *window) wait(m *moment, n int64) int64 {
	wait, missing := max(0, m.frozen-m.now), min(n, w.Capacity)-w.left(m)
	if missing <= 0 {
		return wait
	}
	if w.cells == nil {
		return max(wait, w.boundary()-m.clock)
	}
	if at := w.dropAt(missing); at > 0 {
		return max(wait, at-m.now)
	}
	return max(wait, w.target) // every missing token is leased and may come back at any time
}

// boundary returns the server's time at which a calendar's period ends.
func (w *window) boundary() int64 { return (w.period+1)*w.Tick + w.Offset }

// dropAt returns when missing charged tokens, or all if fewer, will have been dropped; 0 if none are charged.
func (w *window) dropAt(missing int64) (last int64) {
	for j := w.first; j < w.first+windowSlots && missing > 0; j++ {
		if n := *w.slot(j); n > 0 {
			last = (j+1)*w.Cell + w.Tick
			missing -= n
		}
	}
	return last
}

func (w *window) life() int64 { return exact.Micros(w.TimeToFull()) }
