package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// What becomes of windows when the limits change: docs/protocol.md section 6.11. What was used
// stays used.

// rescale follows a change of configuration, which has been validated. Windows begin with nothing
// charged.
func (b *Bucket) rescale() {
	for k, l := range b.config.Limits {
		b.scales[k], _ = l.Scale(b.config.Overcommit)
	}
	b.windows = [lease.LimitsMax]*window{}
	for k := range b.config.Limits {
		if sc := &b.scales[k]; sc.Kind != lease.KindBucket {
			b.windows[k] = &window{period: -2}
			b.windows[k].advance(sc, b.now, b.clock)
		}
	}
}

// restore sets the windows and the pasts of b, whose configuration is set, from d.
func (b *Bucket) restore(d *BucketDump) {
	for k, w := range b.windows {
		if w != nil {
			w.restore(&b.scales[k], &d.Windows[k])
		}
	}
	for _, one := range d.Pasts {
		p := past{limit: one.Limit, scale: one.Scale, over: one.Over, used: one.Used, at: one.At}
		p.restore(&p.scale, &one.Window)
		if p.scale.Kind == lease.KindSliding {
			p.first = max(0, exact.FloorDiv(p.at-p.scale.Tick, p.scale.Cell))
		}
		b.pasts = append(b.pasts, p)
	}
}

func (w *window) restore(sc *lease.Scale, d *WindowDump) {
	switch sc.Kind {
	case lease.KindSliding:
		w.sum, w.cells = d.Sum, d.Cells
	case lease.KindCalendar:
		w.sum, w.period, w.begun = d.Sum, d.Period, d.Begun
	}
}

// copied is b with windows of its own, to go back to.
func (b *Bucket) copied() Bucket {
	c := *b
	for k, w := range c.windows {
		if w != nil {
			own := *w
			c.windows[k] = &own
		}
	}
	return c
}

// inheritWindow charges window k, which is new, with the use of limit from of was; -1 for none. The
// window counts no less than by its own past, and all of it if that was forgotten. With StartEmpty a
// window that goes on with a larger N or E counts as forgotten too: a lost bucket may have had these,
// and may have given the difference.
func (b *Bucket) inheritWindow(was *Bucket, from, k int) {
	w, sc := b.windows[k], &b.scales[k]
	if from >= 0 {
		old, osc := was.windows[from], &was.scales[from]
		switch {
		case old == nil:
			used := osc.Capacity + was.config.Overcommit - was.ring.ledger() - exact.FloorDiv(was.levelLeft(from), osc.Unit)
			w.charge(sc, b.now, used)
		case osc.Kind == lease.KindSliding && sc.Kind == lease.KindSliding && osc.Tick != sc.Tick:
			w.recount(sc, old, osc, b.now)
		case !same(was.config.Limits[from], osc, b.config.Limits[k], sc):
			w.charge(sc, b.now, old.sum)
		}
	}
	known := false
	if p := b.pastOf(k); p != nil {
		own := p.window
		own.advance(sc, b.now, b.clock)
		w.atLeast(sc, &own)
		known = true
	}
	for i, old := range was.windows {
		if old != nil && same(was.config.Limits[i], &was.scales[i], b.config.Limits[k], sc) {
			w.atLeast(sc, old)
			raised := sc.Capacity+b.config.Overcommit > was.scales[i].Capacity+was.config.Overcommit
			known = known || !b.config.StartEmpty || !raised
		}
	}
	if !known && b.forgotAt > 0 && w.covers(sc, b.forgotAt) {
		if sc.Kind == lease.KindCalendar { // the next period too
			w.period = max(w.period, exact.FloorDiv(b.clock+max(0, b.forgotAt-b.now)-sc.Offset, sc.Tick))
		}
		w.charge(sc, min(b.forgotAt, b.now), sc.Capacity+b.config.Overcommit-w.sum)
	}
}

// recount charges what old counts in its cells to those of another length: all of a cell at its
// end, since nothing in it was spent later than that.
func (w *window) recount(sc *lease.Scale, old *window, osc *lease.Scale, now int64) {
	for j := old.first; j < old.first+windowSlots; j++ {
		at := min((j+1)*osc.Cell-1, now)
		if n := *old.slot(j); n > 0 && w.covers(sc, at) {
			w.charge(sc, at, n)
		}
	}
}
