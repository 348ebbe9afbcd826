package lease

// Draws: docs/protocol.md section 4.1.

// drawAtRest serves the draw r in full, if the bucket is at rest and has what is wanted. It takes
// tokens from the levels and remembers nothing of the holder: what is admitted at once is never in
// the ledger. Otherwise it changes nothing, and r is a call like any other.
func (b *Bucket) drawAtRest(r *Request, g *Grant) bool {
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
	b.refunded = [LimitsMax]int64{}
	rec := &record{seq: r.Seq, granted: r.Want, debit: nobody}
	b.count(r, rec, false, r.Want)
	b.executed++
	b.remember()
	b.reply(r, rec, g)
	return true
}

// atRest reports whether nobody holds a lease, or has lately, nor asked in vain while others did,
// and no loss is being waited out. The ring's number must be below the counter, see normalise.
func (b *Bucket) atRest() bool {
	return b.ring.ledger() == 0 && b.ring.weightSum() == 0 && b.ring.gen < b.counter &&
		b.now >= b.frozen && b.now >= b.fair.contendedUntil
}

// normalise gives what a bucket at rest does not need to remember the values that follow from the
// rest of its state, so that a store can leave them out. The ring's new number is one that no
// record has had: an old record would otherwise look live in slices of another width.
func (b *Bucket) normalise() {
	gen := b.counter
	b.ring = newRing(b.now, b.ttl)
	b.ring.gen, b.ring.movedAt = gen, b.now
	b.fair = fair{share: b.rate(), updated: b.now}
}
