package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// free returns the units that limit k has while ledger tokens are held: its level, or what a window has
// left. That is negative where more was used than a changed limit allows, or than was reserved. A window has
// nothing while a loss is waited out, since its use is unknown, and a calendar has nothing while the clock
// is before its period.
func (b *Bucket) free(k int, ledger int64) int64 {
	w, sc := b.windows[k], &b.scales[k]
	if w == nil {
		return b.level[k]
	}
	n := min(sc.Capacity, sc.Capacity+b.config.Overcommit-ledger-w.sum)
	if b.now < b.frozen || w.ahead(sc, b.shown) > 0 {
		n = min(n, 0)
	}
	if b.waitsEmpty() && !w.covers(sc, b.setAt) {
		n = min(n, -w.sum) // see useUpWindows
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

func (b *Bucket) waitsEmpty() bool { return b.config.StartEmpty && b.now < b.frozen }

// useUpWindows leaves nothing of any window at the time at: with StartEmpty, when a bucket begins,
// and when the leases of a lost one have ended, which may all have been spent in the last moment.
// They were used up at the time before, too. Once that has been dropped, what is charged is an overshoot
// since then, which comes on top of the leases.
func (b *Bucket) useUpWindows(at, before int64) {
	for k, w := range b.windows {
		if w != nil {
			sc := &b.scales[k]
			total := max(0, sc.Capacity+b.config.Overcommit-b.ring.ledger())
			if !w.covers(sc, before) {
				total += w.sum
			}
			w.useUp(sc, at, total)
		}
	}
}

// thaw ends the wait after a loss, if that is within (from, to]. The server's clock says clock at to.
func (b *Bucket) thaw(from, to, clock int64) {
	if b.frozen <= from || b.frozen > to || !b.config.StartEmpty {
		return
	}
	b.advanceWindows(b.frozen, clock-(to-b.frozen), 0)
	b.useUpWindows(b.frozen, b.setAt)
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

// windowWait is the microseconds until window k has n tokens, or all of its own, without further draws: when
// enough of the oldest cells will have been dropped, or at the boundary of a calendar. Tokens of other
// holders may come back at any time; where only that is missing, a Target is a good guess.
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

// Windows whose limits change: docs/protocol.md section 6.11. Used tokens stay used.

// rescale follows a change to a valid configuration. Windows begin with nothing charged.
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
			room := max(0, osc.Capacity+was.config.Overcommit-was.ring.ledger())
			w.charge(sc, b.now, room-exact.FloorDiv(was.levelLeft(from), osc.Unit))
		case osc.Kind == lease.KindSliding && sc.Kind == lease.KindSliding && osc.Tick != sc.Tick:
			w.recount(sc, old, osc, b.now)
		case !same(was.config.Limits[from], osc, b.config.Limits[k], sc):
			w.charge(sc, b.now, old.sum)
		}
	}
	known, owed := false, was.owes(from) // what is owed is not part of what was forgotten
	if p := b.pastOf(k); p != nil {
		own := p.window
		own.advance(sc, b.now, b.clock)
		w.atLeast(sc, &own)
		known = true
	}
	for i, old := range was.windows {
		if old != nil && same(was.config.Limits[i], &was.scales[i], b.config.Limits[k], sc) {
			w.atLeast(sc, old)
			owed = max(owed, was.owes(i))
			raised := sc.Capacity+b.config.Overcommit > was.scales[i].Capacity+was.config.Overcommit
			known = known || !b.config.StartEmpty || !raised
		}
	}
	if !known && b.forgotAt > 0 && w.covers(sc, b.forgotAt) {
		if sc.Kind == lease.KindCalendar { // the next period too
			w.period = max(w.period, exact.FloorDiv(b.clock+max(0, b.forgotAt-b.now)-sc.Offset, sc.Tick))
		}
		w.charge(sc, min(b.forgotAt, b.now), sc.Capacity+b.config.Overcommit+owed-w.sum)
	}
}

// owes returns the tokens by which limit k is below 0; 0 for -1.
func (b *Bucket) owes(k int) int64 {
	if k < 0 {
		return 0
	}
	return max(0, -exact.FloorDiv(b.free(k, b.ring.ledger()), b.scales[k].Unit))
}
