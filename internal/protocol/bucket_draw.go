package protocol

import (
	"github.com/yuzhi-go/yuzhi/lease"
)

// Draws: docs/protocol.md section 4.1.

// drawAtRest serves the draw r in full, if the bucket is at rest and has what is wanted. It takes
// tokens from the levels and remembers nothing of the holder: what is admitted at once is never in
// the ledger. Otherwise it changes nothing, and r is a call like any other.
func (b *Bucket) drawAtRest(r *lease.Request, g *lease.Grant) bool {
	if !b.atRest() || r.Debt > 0 || r.Charge > 0 || b.available(r.Headroom) < r.Want {
		return false
	}
	v, fair, nobody := b.fairView(r), b.fair, debit{last: b.now}
	fair.advance(v, &nobody)
	if fair.share != v.own {
		return false
	}
	for k := range b.config.Limits {
		b.level[k] -= r.Want * b.levelUnit(k)
	}
	b.chargeWindows(r.Want)
	b.normalise()
	b.refunded = [lease.LimitsMax]int64{}
	rec := &record{seq: r.Seq, granted: r.Want, debit: nobody, place: place(b.now + b.ttl)}
	b.count(r, rec, false, r.Want)
	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return true
}

// atRest reports whether nobody holds a lease, or has lately, nor asked in vain while others did,
// and no loss is being waited out.
func (b *Bucket) atRest() bool {
	return b.ring.ledger() == 0 && b.ring.weightSum() == 0 && b.now >= b.frozen && b.now >= b.fair.contendedUntil
}

// normalise gives what a bucket at rest does not need to remember the values that follow from the
// rest of its state, so that a store can leave them out.
func (b *Bucket) normalise() {
	b.ring = newRing(b.now, b.ttl)
	b.ring.movedAt = b.now
	b.fair = fair{share: b.rate(), updated: b.now}
}
