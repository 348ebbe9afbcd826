package lease

// settle is steps 1 to 3: it brings the levels and the ledger to time now and returns the time they stood at.
func (b *Bucket) settle(now int64) (from int64) {
	s := &b.state
	if !s.exists {
		return now
	}
	if now < s.now {
		b.stepBack(now)
	}
	from = s.now
	at := from
	// Where holdings ran out, refill up to that moment with the ledger that still holds them; refilling
	// after forgetting would credit time during which the ledger was full.
	for ends := s.ring.ends(); ends <= now && s.ring.base < from/s.ring.width+ringSlices; ends = s.ring.ends() {
		if b.variant != variantRefillAfterForget && b.variant != variantRefillAfterReport &&
			s.ring.held[s.ring.base%ringSlices] != 0 {
			b.refill(at, ends)
			at = ends
		}
		s.ring.expire()
	}
	s.ring.base = now / s.ring.width
	if b.variant != variantRefillAfterReport {
		b.refill(at, now)
	}
	s.now = now
	return from
}

// stepBack is step 1 for a clock that went back: what remained of every interval remains of it in the new
// time, nothing is refilled, and every holding may now last as long as the whole ring.
func (b *Bucket) stepBack(now int64) {
	s := &b.state
	back := s.now - now
	s.ring.move(s.now, now, s.ring.width)
	if s.frozen > s.now {
		s.frozen -= back
	} else {
		s.frozen = 0
	}
	s.created -= back
	s.fair.contendedUntil -= back
	s.now = now
}

// refill is step 2 for the interval (from, to], during which the ledger does not change.
func (b *Bucket) refill(from, to int64) {
	s := &b.state
	from = max(from, s.frozen)
	if to <= from {
		return
	}
	ledger := s.ring.ledger()
	for k := range b.config.Limits {
		sc := &b.scales[k]
		room := max(0, min(sc.burst, sc.burst+b.config.Overcommit-ledger))*sc.unit - s.level[k]
		if room <= 0 {
			s.rest[k] = 0
			continue
		}
		// The product is formed only when it is below room + step < 2^53.
		elapsed := to - from + s.rest[k]
		ticks := elapsed / sc.tick
		if ticks >= (room+sc.step-1)/sc.step {
			s.level[k] += room
			s.rest[k] = 0
			continue
		}
		s.level[k] += ticks * sc.step
		s.rest[k] = elapsed % sc.tick
		b.brim(k, room-ticks*sc.step)
	}
}

// brim deals with a level that is room units below the most it may be. Between two ticks the level of one
// central bucket goes on rising, and stops at the brim: a remainder that already reaches it must not be
// credited again after the next draw.
func (b *Bucket) brim(k int, room int64) {
	s, sc := &b.state, &b.scales[k]
	if room <= 0 || room < sc.step && room*sc.tick <= sc.step*s.rest[k] { // a negative room may not be multiplied
		s.level[k] += max(room, 0)
		s.rest[k] = 0
	}
}

// clip ends step 2: a level never reaches above what the ledger leaves of B + E.
func (b *Bucket) clip() {
	if b.variant == variantNoClip {
		return
	}
	s := &b.state
	ledger := s.ring.ledger()
	for k := range b.config.Limits {
		sc := &b.scales[k]
		s.level[k] = min(s.level[k], max(0, min(sc.burst, sc.burst+b.config.Overcommit-ledger))*sc.unit)
	}
}
