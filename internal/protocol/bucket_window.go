package protocol

import (
	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// free returns the units that limit k has while ledger tokens are held: its level, or what a window has
// left. That is negative where more was used than a changed limit allows, or than was reserved. A window has
// nothing while a loss is waited out, since its use is unknown.
func (b *Bucket) free(k int, ledger int64) int64 {
	w, sc := b.windows[k], &b.scales[k]
	if w == nil {
		return b.level[k]
	}
	n := min(sc.Capacity, sc.Capacity+b.config.Overcommit-ledger-w.sum)
	if b.now < b.frozen {
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

// useUpWindows leaves nothing of any window: with StartEmpty, when a bucket begins, is reset or was lost.
func (b *Bucket) useUpWindows() {
	for k, w := range b.windows {
		if w != nil {
			w.useUp(&b.scales[k], b.now, max(0, b.scales[k].Capacity+b.config.Overcommit-b.ring.ledger()))
		}
	}
}

// lateWindow is step 6 for window k and one entry: it counts only what the window still counts of that time.
func (b *Bucket) lateWindow(k int, l *lease.Late, known bool) {
	w, sc := b.windows[k], &b.scales[k]
	used := max(0, b.now-exact.Micros(l.Age))
	back := known && l.Drawn <= b.now && w.covers(sc, l.Drawn)
	switch {
	case l.Kind == lease.LateUnused && back && l.Drawn > b.setAt:
		w.uncharge(sc, l.Tokens)
	case l.Kind == lease.LateRefund && back:
		b.refunded[k] += w.uncharge(sc, l.Tokens)
	case l.Kind == lease.LateDebt && w.covers(sc, used):
		w.charge(sc, used, min(l.Tokens, max(0, b.free(k, b.ring.ledger()))))
	case l.Kind == lease.LateCharge && w.covers(sc, used):
		w.charge(sc, used, l.Tokens)
	}
}

// windowWait is the microseconds until window k has n tokens, or all of its own, without further draws: when
// enough of the oldest cells will have been dropped, or at the boundary of a calendar. Tokens of other
// holders may come back at any time; where only that is missing, a Target is a good guess.
func (b *Bucket) windowWait(k int, n int64) int64 {
	w, sc := b.windows[k], &b.scales[k]
	wait := max(0, b.frozen-b.now)
	missing := min(n, sc.Capacity) - min(sc.Capacity, sc.Capacity+b.config.Overcommit-b.ring.ledger()-w.sum)
	switch at := w.dropsAt(sc, missing); {
	case missing <= 0:
		return wait
	case sc.Kind == lease.KindCalendar:
		return max(wait, w.boundary(sc)-b.clock)
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
