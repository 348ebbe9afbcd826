package lease

import "time"

// credit is step 6. What comes back counts only for a known call; debt counts for every one. It
// fills a level no further than a refill would, as the ledger may still be above B + E after a
// limit was lowered.
func (b *Bucket) credit(r *Request, known bool) {
	ledger := b.ring.ledger()
	b.refunded = [LimitsMax]int64{}
	filled := false
	for k := range b.config.Limits {
		sc := &b.scales[k]
		if known {
			room := b.room(k, ledger)
			returned := min(r.Returned, sc.Capacity)*sc.Unit + b.worth(k, r)
			back := returned + min(r.Refund, sc.Capacity)*sc.Unit
			without := max(b.level[k], min(b.level[k]+returned, room))
			b.level[k] = max(b.level[k], min(b.level[k]+back, room))
			b.refunded[k] = b.level[k] - without
			filled = filled || b.refunded[k] > 0
			b.brim(k, room-b.level[k])
		}
		b.level[k] = max(0, b.level[k]-min(r.Debt, sc.Capacity)*sc.Unit)
	}
	if filled {
		b.setAt = b.now // a refund has filled what earlier draws had left
	}
}

// worth is how much of r.Unused may be credited to level k, in units: what the limit has not
// refilled since the draw. Section 10 says why.
func (b *Bucket) worth(k int, r *Request) int64 {
	sc := &b.scales[k]
	units := min(r.Unused, sc.Capacity) * sc.Unit
	if r.Drawn <= b.setAt || r.Drawn > b.now {
		return 0
	}
	ticks := (b.now - r.Drawn + sc.Tick - 1) / sc.Tick
	if ticks >= (units+sc.Step-1)/sc.Step {
		return 0
	}
	return units - ticks*sc.Step
}

// draw is the arithmetic of step 7: how much the holder gets, subtracted from every level. others
// is what other holders hold; alone says that none was active within T.
func (b *Bucket) draw(r *Request, rec *record, others int64, alone bool) int64 {
	available := b.available()
	v := b.fairView(r)
	b.fair.advance(v, &rec.debit)
	g := min(r.Want, available, b.fair.allow(v, &rec.debit, alone))
	if r.Want > available && others > 0 {
		b.fair.contendedUntil = b.now + int64(2*v.target)
	}
	if g < r.Need {
		g = 0
	}
	rec.debit.allowance = max(-maxUnits, rec.debit.allowance-float64(g))
	for k := range b.config.Limits {
		b.level[k] -= g * b.scales[k].Unit
	}
	return g
}

// available is the whole tokens that every limit has.
func (b *Bucket) available() int64 {
	n := int64(maxUnits)
	for k := range b.config.Limits {
		n = min(n, b.level[k]/b.scales[k].Unit)
	}
	return n
}

// reply fills g from the record's stored grant and the present state.
func (b *Bucket) reply(r *Request, rec *record, g *Grant) {
	active := b.ring.weightSum()
	*g = Grant{
		Seq: rec.seq, Granted: rec.granted, Waited: min(rec.granted, r.Waiting), Void: rec.void,
		Short: rec.granted < r.Want, Running: rec.debit.last,
		Config: b.config, Epoch: b.epoch, Counter: b.counter, ServerTime: b.clock,
		Ledger: b.ring.ledger(), ActiveWeight: active, Contended: b.now < b.fair.contendedUntil,
		Expiry: duration(b.keep - b.now), LeaseMax: duration(b.leaseMax()),
	}
	g.Levels, g.Next = b.levels()
	if least := max(1, r.Need); rec.granted < least {
		g.RetryAfter = duration(b.wait(least))
	}
	if g.Short {
		v := b.fairView(r)
		m := b.fair.least(v)
		alone, othersHold := active == r.Weight, b.ring.ledger() > 0
		g.Delay = duration(b.fair.delay(v, rec.debit, m, b.refillTime(m), alone, othersHold))
	}
}

// wait is the microseconds until every level has reached n tokens, or its burst, if nobody draws.
func (b *Bucket) wait(n int64) int64 {
	longest := int64(0)
	for k := range b.config.Limits {
		longest = max(longest, b.waitAt(k, n))
	}
	return longest
}

// waitAt is wait for level k alone.
func (b *Bucket) waitAt(k int, n int64) int64 {
	sc := &b.scales[k]
	missing := min(n, sc.Capacity)*sc.Unit - b.level[k]
	if missing <= 0 {
		return 0
	}
	return (missing+sc.Step-1)/sc.Step*sc.Tick - b.rest[k] + max(0, b.frozen-b.now)
}

// levels are the whole tokens of every level, and the time until it has one more if nobody draws; 0
// where it is full.
func (b *Bucket) levels() (tokens [LimitsMax]int64, next [LimitsMax]time.Duration) {
	for k := range b.config.Limits {
		tokens[k] = b.level[k] / b.scales[k].Unit
		next[k] = duration(b.waitAt(k, tokens[k]+1))
	}
	return tokens, next
}
