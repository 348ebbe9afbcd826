package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// docs/protocol.md section 3.10 says what a bucket counts of a sliding window or a calendar. A token is
// charged when it is reported as spent, or when the lease that holds it ends, so never before it was spent;
// from then on it counts for as long as the window is. Until then it is in the ledger. So the tokens that
// were admitted within a window, and those held, are never more than those charged and those leased together.

// windowSlots are the cells that may be live at once: those that a window covers, one in part.
const windowSlots = lease.WindowCells + 1

// window has the charges of one limit. Times are the bucket's running time.
type window struct {
	sum int64 // of all live cells, tokens

	// Of a sliding window: cell j covers [j*Cell, (j+1)*Cell), and is in cells[j mod windowSlots].
	first int64 // the oldest cell that is live
	cells [windowSlots]int64

	// Of a calendar: the number of the period, by the server's clock, and when that began.
	period int64
	begun  int64
}

func (w *window) slot(j int64) *int64 { return &w.cells[j%windowSlots] }

// advance lets time pass up to now, when the server's clock says clock. A cell is dropped when all
// of it is older than the window, and a calendar begins anew at the boundary. A clock that steps
// back leaves the period that has begun, or makes it the next one: a clock that was a year ahead
// would leave one N for a year.
func (w *window) advance(sc *lease.Scale, now, clock int64) {
	if sc.Kind == lease.KindCalendar {
		if p := exact.FloorDiv(clock-sc.Offset, sc.Tick); p > w.period {
			w.sum, w.period = 0, p
			w.begun = now - (clock - sc.Offset - p*sc.Tick)
		} else {
			w.period = min(w.period, p+1)
		}
		return
	}
	first := max(0, exact.FloorDiv(now-sc.Tick, sc.Cell))
	for j := max(w.first, first-windowSlots); j < first; j++ {
		w.sum -= *w.slot(j)
		*w.slot(j) = 0
	}
	w.first = max(w.first, first)
}

// charge counts n tokens at the time at, now or up to which w was advanced, and forgets an excess.
func (w *window) charge(sc *lease.Scale, at, n int64) {
	n = max(0, min(n, exact.MaxUnits-1-w.sum))
	w.sum += n
	if sc.Kind == lease.KindSliding {
		*w.slot(at / sc.Cell) += n
	}
}

// uncharge takes up to n tokens from the oldest live cells, and says how many. From a newer cell
// they would be missing for longer than the spending that stands there counts.
func (w *window) uncharge(sc *lease.Scale, n int64) int64 {
	n = min(n, w.sum)
	w.sum -= n
	if sc.Kind == lease.KindSliding {
		for j, left := w.first, n; left > 0; j++ {
			took := min(left, *w.slot(j))
			*w.slot(j) -= took
			left -= took
		}
	}
	return n
}

// covers reports whether what was charged at the running time at, or later, is still counted.
func (w *window) covers(sc *lease.Scale, at int64) bool {
	if sc.Kind == lease.KindCalendar {
		return at >= w.begun
	}
	return at/sc.Cell >= w.first
}

// boundary is when the period of a calendar ends, by the server's clock.
func (w *window) boundary(sc *lease.Scale) int64 { return (w.period+1)*sc.Tick + sc.Offset }

// useUp charges total tokens at the time at, or what was charged if that is more, and none elsewhere.
func (w *window) useUp(sc *lease.Scale, at, total int64) {
	total = max(total, w.sum)
	w.sum, w.cells = 0, [windowSlots]int64{}
	w.charge(sc, at, total)
}

// dropsAt is when missing tokens will have been dropped, or all if fewer; 0 where nothing is charged.
func (w *window) dropsAt(sc *lease.Scale, missing int64) int64 {
	last := int64(0)
	for j := w.first; j < w.first+windowSlots && missing > 0; j++ {
		if n := *w.slot(j); n > 0 {
			last = (j+1)*sc.Cell + sc.Tick
			missing -= n
		}
	}
	return last
}

func (w *window) restore(sc *lease.Scale, d *WindowDump) {
	switch sc.Kind {
	case lease.KindSliding:
		w.sum, w.cells = d.Sum, d.Cells
	case lease.KindCalendar:
		w.sum, w.period, w.begun = d.Sum, d.Period, d.Begun
	}
}

func (w *window) dump(sc *lease.Scale) WindowDump {
	switch sc.Kind {
	case lease.KindSliding:
		return WindowDump{Sum: w.sum, Cells: w.cells}
	case lease.KindCalendar:
		return WindowDump{Sum: w.sum, Period: w.period, Begun: w.begun}
	default:
		return WindowDump{}
	}
}
