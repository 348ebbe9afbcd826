package lease

import (
	"slices"
	"time"
)

// What a bucket remembers of limits that are not in force: docs/protocol.md section 6.12.

const (
	// pastsMax is how many limits a bucket remembers that have left: those of two configurations.
	pastsMax = 2 * LimitsMax
	// stepBackMax is the longest step back of the server's clock after which a calendar still gives
	// nothing twice. A clock that was further ahead may have been anywhere.
	stepBackMax = 10 * time.Second
)

// past is what was used of a limit that has left, leases included. It goes on as if nobody used it:
// what was used of a token bucket refills, what was charged to a window is dropped.
type past struct {
	limit Limit
	scale Scale
	over  int64 // of a token bucket, E
	used  int64 // of a token bucket, units below B + E
	at    int64 // the running time at which so much was used, or up to which the window was advanced
	window
}

// sameAs reports whether a limit is the one that p remembers. A window is the same with another N:
// what was charged to it does not depend on that.
func (p past) sameAs(l Limit, sc *Scale) bool { return same(p.limit, &p.scale, l, sc) }

// same reports whether two limits are one: the same rate over the same time and the same burst,
// counted in the same units, or windows of one kind, length and offset.
func same(a Limit, asc *Scale, b Limit, bsc *Scale) bool {
	if asc.Kind != KindBucket {
		return asc.Kind == bsc.Kind && asc.Tick == bsc.Tick && asc.Offset == bsc.Offset
	}
	return a.Per == b.Per && *asc == *bsc
}

// all is B + E of p, a token bucket, in units.
func (p *past) all() int64 { return (p.scale.Capacity + p.over) * p.scale.Unit }

// refilled is what was used of p, a token bucket, less what it has refilled at the time now.
func (p *past) refilled(now int64) int64 {
	if p.used == 0 {
		return 0
	}
	ticks := max(0, now-p.at) / p.scale.Tick
	if ticks >= (p.used+p.scale.Step-1)/p.scale.Step {
		return 0
	}
	return p.used - ticks*p.scale.Step
}

// ended reports whether p has nothing left to remember at the time now, when the server's clock says
// clock. A calendar that has ended is remembered until its clock cannot step back into it.
func (p *past) ended(now, clock int64) bool {
	switch p.scale.Kind {
	case KindCalendar:
		return clock >= p.ends(&p.scale)
	case KindSliding:
		return now >= p.at+micros(p.scale.timeToFull())
	default:
		return p.refilled(now) == 0
	}
}

// prune drops the pasts that have nothing left to remember.
func (b *Bucket) prune() { b.drop(func(p past) bool { return p.ended(b.now, b.clock) }) }

func (b *Bucket) drop(over func(past) bool) {
	if slices.ContainsFunc(b.pasts, over) {
		b.pasts = slices.DeleteFunc(slices.Clone(b.pasts), over)
	}
}

// forget has nothing be known of other limits until the running time until, but what is owed.
func (b *Bucket) forget(until int64) {
	if until <= b.forgotAt {
		return
	}
	b.forgotAt = until
	var owed []past
	for _, p := range b.pasts {
		if p.used = p.refilled(b.now); p.used > p.all() {
			p.at = until
			owed = append(owed, p)
		}
	}
	b.pasts = owed
}

// inForce says whether one of b's limits is p's.
func (b *Bucket) inForce(p past) bool {
	for k, l := range b.config.Limits {
		if p.sameAs(l, &b.scales[k]) {
			return true
		}
	}
	return false
}

// leave remembers limit i of was, which is not in force any more. What is leased counts as used: it
// may be spent before the limit comes back. While other limits count as used up anyway, what is owed
// is remembered, and of a window nothing.
func (b *Bucket) leave(was *Bucket, i int) {
	p := past{limit: was.config.Limits[i], scale: was.scales[i], at: b.now - was.rest[i]}
	if w := was.windows[i]; w != nil {
		if b.now < b.forgotAt {
			return
		}
		p.window = *w
		p.charge(&p.scale, b.now, was.ring.ledger())
		if p.scale.Kind == KindCalendar {
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
		if p.used <= least || p.scale.startsEmpty() {
			return
		}
	}
	if at := slices.IndexFunc(b.pasts, p.isOf); at >= 0 { // of two limits that are the same
		p.used, p.over = max(p.used, b.pasts[at].used), max(p.over, b.pasts[at].over)
		p.atLeast(&p.scale, &b.pasts[at].window)
		if p.scale.Kind == KindCalendar {
			p.at = p.begun
		}
		b.drop(p.isOf)
	}
	b.pasts = append(slices.Clip(b.pasts), p)
}

// settlePasts drops what is in force again, and of more than can be remembered the oldest that owes
// nothing.
func (b *Bucket) settlePasts() {
	b.drop(b.inForce)
	for len(b.pasts) > pastsMax {
		oldest := max(0, slices.IndexFunc(b.pasts, func(p past) bool { return p.used <= p.all() }))
		b.pasts = slices.Delete(slices.Clone(b.pasts), oldest, oldest+1)
		b.forgotAt = max(b.forgotAt, b.now)
	}
}

func (p past) isOf(o past) bool { return p.sameAs(o.limit, &o.scale) }

// remembered is what the bucket remembers of limit k; nil for nothing.
func (b *Bucket) remembered(k int) *past {
	i := slices.IndexFunc(b.pasts, func(p past) bool { return p.sameAs(b.config.Limits[k], &b.scales[k]) })
	if i < 0 {
		return nil
	}
	return &b.pasts[i]
}

// ownLevel is the level that the token bucket k has by its own past, which may be more than it holds.
// What is leased now it has yet to pay for; to an operator, who changes limits now and then, it
// lends what is leased beyond B + E.
func (b *Bucket) ownLevel(k int, newer bool) int64 {
	sc, over := &b.scales[k], b.config.Overcommit
	full := sc.Capacity * sc.Unit
	p := b.remembered(k)
	if p == nil {
		if p = (&past{scale: *sc, over: over, at: b.forgotAt}); b.forgotAt > 0 { // it may have been used up then
			p.used = p.all()
		}
	}
	leased := b.ring.ledger()
	if newer {
		leased = min(leased, sc.Capacity+over)
	}
	level, deepest := min(full+over*sc.Unit, p.all()-p.refilled(b.now)), sc.deepest(over)
	if leased > (level+deepest)/sc.Unit { // the product may be too large
		return -deepest
	}
	return min(full, level-leased*sc.Unit)
}

// atLeast has w count no less than o does, of the same kind and length, from now on and at any time
// to come: of every cell and all later ones together the larger sum of the two.
func (w *window) atLeast(sc *Scale, o *window) {
	w.period, w.begun = max(w.period, o.period), max(w.begun, o.begun)
	if sc.Kind == KindCalendar {
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
