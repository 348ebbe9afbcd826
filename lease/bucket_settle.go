package lease

import "time"

// clockSwing is how far the server's clock may go back and yet be taken for one that will soon be
// where it was.
const clockSwing = time.Second

// settle is steps 1 to 3: it brings the levels and the ledger to the server's time clock. The bucket's own time passes as the server's does,
// but does not step back with it: then it stands still. So nothing is refilled twice, and whatever
// had some time left has as much left afterwards. After a small step it stands still until the
// clock is where it was: clocks that disagree, as those of callers with redisbucket's ClientTime
// do, would else make every other call a step forward.
func (b *Bucket) settle(clock int64) {
	s := &b.state
	if !s.exists {
		return
	}
	if clock < s.clock && s.clock-clock <= micros(clockSwing) {
		clock = s.clock
	}
	from := s.now
	now := from + max(0, clock-s.clock)
	s.clock = clock
	at := from
	// Where holdings ran out, refill up to that moment with the ledger that still holds them; refilling
	// after forgetting would credit time during which the ledger was full.
	for ends := s.ring.ends(); ends <= now && s.ring.base < from/s.ring.width+ringSlices; ends = s.ring.ends() {
		if s.ring.held[s.ring.base%ringSlices] != 0 {
			b.refill(at, ends)
			at = ends
		}
		s.ring.expire()
	}
	s.ring.base = now / s.ring.width
	b.refill(at, now)
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
		room := b.room(k, ledger) - s.level[k]
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

// room is how far level k may fill while so many tokens are held: B, or B + E - O where that is
// less.
func (b *Bucket) room(k int, ledger int64) int64 {
	sc := &b.scales[k]
	return max(0, min(sc.burst, sc.burst+b.config.Overcommit-ledger)) * sc.unit
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
	ledger := b.state.ring.ledger()
	for k := range b.config.Limits {
		b.state.level[k] = min(b.state.level[k], b.room(k, ledger))
	}
}
