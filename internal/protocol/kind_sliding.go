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

// cells returns the cells of a sliding window.
func (w *window) cells() *cells { return w.past.(*cells) }

func (slidingKind) timeFor(lease.Limit, int64) time.Duration { return 0 }

// reset returns a window and a cell: the latest charges are dropped by then.
func (slidingKind) reset(l lease.Limit, _ time.Duration) time.Duration { return l.TimeToFull() }

// reportIn returns a short time, because spending counts for a window from its report on.
func (slidingKind) reportIn(l lease.Limit, _ float64) time.Duration { return l.Per / 128 }

// counts uses cells at fixed times: by age alone, each token would at some time count like its neighbour. A
// token that another clock may count a cell longer counts longer here too.
func (slidingKind) counts(l lease.Limit, now, age int64, _ bool) int64 {
	cell := max(1, exact.Micros(l.Per)/exact.WindowCells)
	return max(0, windowSlots+1+exact.FloorDiv(now-age, cell)-exact.FloorDiv(now, cell))
}

func (slidingKind) usedAt(_ lease.Limit, replied int64, _ time.Duration) int64 { return replied }

// slides reports whether one of limits is a sliding window. A lease then follows the mean demand, and
// spending is reported soon, as it counts for a window from its report on.
func slides(limits []lease.Limit) bool {
	return slices.ContainsFunc(limits, func(l lease.Limit) bool { return l.Kind == lease.KindSliding })
}

// windowSlots is the number of cells that may be live at once: a window covers WindowCells, and part of one
// more.
const windowSlots = exact.WindowCells + 1

// cells has the charges of a sliding window. Cell j covers [j*Cell, (j+1)*Cell) and is in slot j mod
// windowSlots.
type cells struct {
	first int64 // the oldest live cell
	slots [windowSlots]int64
}

func (c *cells) slot(j int64) *int64 { return &c.slots[j%windowSlots] }

func (c *cells) clone() past {
	o := *c
	return &o
}

func (c *cells) clear() { c.slots = [windowSlots]int64{} }

// pass drops each cell that is older than the window.
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

// next returns a Target if nothing is charged: only leases are missing, which may come back at any time.
func (c *cells) next(w *window, m *moment, missing int64) int64 {
	if at := c.dropAt(w, missing); at > 0 {
		return at - m.now
	}
	return w.target
}

// dropAt returns when missing tokens will have been dropped, or all if fewer; 0 if nothing is charged.
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
