package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is docs/protocol.md section 3.10: what a bucket counts of a sliding window or a
// calendar. A token is charged when it is reported as spent, or when the lease that holds it ends,
// so never before it was spent; from then on it counts for as long as the window is. Until then it
// is in the ledger. So what was admitted within a window, and what is held, is never more than is
// charged and leased together.

// windowSlots are the cells that may be live at once: those that a window's length covers, and the
// one that it covers in part.
const windowSlots = lease.WindowCells + 1

// window is what was charged to one limit. Times are the bucket's running time.
type window struct {
	sum int64 // of all live cells, tokens

	// Of a sliding window: cell j covers [j*Cell, (j+1)*Cell), and is in cells[j mod windowSlots].
	first int64 // the oldest cell that is live
	cells [windowSlots]int64

	// Of a calendar: the number of the period, by the server's clock, and when that began.
	period int64
	begun  int64
}

// slot is where cell j is kept.
func (w *window) slot(j int64) *int64 { return &w.cells[j%windowSlots] }

// advance lets time pass up to now, when the server's clock says clock. A cell is dropped when all
// of it is older than the window, and a calendar begins anew at the boundary. A clock that steps
// back does not bring back an earlier period.
func (w *window) advance(sc *lease.Scale, now, clock int64) {
	if sc.Kind == lease.KindCalendar {
		if p := exact.FloorDiv(clock-sc.Offset, sc.Tick); p > w.period {
			w.sum, w.period = 0, p
			w.begun = now - (clock - sc.Offset - p*sc.Tick)
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

// charge counts n tokens at the time at, which is now or a moment up to which w was advanced. More
// than can be counted is forgotten.
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

// ahead returns the time until the server's clock, which shows shown, reaches the period that w counts.
// It is positive only after a step back of at most stepBackMax: the clock then runs through an earlier
// period once more, and that one has been given already.
func (w *window) ahead(sc *lease.Scale, shown int64) int64 {
	left := w.boundary(sc) - sc.Tick - shown
	if sc.Kind != lease.KindCalendar || left > exact.Micros(stepBackMax) {
		return 0
	}
	return max(0, left)
}

// ends returns the time from which the server's clock cannot step back into the period of a calendar.
func (w *window) ends(sc *lease.Scale) int64 { return w.boundary(sc) + exact.Micros(stepBackMax) }

// boundary is when the period of a calendar ends, by the server's clock.
func (w *window) boundary(sc *lease.Scale) int64 { return (w.period+1)*sc.Tick + sc.Offset }

// useUp charges total tokens at the time at, or what was charged already if that is more, and
// nothing elsewhere.
func (w *window) useUp(sc *lease.Scale, at, total int64) {
	total = max(total, w.sum)
	w.sum, w.cells = 0, [windowSlots]int64{}
	w.charge(sc, at, total)
}

// dropsAt is when missing tokens will have been dropped, or all if they are fewer; 0 where nothing
// is charged.
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

// free is what limit k has while ledger tokens are held, in units: its level, or what a window has
// left. That is negative where more was used than a changed limit allows, or than was reserved.
// A window has nothing while a loss is waited out, since its use is unknown, and a calendar has nothing
// while the clock is before its period.
func (b *Bucket) free(k int, ledger int64) int64 {
	w, sc := b.windows[k], &b.scales[k]
	if w == nil {
		return b.level[k]
	}
	n := min(sc.Capacity, sc.Capacity+b.config.Overcommit-ledger-w.sum)
	if b.now < b.frozen || w.ahead(sc, b.shown) > 0 {
		n = min(n, 0)
	}
	return n
}

// advanceWindows lets time pass up to at, when the server's clock says clock, and charges what a
// slice of the ring held that ends then: it may have been spent up to this moment.
func (b *Bucket) advanceWindows(at, clock, held int64) {
	for k, w := range b.windows {
		if w != nil {
			w.advance(&b.scales[k], at, clock)
			w.charge(&b.scales[k], at, held)
		}
	}
}

// chargeWindows charges n tokens that are reported as spent, or admitted, now.
func (b *Bucket) chargeWindows(n int64) {
	for k, w := range b.windows {
		if w != nil {
			w.charge(&b.scales[k], b.now, n)
		}
	}
}

// useUpWindows leaves nothing of any window at the time at: with StartEmpty, when a bucket begins,
// and when the leases of a lost one have ended, which may all have been spent in the last moment.
func (b *Bucket) useUpWindows(at int64) {
	for k, w := range b.windows {
		if w != nil {
			sc := &b.scales[k]
			w.useUp(sc, at, max(0, sc.Capacity+b.config.Overcommit-b.ring.ledger()))
		}
	}
}

// thaw is the moment from which levels refill again after a loss, if that is within (from, to]. The
// server's clock says clock at to.
func (b *Bucket) thaw(from, to, clock int64) {
	if b.frozen <= from || b.frozen > to || !b.config.StartEmpty {
		return
	}
	b.advanceWindows(b.frozen, clock-(to-b.frozen), 0)
	b.useUpWindows(b.frozen)
}

// creditWindow is step 6 for window k, and says how much a refund was worth.
func (b *Bucket) creditWindow(k int, r *lease.Request, known bool) (refunded int64) {
	w, sc := b.windows[k], &b.scales[k]
	if known {
		if r.Drawn > b.setAt && r.Drawn <= b.now && w.covers(sc, r.Drawn) {
			w.uncharge(sc, r.Unused)
		}
		refunded = w.uncharge(sc, r.Refund)
	}
	w.charge(sc, b.now, min(r.Debt, max(0, b.free(k, b.ring.ledger()))))
	w.charge(sc, b.now, r.Charge)
	return refunded
}

// windowWait is the microseconds until window k has n tokens if nobody draws, or all that it has:
// when enough of the oldest cells will have been dropped, or at the boundary of a calendar. What
// others hold may come back at any time; where only that is missing, a Target is a good guess.
func (b *Bucket) windowWait(k int, n int64) int64 {
	w, sc := b.windows[k], &b.scales[k]
	wait := max(0, b.frozen-b.now, w.ahead(sc, b.shown))
	missing := min(n, sc.Capacity) - min(sc.Capacity, sc.Capacity+b.config.Overcommit-b.ring.ledger()-w.sum)
	switch at := w.dropsAt(sc, missing); {
	case missing <= 0:
		return wait
	case sc.Kind == lease.KindCalendar:
		return max(wait, w.boundary(sc)-b.shown)
	case at == 0:
		return max(wait, exact.Micros(b.config.Target))
	default:
		return max(wait, at-b.now)
	}
}

// levelUnit is the units of level k in a token; 0 for a window, which has no level.
func (b *Bucket) levelUnit(k int) int64 {
	if b.windows[k] != nil {
		return 0
	}
	return b.scales[k].Unit
}
