package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

type slidingKind struct{}

func (slidingKind) tally(sp spec) tally { return newSliding(sp) }

func newSliding(sp spec) *window { return &window{spec: sp, past: new(cells)} }

// cells are those of a window that slides.
func (w *window) cells() *cells { return w.past.(*cells) }

func (slidingKind) timeFor(lease.Limit, int64) time.Duration { return 0 }

// reset is a window and a cell from now: no later are the charges of now dropped.
func (slidingKind) reset(l lease.Limit, _ time.Duration) time.Duration { return l.TimeToFull() }

// reportIn is soon, as what was spent counts from its report on, for as long as the window is.
func (slidingKind) reportIn(l lease.Limit, _ float64) time.Duration { return l.Per / 128 }

// counts takes cells that stand still: by its age alone, every token would at some time count as its neighbour
// does. What may count a cell longer by another clock counts here.
func (slidingKind) counts(l lease.Limit, now, age int64, _ bool) int64 {
	cell := max(1, exact.Micros(l.Per)/lease.WindowCells)
	return max(0, windowSlots+1+exact.FloorDiv(now-age, cell)-exact.FloorDiv(now, cell))
}

func (slidingKind) usedAt(_ lease.Limit, replied int64, _ time.Duration) int64 { return replied }

// slides reports whether one of limits is a sliding window. Then a lease follows the mean demand,
// and what was spent is reported soon: it counts from the report on, for as long as the window is.
func slides(limits []lease.Limit) bool {
	return slices.ContainsFunc(limits, func(l lease.Limit) bool { return l.Kind == lease.KindSliding })
}

// windowSlots are the cells that may be live at once: those that a window covers, one in part.
const windowSlots = lease.WindowCells + 1

// cells are the charges of a sliding window. Cell j covers [j*Cell, (j+1)*Cell), and is in slot j mod
// windowSlots.
type cells struct {
	first int64 // the oldest cell that is live
	slots [windowSlots]int64
}

func (c *cells) slot(j int64) *int64 { return &c.slots[j%windowSlots] }

func (c *cells) clone() past {
	o := *c
	return &o
}

func (c *cells) clear() { c.slots = [windowSlots]int64{} }

// pass drops a cell when all of it is older than the window.
func (c *cells) pass(w *window, m *moment) {
	first := max(0, exact.FloorDiv(m.now-w.Tick, w.Cell))
	for j := max(c.first, first-windowSlots); j < first; j++ {
		w.sum -= *c.slot(j)
		*c.slot(j) = 0
	}
	c.first = max(c.first, first)
}

func (c *cells) add(w *window, at, n int64) { *c.slot(at / w.Cell) += n }

func (c *cells) remove(n int64) {
	for j, left := c.first, n; left > 0; j++ {
		took := min(left, *c.slot(j))
		*c.slot(j) -= took
		left -= took
	}
}

func (c *cells) covers(w *window, at int64) bool { return at/w.Cell >= c.first }

// next is a Target where nothing is charged: then only leases are missing, which may come back at any time.
func (c *cells) next(w *window, m *moment, missing int64) int64 {
	if at := c.dropAt(w, missing); at > 0 {
		return at - m.now
	}
	return w.target
}

// dropAt is when missing tokens will have been dropped, or all if fewer; 0 where nothing is charged.
func (c *cells) dropAt(w *window, missing int64) (last int64) {
	for j := c.first; j < c.first+windowSlots && missing > 0; j++ {
		if n := *c.slot(j); n > 0 {
			last = (j+1)*w.Cell + w.Tick
			missing -= n
		}
	}
	return last
}

func (c *cells) dump(d *WindowDump) { d.Cells = c.slots }

func (c *cells) restore(d *WindowDump) { c.slots = d.Cells }
