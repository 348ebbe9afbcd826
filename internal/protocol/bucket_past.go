package protocol

import (
	"slices"
	"time"

	"github.com/yuzhi-go/yuzhi/internal/exact"
	"github.com/yuzhi-go/yuzhi/lease"
)

// This file is docs/protocol.md section 6.12: limits that leave and come back.

const (
	// pastsMax is the number of limits out of force that a bucket remembers: those of two configurations.
	pastsMax = 2 * lease.LimitsMax
	// stepBackMax is the longest step back of the server's clock that a calendar waits out. After a
	// longer one the clock was plainly wrong before, and waiting for it could take years.
	stepBackMax = 10 * time.Second
)

// past records the use of a limit that is out of force, leases included. The use fades as it would in
// force: a token bucket refills, and a window drops its cells.
type past struct {
	limit lease.Limit
	scale lease.Scale
	over  int64 // of a token bucket, E
	used  int64 // of a token bucket, units below B + E
	at    int64 // the running time of used, or to which the window was advanced
	window
}

// sameAs reports whether p is the past of limit l. A window with another N is the same, because its
// charges do not depend on N.
func (p past) sameAs(l lease.Limit, sc *lease.Scale) bool { return same(p.limit, &p.scale, l, sc) }

// same reports whether a and b are one limit: token buckets of equal rate, Per, burst and units, or
// windows of equal kind, length and offset.
func same(a lease.Limit, asc *lease.Scale, b lease.Limit, bsc *lease.Scale) bool {
	if asc.Kind != lease.KindBucket {
		return asc.Kind == bsc.Kind && asc.Tick == bsc.Tick && asc.Offset == bsc.Offset
	}
	return a.Per == b.Per && *asc == *bsc
}

// all is B + E of p, a token bucket, in units.
func (p *past) all() int64 { return (p.scale.Capacity + p.over) * p.scale.Unit }

// usedAt returns the units of p, a token bucket, that are still used at the time now.
func (p *past) usedAt(now int64) int64 {
	if p.used == 0 {
		return 0
	}
	ticks := max(0, now-p.at) / p.scale.Tick
	if ticks >= (p.used+p.scale.Step-1)/p.scale.Step {
		return 0
	}
	return p.used - ticks*p.scale.Step
}

// ended reports whether nothing of p counts any more at the time now, when the server's clock says
// clock. A calendar counts until its clock cannot step back into the period.
func (p *past) ended(now, clock int64) bool {
	switch p.scale.Kind {
	case lease.KindCalendar:
		return clock >= p.ends(&p.scale)
	case lease.KindSliding:
		return now >= p.at+exact.Micros(p.scale.TimeToFull())
	default:
		return p.usedAt(now) == 0
	}
}

// prune drops the pasts that have ended.
func (b *Bucket) prune() { b.drop(func(p past) bool { return p.ended(b.now, b.clock) }) }

func (b *Bucket) drop(over func(past) bool) {
	if slices.ContainsFunc(b.pasts, over) {
		b.pasts = slices.DeleteFunc(slices.Clone(b.pasts), over)
	}
}

// forget notes that limits out of force may have been used up until the running time until. Of their
// pasts it keeps those that owe.
func (b *Bucket) forget(until int64) {
	if until <= b.forgotAt {
		return
	}
	b.forgotAt = until
	var owed []past
	for _, p := range b.pasts {
		if p.used = p.usedAt(b.now); p.used > p.all() {
			p.at = until
			owed = append(owed, p)
		}
	}
	b.pasts = owed
}

// inForce reports whether b has the limit of p in force.
func (b *Bucket) inForce(p past) bool {
	for k, l := range b.config.Limits {
		if p.sameAs(l, &b.scales[k]) {
			return true
		}
	}
	return false
}

// leave adds the past of limit i of was, which goes out of force. Leased tokens count as used, because
// they may be spent before the limit comes back. Until forgotAt every limit without a past counts as
// used up, so only a token bucket that owes needs one.
func (b *Bucket) leave(was *Bucket, i int) {
	p := past{limit: was.config.Limits[i], scale: was.scales[i], at: b.now - was.rest[i]}
	if w := was.windows[i]; w != nil {
		if b.now < b.forgotAt {
			return
		}
		p.window = *w
		p.charge(&p.scale, b.now, was.ring.ledger())
		if p.scale.Kind == lease.KindCalendar {
			p.begun = max(0, p.begun)
			p.at = p.begun
		} else if p.sum == 0 {
			return
		}
	} else {
		p.over = was.config.Overcommit
		p.used = p.all() - was.level[i]
		least := int64(0)
		if b.now < b.forgotAt {
			p.at, least = b.forgotAt, p.all()
		}
		if p.used <= least || startsEmpty(&p.scale) {
			return
		}
	}
	if at := slices.IndexFunc(b.pasts, p.isOf); at >= 0 { // a configuration may have one limit twice
		p.used, p.over = max(p.used, b.pasts[at].used), max(p.over, b.pasts[at].over)
		p.atLeast(&p.scale, &b.pasts[at].window)
		if p.scale.Kind == lease.KindCalendar {
			p.at = p.begun
		}
		b.drop(p.isOf)
	}
	b.pasts = append(slices.Clip(b.pasts), p)
}

// settlePasts drops the pasts of limits in force. If too many are left, it drops the oldest ones that
// owe nothing.
func (b *Bucket) settlePasts() {
	b.drop(b.inForce)
	for len(b.pasts) > pastsMax {
		oldest := max(0, slices.IndexFunc(b.pasts, func(p past) bool { return p.used <= p.all() }))
		b.pasts = slices.Delete(slices.Clone(b.pasts), oldest, oldest+1)
		b.forgotAt = max(b.forgotAt, b.now)
	}
}

func (p past) isOf(o past) bool { return p.sameAs(o.limit, &o.scale) }

// pastOf returns the past of limit k, or nil.
func (b *Bucket) pastOf(k int) *past {
	i := slices.IndexFunc(b.pasts, func(p past) bool { return p.sameAs(b.config.Limits[k], &b.scales[k]) })
	if i < 0 {
		return nil
	}
	return &b.pasts[i]
}

// ownLevel returns the level of token bucket k by its own past. The leases that it finds count as used
// and not paid for. A newer version is lent those beyond B + E: operators change limits rarely, where
// turns may go on for ever.
func (b *Bucket) ownLevel(k int, newer bool) int64 {
	sc, over := &b.scales[k], b.config.Overcommit
	full := sc.Capacity * sc.Unit
	p := b.pastOf(k)
	if p == nil {
		if p = (&past{scale: *sc, over: over, at: b.forgotAt}); b.forgotAt > 0 { // it may have been used up then
			p.used = p.all()
		}
	}
	leased := b.ring.ledger()
	if newer {
		leased = min(leased, sc.Capacity+over)
	}
	level, deepest := min(full+over*sc.Unit, p.all()-p.usedAt(b.now)), deepest(sc, over)
	if leased > (level+deepest)/sc.Unit { // the product may be too large
		return -deepest
	}
	return min(full, level-leased*sc.Unit)
}

// atLeast raises the charges of w, so that w never counts less than o, now or later: for every cell,
// the sum of it and all later ones becomes the larger of the two. Both have one kind and length.
func (w *window) atLeast(sc *lease.Scale, o *window) {
	w.period, w.begun = max(w.period, o.period), max(w.begun, o.begun)
	if sc.Kind == lease.KindCalendar {
		w.sum = max(w.sum, o.sum)
		return
	}
	mine, others, both := int64(0), int64(0), int64(0)
	for j := w.first + windowSlots - 1; j >= w.first; j-- {
		mine, others = mine+*w.slot(j), others+*o.slot(j)
		*w.slot(j) = max(mine, others) - both
		both = max(mine, others)
	}
	w.sum = both
}
